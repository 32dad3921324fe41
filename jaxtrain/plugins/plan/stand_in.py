"""Generated images in the place of TFDS data sets that are not prepared."""

import dataclasses
from typing import Any

from jaxtrain.config import DataConfig
from jaxtrain.data.canvas import canvas_shape
from jaxtrain.data.tfds import data_folder, find
from jaxtrain.errors import UserError

# Generated for a set that is not prepared: more than any batch has. How many there are
# is known only once it is prepared.
NUM_EXAMPLES = 2**20


def stand_in(config: DataConfig) -> DataConfig:
    """Replace a TFDS set that is not prepared by generated images of the same shape.

    They are streamed. Other sources are returned as they are.

    Raises:
      UserError: the set is not known, or does not tell its shape.
    """
    kind, _, name = config.source.partition(":")
    if kind != "tfds" or find(name, config.data_dir) is not None:
        return config
    try:
        import tensorflow_datasets

        folder = data_folder(config.data_dir)
        builder = tensorflow_datasets.builder(name, data_dir=folder, try_gcs=False)
        features: Any = builder.info.features
        height, width, channels = features["image"].shape
        num_classes = features["label"].num_classes
    # The set's own code runs here, and may want libraries that are not installed.
    except Exception as error:
        raise UserError(
            f"data.source = {config.source!r} is not prepared, and does not tell its "
            f"shape and classes ({error}): prepare it, or give --data.source "
            "synthetic:HxWxC/CLASSES and its splits, train and test"
        ) from error
    size, windows = config.image_size, config.augment.random_resized_crop
    if height is None and size is not None and windows:
        # As large as the canvases on which such images come to the step.
        sizes = config.training_sizes or (size,)
        height, width, _ = canvas_shape(sizes[-1], channels)
    elif size is not None and not windows:
        height = width = size
    if height is None:
        raise UserError(f"{config.source}: images differ in size; set data.image_size")
    return dataclasses.replace(
        config,
        source=f"synthetic:{height}x{width}x{config.channels or channels}/"
        f"{num_classes}/{NUM_EXAMPLES}",
        data_dir=None,
        train_split="train",
        validation_split=None,
        validation_fraction=0.1,
        test_split="test",
        allow_overlap=False,
        cache="stream",
    )
