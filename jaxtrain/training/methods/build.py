"""Creation of the training method from its config section."""

from jaxtrain.config.part import CustomConfig, Part, typed_options
from jaxtrain.errors import UserError
from jaxtrain.registry import check_call, find_row
from jaxtrain.training.methods import METHODS
from jaxtrain.training.methods.base import Method


def build_method(config: Part) -> Method:
    """Create the training method from the config section `method`.

    Raises:
      UserError: Unknown name, or a custom object that is not a `Method`.
    """
    name, options = config.name, config.arguments()
    make = find_row(METHODS, "method", name)
    kind = getattr(make, "Options", None)
    if kind is not None and isinstance(config, CustomConfig):
        options = vars(typed_options(kind, options, name, "method"))
    check_call("method", name, make, **options)
    method = make(**options)
    if not isinstance(method, Method):
        raise UserError(
            f"method = {name!r} returned {method!r}; return a "
            "jaxtrain.training.methods.base.Method"
        )
    teacher = getattr(method, "teacher", None)
    has_teacher = teacher is not None or hasattr(method, "with_teacher")
    if has_teacher and type(method).plan_inputs is Method.plan_inputs:
        raise UserError(
            f"method = {name!r} has a teacher, but does not override plan_inputs to "
            "load the teacher; subclass the base class in docs/extending.md"
        )
    return method
