"""Methods by name: how a step gets its gradients.

To add one, write a subclass of `Method` in a file of its own, and its row in `METHODS`.
"""

from jaxtrain.config import TrainConfig
from jaxtrain.errors import UserError
from jaxtrain.registry import Row, call_own, find_call
from jaxtrain.training.methods.base import Method
from jaxtrain.training.methods.plain import Plain

METHODS: dict[str, Row] = {"plain": Row(Plain)}


def build(config: TrainConfig) -> Method:
    """Return the method that the section names.

    Raises:
      UserError: The name is not known, or the user's own is no method.
    """
    name, options = config.method, config.method_options
    make, _ = find_call(METHODS, "train.method", name)
    method = call_own("train.method", name, make, **options)
    if not isinstance(method, Method):
        raise UserError(
            f"train.method = {name!r} makes {method!r}, which is no "
            "jaxtrain.training.methods.base.Method"
        )
    return method
