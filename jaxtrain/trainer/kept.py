"""What is computed once of each training example, and kept on the devices.

It must be the same in every epoch: the images are, where nothing augments them.
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
    apply: Apply,
    weights: tuple[Any, Any],
    abstract: Any,
    config: DataConfig,
    dataset: Dataset,
    mesh: Mesh,
) -> Any:
    """Compute something of all training examples, and put it on every device.

    Args:
      apply: Function of a batch, traced, whose outputs are kept.
      weights: Parameters and other state that it takes.
      abstract: Outputs for all examples, (examples, ...) each, with where they lie.
      config: Section of the data.
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
