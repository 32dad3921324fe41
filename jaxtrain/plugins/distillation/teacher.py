"""A trained model that a step asks: what it says of the images of a batch.

Where the images are the same in every epoch, so is what it says of them: it is computed
once, and a step looks it up.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain import scopes
from jaxtrain.data.batch import Batch
from jaxtrain.data.pixel_normalization import Normalization
from jaxtrain.dtypes import widen
from jaxtrain.parallel.layout import Layout

# Weight of each channel in grey, as Pillow has it (ITU-R 601).
GREY = (0.299, 0.587, 0.114)
FILTERS = {"bilinear": "linear", "bicubic": "cubic"}


@dataclass(frozen=True, eq=False)
class Teacher:
    """How a step asks a trained model, in evaluation mode and without gradients.

    It sees what the student sees, augmented and mixed, as it was trained to see images.

    Attributes:
      apply: Function `(weights, prepared images) -> outputs`.
      layout: Layout of its weights; images are split by the batch alone.
      normalization: Statistics that its images are normalised with.
      image_shape: Height, width and channels of its images.
      interpolation: How images of another size are resized, bilinear or bicubic.
      dtype: Dtype of its images.
      order: Places of the student's classes in its outputs; None: the same.
    """

    apply: Callable[[Any, jax.Array], Any]
    layout: Layout
    normalization: Normalization
    image_shape: tuple[int, int, int]
    interpolation: str
    dtype: Any
    order: tuple[int, ...] | None = None

    @scopes.other_model("teacher")
    def ask(self, weights: Any, batch: Batch, seen: Normalization) -> Any:
        """Return the outputs for a batch, in at least float32. Traced.

        Args:
          weights: Weights of the teacher.
          batch: Batch of the student, whose images are (B, H, W, C).
          seen: Statistics that these are normalised with.
        """
        # Parts of images would meet convolutions that XLA does not always split right
        # (`jaxtrain.trainer.model_checks.check_groups`).
        images = self.layout.whole_images(batch["image"])
        weights = self.layout.gather_params(weights)
        outputs = widen(self.apply(weights, self.prepare(images, seen)))
        if self.order is not None:
            outputs = outputs[..., np.array(self.order)]
        return jax.lax.stop_gradient(outputs)

    def prepare(self, images: jax.Array, seen: Normalization) -> jax.Array:
        """Return a student's images as the teacher sees them.

        Images that are alike stay as they are, and are not even rounded.
        """
        if images.shape[1:] == self.image_shape and seen == self.normalization:
            return images.astype(self.dtype)
        pixels = seen.pixels(widen(images))
        pixels = _to_channels(pixels, self.image_shape[-1])
        shape = (len(pixels), *self.image_shape)
        if pixels.shape != shape:
            pixels = jax.image.resize(pixels, shape, FILTERS[self.interpolation])
        return self.normalization.normalized(pixels).astype(self.dtype)


class KeptAnswers:
    """How a step looks up what a teacher has put out, by the number of an example."""

    @scopes.other_model("teacher")
    def ask(self, kept: Any, batch: Batch, seen: Normalization) -> Any:
        """Return what `Teacher.ask` does, of the outputs of all training examples.

        Args:
          kept: Outputs, (examples, ...) each.
          batch: Batch of the student, with the `index` of each example, (B,).
          seen: Not looked at.
        """
        return jax.tree.map(lambda x: x[batch["index"]], kept)


def _to_channels(pixels: jax.Array, channels: int) -> jax.Array:
    """Turn grey images (B, H, W, C) to colour, or back."""
    if pixels.shape[-1] == channels:
        return pixels
    if channels == 3:
        return jnp.repeat(pixels, 3, axis=-1)
    return (pixels * jnp.asarray(GREY, pixels.dtype)).sum(-1, keepdims=True)
