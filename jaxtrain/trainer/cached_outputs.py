"""Outputs computed once per training example and cached on the devices.

The images must be the same in every epoch, that is, without augmentation.
"""

from typing import Any

from jax.sharding import Mesh

from jaxtrain.config import AugmentConfig, DataConfig
from jaxtrain.data import loader
from jaxtrain.data.datasets import Dataset, cache_bytes
from jaxtrain.data.input_kind import InputKind
from jaxtrain.evaluation.evaluate import Apply, ModelView, compiler, evaluate
from jaxtrain.evaluation.reducers import OnDevices
from jaxtrain.trees import num_bytes

# Purpose of the compiled program, for messages.
PURPOSE = "cached outputs of the training images"


def changes_of_images(data: DataConfig, input: InputKind) -> dict[str, bool]:
    """Reasons why training images differ between epochs.

    Args:
      data: Config section `data`.
      input: Input type of the training examples.

    Returns:
      Mapping from each possible reason to whether it applies.
    """
    return {
        **input.changes(),
        "the images are augmented (data.augment)": data.augment != AugmentConfig(),
        "training and evaluation images differ in size": bool(data.training_sizes),
    }


def too_large(arrays: Any) -> dict[str, bool]:
    """Return a dict with one entry: message -> whether `arrays` exceed the limit."""
    size, most = num_bytes(arrays), cache_bytes()
    told = f"they take {size / 1e6:,.0f} MB, more than {most / 1e6:,.0f} MB"
    return {told: size > most}


def of_each_example(
    apply: Apply,
    weights: tuple[Any, Any],
    abstract: Any,
    config: DataConfig,
    dataset: Dataset,
    mesh: Mesh,
) -> Any:
    """Apply a function to all training examples; replicate the outputs on all devices.

    Args:
      apply: Function `(weights, data, batches) -> (outputs, batch)`, to be traced.
      weights: Parameters and other model state for `apply`.
      abstract: Abstract outputs for all examples, (examples, ...), with shardings.
      config: Config section `data`.
      dataset: Training split of the run.
      mesh: Mesh of the devices.
    """
    program = compiler(apply, mesh, PURPOSE)
    view = ModelView(weights=weights, mesh=mesh, program=program)
    size, reducers = config.batch_size, [OnDevices(abstract)]
    batches = loader.all_batches(config, dataset, mesh, size)
    (kept,) = evaluate(
        view, dataset, reducers, config, batch_size=size, batches=batches
    )
    return kept
