"""A recipe for a data set that nobody has trained on yet: values, and why.

The rules are ours, from what is usual: images no larger than they are, a model and a
batch that grow with the set, a few thousand steps.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtrain import own
from jaxtrain.config import DataConfig
from jaxtrain.data.survey import Survey
from jaxtrain.errors import UserError
from jaxtrain.inference import load

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
FINE_TUNE_STEPS, FINE_TUNE_EPOCHS = 500, (10, 30)
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


@dataclass(frozen=True)
class StartWeights:
    """Trained weights that a recipe begins with.

    Attributes:
      pretrained: `model.pretrained`.
      model: `model.name`.
      size: Height and width of the images that they were trained for.
      channels: Of these.
    """

    pretrained: str
    model: str
    size: int
    channels: int


def find_weights(pretrained: str) -> StartWeights:
    """Return what weights are of.

    Raises:
      UntrustedError: they are of a model of the user's own, which was not allowed.
      UserError: there are none that this version reads.
    """
    about = load.find(pretrained).about
    # The recipe will name it, and what a recipe names is loaded.
    own.check_allowed("model.name", about.model.name)
    height, _, channels = about.image_shape
    return StartWeights(pretrained, about.model.name, height, channels)


def advise(
    found: Survey, data: DataConfig, weights: StartWeights | None = None
) -> list[Advice]:
    """Return the fields of a recipe, in the order of its sections.

    Args:
      found: what the data are like.
      data: Their source, and what it needs to be opened.
      weights: to fine-tune; None: the model is trained from scratch.

    Raises:
      UserError: there are too few images.
    """
    num_train = found.counts["train"]
    size = weights.size if weights else _image_size(found, num_train)
    held_out = _splits(found, num_train)
    for one in held_out:
        num_train -= math.ceil(one.value * num_train)
    batch_size = _batch_size(num_train, size)
    steps_per_epoch = num_train // batch_size
    advice = [Advice("data", "source", data.source, "")]
    if data.data_dir is not None:
        advice.append(Advice("data", "data_dir", data.data_dir, ""))
    if data.allow_outside:
        reason = "links, or paths of a table, may lead out of its folder"
        advice.append(Advice("data", "allow_outside", True, reason))
    return [
        *advice,
        *held_out,
        *(_images_of(weights) if weights else _images(found, size)),
        *_batches(found, batch_size, num_train),
        *_augmentation(found, size),
        *(_fine_tuning(weights, batch_size) if weights else _model(num_train, size)),
        *([] if weights else _optimizer(batch_size)),
        *_length(found, steps_per_epoch, fine_tune=weights is not None),
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


def _images_of(weights: StartWeights) -> list[Advice]:
    reason = "as the weights know them; smaller ones take less time"
    channels = "grey images are made colour" if weights.channels == 3 else ""
    return [
        Advice("data", "image_size", weights.size, reason),
        Advice("data", "channels", weights.channels, channels),
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


def _epochs(steps_per_epoch: int, *, fine_tune: bool) -> int:
    low, high = FINE_TUNE_EPOCHS if fine_tune else EPOCHS
    steps = FINE_TUNE_STEPS if fine_tune else TOTAL_STEPS
    return min(high, max(low, math.ceil(steps / steps_per_epoch)))


def _fine_tuning(weights: StartWeights, batch_size: int) -> list[Advice]:
    """Return the model and the optimizer of fastai's `fine_tune`, 2e-3 for 64."""
    rate = float(f"{2e-3 * math.sqrt(batch_size / 64):.1g}")
    return [
        Advice("model", "name", weights.model, "the model of the weights"),
        Advice("model", "pretrained", weights.pretrained, ""),
        Advice("optimizer", "name", "adamw", "forgiving"),
        Advice("optimizer", "learning_rate", rate, "of the last layer; earlier: less"),
        Advice("optimizer", "weight_decay", 0.01, "not of biases and norms"),
    ]


def _optimizer(batch_size: int) -> list[Advice]:
    rate = float(f"{2e-3 * math.sqrt(batch_size / 256):.1g}")
    return [
        Advice("optimizer", "name", "adamw", "forgiving from scratch"),
        Advice("optimizer", "learning_rate", rate, "grows with the root of the batch"),
        Advice("optimizer", "weight_decay", 0.05, "not of biases and norms"),
        Advice("optimizer", "schedule", "cosine", "down to 0 at the end"),
        Advice("optimizer", "warmup_fraction", 0.05, "first steps small"),
    ]


def _length(found: Survey, steps_per_epoch: int, *, fine_tune: bool) -> list[Advice]:
    epochs = _epochs(steps_per_epoch, fine_tune=fine_tune)
    told = f"about {steps_per_epoch * epochs:,} steps"
    advice = [Advice("train", "epochs", epochs, told)]
    if fine_tune:
        reason = "the new last layer alone for an epoch, then all layers"
        advice.append(Advice("train", "fine_tune", True, reason))
    if len(found.class_counts) >= MANY_CLASSES:
        reason = "many classes: against being too sure"
        advice.append(Advice("train", "label_smoothing", 0.1, reason))
    if _unbalanced(found):
        reason = "the mean over the classes, however many images they have"
        best = Advice("checkpoint", "best_metric", "balanced_accuracy", reason)
        advice.append(best)
    return advice
