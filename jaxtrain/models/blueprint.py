"""What a model is built from, as one value: its config, dtypes, inputs and outputs."""

from dataclasses import dataclass
from typing import Any

import jax
import jmp
from flax import nnx

from jaxtrain import models, own
from jaxtrain.config import ModelConfig
from jaxtrain.errors import UserError
from jaxtrain.models.base import Model
from jaxtrain.registry import call_own


@dataclass(frozen=True, kw_only=True)
class Blueprint:
    """All that a model is built from, but the source of its initial weights.

    Attributes:
      config: name and options of the model.
      policy: dtypes of parameters, activations and outputs.
      image_shape: height, width and channels.
      num_outputs: features of the last layer.
      output_spec: Shape of the outputs for an image, or a tree of shapes. None means
        (num_outputs,).
      norm_groups: parts of a training batch that batch norm takes by themselves.
    """

    config: ModelConfig
    policy: jmp.Policy
    image_shape: tuple[int, int, int]
    num_outputs: int
    output_spec: Any = None
    norm_groups: int = 1

    def images(self, num: int) -> jax.ShapeDtypeStruct:
        """Return the shape and dtype of images as the model sees them."""
        return jax.ShapeDtypeStruct((num, *self.image_shape), self.policy.compute_dtype)

    def build(self, rngs: nnx.Rngs) -> Model:
        """Build the model; its weights come from the stream `params` of `rngs`.

        Raises:
          UserError: name, options and image shape do not fit (see `models.build`), or
            the user's own transform returns no model that can be cut into pieces.
        """
        made = models.build(
            self.config,
            image_shape=self.image_shape,
            num_outputs=self.num_outputs,
            output_spec=self.output_spec,
            policy=self.policy,
            rngs=rngs,
            norm_groups=self.norm_groups,
        )
        name = self.config.transform
        return made if name is None else _transformed(made, name)

    def abstract(self) -> Model:
        """Return the model without allocating it: shapes and dtypes alone."""
        return nnx.eval_shape(lambda: self.build(initial_rngs(jax.random.key(0))))


def _transformed(model: Model, name: str) -> Model:
    """Return what a user's own function makes of a model, such as a quantised one."""
    field = "model.transform"
    made: Any = call_own(field, name, own.load(field, name), model)
    if not isinstance(made, Model):
        raise UserError(
            f"{field} = {name!r} returned {type(made).__name__}, expected the model "
            "or another jaxtrain.models.base.Model; see docs/extending.md"
        )
    layers = {layer for piece in made.pieces for layer in piece.names}
    arrays = {str(path[0]) for path, _ in nnx.to_flat_state(nnx.state(made))}
    if arrays - layers:
        raise UserError(
            f"{field} = {name!r} put arrays into {', '.join(sorted(arrays - layers))}, "
            "which is no layer of a piece of the model: put them into its layers"
        )
    return made


class _Counted(nnx.RngStream):
    """A stream that counts its keys in Python: in a trace they are constants.

    Flax counts in an array. Under a trace it then looks, for each key, through all that
    was traced before: for ResNet-152 that takes most of the time in which it is built.
    """

    def __init__(self, key: jax.Array, *, tag: str):
        super().__init__(key, tag=tag)
        self.taken = 0

    def __call__(self) -> jax.Array:
        key = jax.random.fold_in(self.key[...], self.taken)
        self.taken += 1
        return key


def initial_rngs(key: jax.Array) -> nnx.Rngs:
    """Return what gives the keys that `nnx.Rngs(params=key)` would."""
    rngs = nnx.Rngs()
    rngs.params = _Counted(key, tag="params")  # pyright: ignore[reportAttributeAccessIssue]
    return rngs
