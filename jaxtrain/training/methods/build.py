"""Creation of the training method from its config section."""

from jaxtrain import own
from jaxtrain.config import TrainConfig
from jaxtrain.config.base import typed_options
from jaxtrain.errors import UserError
from jaxtrain.registry import call_own, find_row
from jaxtrain.training.methods import METHODS
from jaxtrain.training.methods.base import Method


def build_method(config: TrainConfig) -> Method:
    """Create the method that the config names, with its options.

    Raises:
      UserError: Unknown name, or a custom object that is not a `Method`.
    """
    name, options = config.method, config.method_options
    make = find_row(METHODS, "train.method", name)
    if not own.is_own(name) and make.Options is not None:
        field = "train.method_options"
        options = vars(typed_options(make.Options, options, name, field))
    method = call_own("train.method", name, make, **options)
    if not isinstance(method, Method):
        raise UserError(
            f"train.method = {name!r} returns {method!r}, which is not a "
            "jaxtrain.training.methods.base.Method"
        )
    teacher = getattr(method, "teacher", None)
    has_teacher = teacher is not None or hasattr(method, "taught_by")
    if has_teacher and type(method).plan_inputs is Method.plan_inputs:
        raise UserError(
            f"train.method = {name!r} has a teacher but no `plan_inputs` that opens "
            "the teacher: derive the method from the base class in docs/extending.md"
        )
    return method
