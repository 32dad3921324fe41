"""What is computed once of each training example, and kept on the devices.

It must be the same in every epoch: the images are, where nothing augments them.
"""

import collections
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from jaxtrain.config import AugmentConfig, DataConfig
from jaxtrain.data import loader
from jaxtrain.data.batch import Batch
from jaxtrain.data.datasets import Dataset, cache_bytes
from jaxtrain.data.input_kind import InputKind
from jaxtrain.engine import passes
from jaxtrain.parallel import sharding
from jaxtrain.training.calls_ahead import Pace
from jaxtrain.training.compiled import Compiled
from jaxtrain.trees import num_bytes

# What the program is for.
PURPOSE = "what is kept of the training images"


def changes_of_images(data: DataConfig, input: InputKind) -> dict[str, bool]:
    """Return why the images of training may not be those of other epochs.

    Args:
      data: Section of the data.
      input: Kind of the training examples.

    Returns:
      Reason -> whether it holds.
    """
    return {
        **input.changes(),
        "the images are augmented (data.augment)": data.augment != AugmentConfig(),
        "training images have another size than those of evaluations": bool(
            data.training_sizes
        ),
    }


def too_large(arrays: Any) -> dict[str, bool]:
    """Return the same of what takes more memory than data on a device may."""
    size, most = num_bytes(arrays), cache_bytes()
    told = f"they take {size / 1e6:,.0f} MB, more than {most / 1e6:,.0f} MB"
    return {told: size > most}


def of_each_example(
    compute: Callable[[Any, Any, Batch], tuple[Any, jax.Array]],
    weights: Any,
    abstract: Any,
    config: DataConfig,
    dataset: Dataset,
    mesh: Mesh,
) -> Any:
    """Compute something of all training examples, and put it on every device.

    Args:
      compute: Function `(weights, data, batches) -> (values (B, ...), index (B,))` of a
        batch, traced.
      weights: Arrays that it takes.
      abstract: Values of all examples, (examples, ...) each, with where they lie.
      config: Section of the data.
      dataset: Training split of the run.
      mesh: Mesh of the devices.
    """
    everywhere = sharding.replicated(mesh)

    def zeros() -> Any:
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), abstract)

    def put(kept: Any, weights: Any, data: Any, batches: Batch) -> Any:
        """Return what is kept with the values of a batch in their places."""
        values, index = compute(weights, data, batches)
        return jax.tree.map(lambda all, x: all.at[index].set(x), kept, values)

    kept = jax.jit(zeros, out_shardings=everywhere)()
    program = Compiled(put, PURPOSE, out_shardings=everywhere, donate_argnums=0)
    pace = Pace()

    def start(batch: Any) -> None:
        nonlocal kept
        batch = passes.shared(mesh, batch, config.batch_size)
        kept = program(kept, weights, dataset.on_device, batch)
        pace.sent(kept)

    batches = loader.all_batches(config, dataset, mesh, config.batch_size)
    collections.deque(passes.results(batches, start), maxlen=0)
    return kept
