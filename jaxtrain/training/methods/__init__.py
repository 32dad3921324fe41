"""Methods by name: how a step gets its gradients.

To add one, write a subclass of `Method` in a file of its own, and its row in `METHODS`.
"""

from jaxtrain import own
from jaxtrain.config import TrainConfig
from jaxtrain.config.base import typed_options
from jaxtrain.errors import UserError
from jaxtrain.registry import call_own, find_row
from jaxtrain.training.methods.adversarial import Adversarial
from jaxtrain.training.methods.base import Method
from jaxtrain.training.methods.distillation import Distillation
from jaxtrain.training.methods.plain import Plain
from jaxtrain.training.methods.sam import Sam
from jaxtrain.training.methods.trades import Trades

METHODS: dict[str, type[Method]] = {
    "plain": Plain,
    "sam": Sam,
    "adversarial": Adversarial,
    "trades": Trades,
    "distillation": Distillation,
}


def build(config: TrainConfig) -> Method:
    """Return the method that the section names.

    Raises:
      UserError: The name is not known, or the user's own is no method.
    """
    name, options = config.method, config.method_options
    make = find_row(METHODS, "train.method", name)
    if not own.is_own(name) and make.Options is not None:
        field = "train.method_options"
        options = vars(typed_options(make.Options, options, name, field))
    method = call_own("train.method", name, make, **options)
    if not isinstance(method, Method):
        raise UserError(
            f"train.method = {name!r} makes {method!r}, which is no "
            "jaxtrain.training.methods.base.Method"
        )
    return method
