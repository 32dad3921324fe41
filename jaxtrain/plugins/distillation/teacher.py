"""Teacher outputs within a training step.

If the images are the same in every epoch, the outputs are computed once and cached.
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

# Weights of R, G and B for the conversion to grey, as in Pillow (ITU-R 601).
GREY = (0.299, 0.587, 0.114)
FILTERS = {"bilinear": "linear", "bicubic": "cubic"}


@dataclass(frozen=True, eq=False)
class Teacher:
    """Forward pass of the teacher, in evaluation mode and without gradients.

    Its inputs are the student's augmented and mixed images, normalized as in the
    teacher's training.

    Attributes:
      apply: Function `(weights, preprocessed images) -> outputs`.
      layout: Layout of the weights; images are sharded along the batch axis only.
      normalization: Mean and standard deviation of the teacher's pixel normalization.
      image_shape: Height, width and channels of the teacher's input images.
      interpolation: Method of resizing to this shape, bilinear or bicubic.
      dtype: Dtype of the teacher's input images.
      order: Teacher's class index of each student class; None if teacher and student
        have the same classes in the same order.
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
        """Compute teacher outputs for a batch, in at least float32. Traced.

        Args:
          weights: Weights of the teacher.
          batch: Batch of the student, with images (B, H, W, C).
          seen: Mean and standard deviation of the student's normalization.
        """
        # All-gather spatially sharded images: XLA may shard some convolutions wrongly
        # (`jaxtrain.trainer.model_checks.check_groups`).
        images = self.layout.whole_images(batch["image"])
        weights = self.layout.gather_params(weights)
        outputs = widen(self.apply(weights, self.prepare(images, seen)))
        if self.order is not None:
            outputs = outputs[..., np.array(self.order)]
        return jax.lax.stop_gradient(outputs)

    def prepare(self, images: jax.Array, seen: Normalization) -> jax.Array:
        """Convert a student's images to the teacher's preprocessing.

        If the preprocessing is the same, only the dtype changes.
        """
        if images.shape[1:] == self.image_shape and seen == self.normalization:
            return images.astype(self.dtype)
        pixels = seen.pixels(widen(images))
        pixels = _to_channels(pixels, self.image_shape[-1])
        shape = (len(pixels), *self.image_shape)
        if pixels.shape != shape:
            pixels = jax.image.resize(pixels, shape, FILTERS[self.interpolation])
        return self.normalization.normalized(pixels).astype(self.dtype)


class CachedTeacherOutputs:
    """Cached teacher outputs, looked up by example index."""

    @scopes.other_model("teacher")
    def ask(self, cached: Any, batch: Batch, seen: Normalization) -> Any:
        """Look up the teacher outputs for a batch; same result as `Teacher.ask`.

        Args:
          cached: Teacher outputs for all training examples, arrays (examples, ...).
          batch: Batch of the student, with the `index` of each example, (B,).
          seen: Unused; part of the interface of `Teacher.ask`.
        """
        return jax.tree.map(lambda x: x[batch["index"]], cached)


def _to_channels(pixels: jax.Array, channels: int) -> jax.Array:
    """Convert images (B, H, W, C) between grey and colour."""
    if pixels.shape[-1] == channels:
        return pixels
    if channels == 3:
        return jnp.repeat(pixels, 3, axis=-1)
    return (pixels * jnp.asarray(GREY, pixels.dtype)).sum(-1, keepdims=True)
