"""Shapes and dtypes of stored batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxtrain.data.batch import BOX, Batch

if TYPE_CHECKING:
    from jaxtrain.config import DataConfig
    from jaxtrain.data.sources import Source


@dataclass(frozen=True)
class BatchSpec:
    """Shapes and dtypes of the stored batches of a split.

    Attributes:
      example: Arrays, or `jax.ShapeDtypeStruct`, of one example.
      numbers: Names of the additional int32 arrays (batch,), such as `index`.
    """

    example: Batch
    numbers: tuple[str, ...]

    def stored(self, *leading: int, sharding: Any = None) -> Batch:
        """Return the shapes and dtypes of stored examples.

        Args:
          leading: Leading dims, such as the batch size.
          sharding: Sharding of the arrays.
        """
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(
                (*leading, *x.shape), x.dtype, sharding=sharding
            ),
            self.example,
        )

    def batch(
        self, *leading: int, sharding: Any = None, on_device: bool = False
    ) -> Batch:
        """Return the shapes and dtypes of a batch.

        Args:
          leading: Leading dims, such as the batch size.
          sharding: Sharding of the arrays.
          on_device: Whether the examples are cached on the device, so that a batch
            contains only the arrays in `numbers`.
        """
        number = jax.ShapeDtypeStruct(leading, np.int32, sharding=sharding)
        stored = {} if on_device else self.stored(*leading, sharding=sharding)
        return {**dict.fromkeys(self.numbers, number), **stored}


def train_spec(config: DataConfig, source: Source) -> BatchSpec:
    """Return the shapes and dtypes of the stored training batches of a source."""
    shape = source.canvas_shape
    if shape and (source.transforms_targets or not source.input.are_images):
        cut = source.read(np.zeros(1, np.int64), np.zeros((1, 1), np.int64), [])
        return BatchSpec(jax.tree.map(lambda x: x[0], cut), train_numbers(config))
    example = _example(source)
    if shape:
        height, width, _ = shape
        example["image"] = np.zeros(shape, np.uint8)
        example[BOX] = np.array([0, 0, width, height], np.float32)
    return BatchSpec(example, train_numbers(config))


def eval_spec(source: Source) -> BatchSpec:
    """Return the shapes and dtypes of the stored evaluation batches of a source."""
    return BatchSpec(_example(source), ("index", "mask"))


def train_numbers(config: DataConfig) -> tuple[str, ...]:
    """Return the names of the additional int32 arrays of a training batch."""
    required = {
        "index": True,
        # Copies of an example are augmented differently.
        "repeat": config.repeats > 1 or config.sampling == "balanced",
        "epoch": config.augment.alternating_flip,
    }
    return tuple(name for name, is_required in required.items() if is_required)


def _example(source: Source) -> Batch:
    targets = source.targets(np.zeros(1, np.int64))
    return {
        "image": np.zeros(source.image_shape, source.dtype),
        "target": jax.tree.map(lambda x: x[0], targets),
    }
