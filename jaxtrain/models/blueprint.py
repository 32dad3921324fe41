"""What a model is built from, as one value: its config, dtypes, inputs and outputs."""

from dataclasses import dataclass
from typing import Any

import jax
import jmp
from flax import nnx

from jaxtrain import models
from jaxtrain.config import ModelConfig
from jaxtrain.models.base import Model
from jaxtrain.models.initial_rngs import initial_rngs
from jaxtrain.models.transform import transform


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
            the transform does not (see `transform`).
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
        return made if name is None else transform(made, name)

    def abstract(self) -> Model:
        """Return the model without allocating it: shapes and dtypes alone."""
        return nnx.eval_shape(lambda: self.build(initial_rngs(jax.random.key(0))))
