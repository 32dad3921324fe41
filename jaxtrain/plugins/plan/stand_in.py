"""Synthetic images in place of TFDS data sets that are not prepared."""

import dataclasses
from typing import Any

from jaxtrain.config import DataConfig
from jaxtrain.data.canvas import canvas_shape
from jaxtrain.data.tfds import data_folder, find
from jaxtrain.errors import UserError

# Number of synthetic examples, larger than any batch: the length of the real data set
# is unknown before preparation.
NUM_EXAMPLES = 2**20


def stand_in(config: DataConfig) -> DataConfig:
    """Replace an unprepared TFDS data set by synthetic images of the same shape.

    Synthetic images are streamed. Other sources are unchanged.

    Raises:
      UserError: The data set or its shape is unknown.
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
    # The builder runs code of the data set, which may need libraries that are missing.
    except Exception as error:
        raise UserError(
            f"data.source = {config.source!r} is not prepared, so the shape and the "
            f"classes are unknown ({error}): prepare the data set, or give "
            "--data.source synthetic:HxWxC/CLASSES with the splits train and test"
        ) from error
    size, windows = config.image_size, config.augment.random_resized_crop
    if height is None and size is not None and windows:
        # Images of different sizes are padded to a canvas of this shape.
        sizes = config.training_sizes or (size,)
        height, width, _ = canvas_shape(sizes[-1], channels)
    elif size is not None and not windows:
        height = width = size
    if height is None:
        raise UserError(
            f"data.source = {config.source!r}: the images differ in size; set "
            "data.image_size"
        )
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
