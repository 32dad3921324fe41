"""A recipe for a data set that nobody has trained on yet: values, and why.

The rules are ours, from what is usual: images no larger than they are, a model and a
batch that grow with the set, a few thousand steps.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtrain.data.survey import Survey
from jaxtrain.errors import UserError

SIZES = (32, 48, 64, 96, 128, 160, 192, 224)
# Up to this size images are small: a small network, shifts of a few pixels.
SMALL_SIZE = 48
# Smaller ones are enlarged to this: the networks halve them a few times.
SMALLEST_SIZE = 8
# Sets up to so many images are trained on images of at most this size.
SIZE_LIMITS = ((10_000, 128), (100_000, 160))
LARGEST_SIZE = 224
LARGE_SET = 100_000
STEPS_PER_EPOCH = 20
BATCH_SIZES = (8, 16, 32, 64, 128, 256)
LARGEST_BATCH = 128
TOTAL_STEPS = 4000
EPOCHS = (20, 100)
# Larger than the smallest class by this factor, the largest one would rule.
UNBALANCED = 3
FEWEST_EXAMPLES, FEW_EXAMPLES = 10, 1000
MANY_CLASSES = 10
# Of the area of an image, the least and the most.
SMALLEST_WINDOW = (0.35, 1.0)


@dataclass(frozen=True)
class Advice:
    """The value of a field of the config, and why it is what it is."""

    section: str
    field: str
    value: Any
    reason: str


def advise(found: Survey, source: str, data_dir: str | None) -> list[Advice]:
    """Return the fields of a recipe, in the order of its sections.

    Args:
      found: what the data are like.
      source: `data.source`.
      data_dir: `data.data_dir`.

    Raises:
      UserError: there are too few images.
    """
    num_train = found.counts["train"]
    size = _image_size(found, num_train)
    held_out = _splits(found, num_train)
    for one in held_out:
        num_train -= math.ceil(one.value * num_train)
    batch_size = _batch_size(num_train, size)
    epochs = _epochs(num_train // batch_size)
    advice = [Advice("data", "source", source, "")]
    if data_dir is not None:
        advice.append(Advice("data", "data_dir", data_dir, ""))
    return [
        *advice,
        *held_out,
        *_images(found, size),
        *_batches(found, batch_size, num_train),
        *_augmentation(found, size),
        *_model(num_train, size),
        *_optimizer(batch_size, epochs),
        *_length(found, num_train, batch_size, epochs),
    ]


def _splits(found: Survey, num_train: int) -> list[Advice]:
    if num_train < FEWEST_EXAMPLES:
        raise UserError(
            f"{num_train} training images are too few to learn from, and to hold some "
            f"out for evaluations: give {FEWEST_EXAMPLES} or more"
        )
    fraction = 0.2 if num_train < FEW_EXAMPLES else 0.1
    part = f"{fraction:.0%} of the training images, every class in proportion"
    advice = []
    if "test" not in found.counts:
        reason = f"there is no test split: {part}"
        advice.append(Advice("data", "test_fraction", fraction, reason))
    if "validation" not in found.counts:
        reason = f"there is no validation split: {part}"
        advice.append(Advice("data", "validation_fraction", fraction, reason))
    return advice


def _image_size(found: Survey, num_train: int) -> int:
    shorter = int(np.median(found.sizes.min(axis=1)))
    if shorter <= SMALL_SIZE:
        return max(shorter, SMALLEST_SIZE)
    limits = [limit for number, limit in SIZE_LIMITS if num_train <= number]
    largest = min([LARGEST_SIZE, *limits])
    return max(size for size in SIZES if size <= min(shorter, largest))


def _images(found: Survey, size: int) -> list[Advice]:
    low, high = found.sizes.min(axis=0), found.sizes.max(axis=0)
    shapes = f"{low[1]}x{low[0]}"
    if (low != high).any():
        shapes += f" to {high[1]}x{high[0]}"
    reason = f"the images have {shapes} pixels"
    if size > SMALL_SIZE:
        reason += "; larger costs more time, and pays with many images"
    channels = 3 if found.colour else 1
    shown = "some show colours" if found.colour else "all images looked at are grey"
    return [
        Advice("data", "image_size", size, reason),
        Advice("data", "channels", channels, shown),
    ]


def _batch_size(num_train: int, size: int) -> int:
    largest = BATCH_SIZES[-1] if size <= SMALL_SIZE else LARGEST_BATCH
    fitting = [b for b in BATCH_SIZES if b <= min(largest, num_train / STEPS_PER_EPOCH)]
    return max(fitting, default=min(BATCH_SIZES[0], num_train))


def _batches(found: Survey, batch_size: int, num_train: int) -> list[Advice]:
    reason = f"{num_train // batch_size:,} steps an epoch"
    advice = [Advice("data", "batch_size", batch_size, reason)]
    if _unbalanced(found):
        few, many = found.class_counts.min(), found.class_counts.max()
        reason = f"as many of each class: they have {few:,} to {many:,} images"
        advice.append(Advice("data", "sampling", "balanced", reason))
    return advice


def _unbalanced(found: Survey) -> bool:
    counts = found.class_counts
    return len(counts) > 1 and counts.max() >= UNBALANCED * counts.min()


def _augmentation(found: Survey, size: int) -> list[Advice]:
    flip = found.colour and size > SMALL_SIZE
    mirrored = (
        "a mirrored photograph shows the same"
        if flip
        else ("True, if a mirrored image is still of its class; letters are not")
    )
    if size <= SMALL_SIZE:
        padding = max(1, size // 8)
        reason = f"shifts by up to {padding} pixels"
        moved = [Advice("augment", "crop_padding", padding, reason)]
    else:
        reason = "another window of the image in every epoch"
        moved = [Advice("augment", "random_resized_crop", True, reason)]
        if found.counts["train"] < LARGE_SET:
            reason = "smaller windows, usual for large sets, may miss what it shows"
            moved.append(Advice("augment", "crop_scale", SMALLEST_WINDOW, reason))
    return [*moved, Advice("augment", "horizontal_flip", flip, mirrored)]


def _model(num_train: int, size: int) -> list[Advice]:
    if size <= SMALL_SIZE:
        return [
            Advice("model", "name", "convnet", "small images need a small network"),
            Advice("model", "dropout", 0.2, "against learning by heart"),
        ]
    if num_train >= LARGE_SET:
        return [Advice("model", "name", "resnet50", "enough images for a large one")]
    reason = "a good start up to 100,000 images; resnet50 for more"
    return [Advice("model", "name", "resnet18", reason)]


def _epochs(steps_per_epoch: int) -> int:
    low, high = EPOCHS
    return min(high, max(low, math.ceil(TOTAL_STEPS / steps_per_epoch)))


def _optimizer(batch_size: int, epochs: int) -> list[Advice]:
    rate = float(f"{2e-3 * math.sqrt(batch_size / 256):.1g}")
    return [
        Advice("optimizer", "name", "adamw", "forgiving from scratch"),
        Advice("optimizer", "learning_rate", rate, "grows with the root of the batch"),
        Advice("optimizer", "weight_decay", 0.05, "not of biases and norms"),
        Advice("optimizer", "schedule", "cosine", "down to 0 at the end"),
        Advice("optimizer", "warmup_epochs", max(1, epochs // 20), "first steps small"),
    ]


def _length(
    found: Survey, num_train: int, batch_size: int, epochs: int
) -> list[Advice]:
    steps = num_train // batch_size * epochs
    advice = [Advice("train", "epochs", epochs, f"about {steps:,} steps")]
    if len(found.class_counts) >= MANY_CLASSES:
        reason = "many classes: against being too sure"
        advice.append(Advice("train", "label_smoothing", 0.1, reason))
    if _unbalanced(found):
        reason = "the mean over the classes, however many images they have"
        best = Advice("checkpoint", "best_metric", "balanced_accuracy", reason)
        advice.append(best)
    return advice
