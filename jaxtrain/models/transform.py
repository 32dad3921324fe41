"""A user's own function that changes a model once it is built, such as quantisation."""

from typing import Any

from flax import nnx

from jaxtrain import own
from jaxtrain.errors import UserError
from jaxtrain.models.base import Model
from jaxtrain.registry import call_own

FIELD = "model.transform"


def transform(model: Model, name: str) -> Model:
    """Return what a user's own function makes of a model.

    Args:
      model: Model as its config describes it, which the function may change.
      name: Place of the function, as the config has it.

    Raises:
      UserError: it cannot be found, or returns no model that can be cut into pieces.
    """
    made: Any = call_own(FIELD, name, own.load(FIELD, name), model)
    if not isinstance(made, Model):
        raise UserError(
            f"{FIELD} = {name!r} returned {type(made).__name__}, expected the model "
            "or another jaxtrain.models.base.Model; see docs/extending.md"
        )
    layers = {layer for piece in made.pieces for layer in piece.names}
    arrays = {str(path[0]) for path, _ in nnx.to_flat_state(nnx.state(made))}
    if arrays - layers:
        raise UserError(
            f"{FIELD} = {name!r} put arrays into {', '.join(sorted(arrays - layers))}, "
            "which is no layer of a piece of the model: put them into its layers"
        )
    return made
