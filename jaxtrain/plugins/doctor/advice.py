"""Proposed config for a new data set, with a reason for each value.

Heuristics from common practice: images are not upscaled, model and batch size grow with
the data set, and training takes a few thousand steps.
"""

import math
from typing import Any

import numpy as np

from jaxtrain import own, tasks
from jaxtrain.config import DataConfig
from jaxtrain.config.schedule import CosineSchedule
from jaxtrain.data.conversions import MUCH, cut_away
from jaxtrain.errors import UserError
from jaxtrain.models import CLASSIFIERS
from jaxtrain.plugins.doctor.image_sizes import (
    LARGEST_SIZE,
    SMALL_SIZE,
    StartWeights,
    image_size,
    sizes,
)
from jaxtrain.plugins.doctor.survey import Survey, suitable_task
from jaxtrain.tasks.proposals import Advice, Proposable
from jaxtrain.weights import load

# Default backbone of models that have one.
DEFAULT_BACKBONE = "resnet18"
LARGE_SET = 100_000
# For sounds: maximum sample rate in Hz, maximum clip length in seconds, and minimum
# number of sounds for a large network.
SPEECH_RATE, LONGEST, FEW_SOUNDS = 16_000, 10.0, 10_000
SPEC_AUGMENT: dict[str, tuple[Any, str]] = {
    "time_masks": (2, "SpecAugment: masked intervals of time"),
    "frequency_masks": (2, "SpecAugment: masked bands of frequency"),
}
STEPS_PER_EPOCH, TOTAL_STEPS, EPOCHS = 20, 4000, (20, 100)
BATCH_SIZES, LARGEST_BATCH = (8, 16, 32, 64, 128, 256), 128
FINE_TUNE_STEPS, FINE_TUNE_EPOCHS = 500, (10, 30)
FEWEST_EXAMPLES, FEW_EXAMPLES = 10, 1000
# Proposed range of the crop area (`augment.crop_scale`), as a fraction of the image.
SMALLEST_WINDOW = (0.35, 1.0)


def find_weights(pretrained: str) -> StartWeights:
    """Return the model name, image size and channels of pretrained weights.

    Raises:
      UntrustedError: The weights belong to a custom model that is not trusted.
      UserError: The weights are missing or unsupported.
    """
    about = load(pretrained).about
    # The recipe will import a custom model's code, which the user must trust.
    own.check_allowed("model.name", about.model.name)
    height, _, channels = about.image_shape
    return StartWeights(pretrained, about.model.name, height, channels)


def advise(
    found: Survey, data: DataConfig, weights: StartWeights | None = None
) -> Advice:
    """Propose the values of a recipe: section -> field -> (value, reason).

    Args:
      found: Survey of the data set.
      data: `data` section with the source, and the fields needed to open it.
      weights: Weights to fine-tune; None trains from scratch.

    Raises:
      UserError: There are too few images.
    """
    num_train = found.counts["train"]
    task = tasks.kind(suitable_task(found, data))
    assert isinstance(task, Proposable)
    proposed = task.advice(found.class_counts)
    crop_mode = _letterbox(found, proposed)
    size = weights.size if weights else image_size(found, num_train, bool(crop_mode))
    if found.hears:
        size = SMALL_SIZE if num_train < FEW_SOUNDS else LARGEST_SIZE
    size = -(-size // task.size_multiple) * task.size_multiple
    held_out = _held_out(found, num_train)
    for fraction, _ in held_out.values():
        num_train -= math.ceil(fraction * num_train)
    largest = BATCH_SIZES[-1] if size <= SMALL_SIZE else LARGEST_BATCH
    fitting = [b for b in BATCH_SIZES if b <= min(largest, num_train / STEPS_PER_EPOCH)]
    batch_size = max(fitting, default=min(BATCH_SIZES[0], num_train))
    steps_per_epoch = num_train // batch_size
    outside = "links, or paths in a table, may point outside the directory"
    given = {
        "source": (data.source, ""),
        "data_dir": (data.data_dir, ""),
        "allow_outside": (data.allow_outside or None, outside),
        "white_level": (
            found.white_level,
            f"the sampled 16-bit values reach {found.white_level} at most",
        ),
        "targets": (data.targets or None, "one column per target"),
        "classes": (data.classes, "file of the mask classes"),
        "label_separator": (
            data.label_separator,
            f"separates the labels of one {found.noun}",
        ),
    }
    same = "set True if mirrored images have the same targets"
    augment = {"horizontal_flip": (False, same)}
    if found.hears:
        augment = SPEC_AUGMENT
    elif not task.whole_images:
        augment = _augmentation(found, size, bool(crop_mode))
    advice: Advice = {
        "data": {
            **{field: one for field, one in given.items() if one[0] is not None},
            **held_out,
            **({} if found.hears else sizes(found, size, weights)),
            **crop_mode,
            "batch_size": (batch_size, f"{steps_per_epoch:,} steps per epoch"),
        },
        **(_sound_section(found) if found.hears else {}),
        "augment": augment,
        **(_fine_tuning(weights, batch_size) if weights else {}),
        **({} if weights else _from_scratch(num_train, size, batch_size)),
        "train": _length(steps_per_epoch, fine_tune=weights is not None),
    }
    for section, fields in proposed.items():
        if section == "model":
            fields = _model_section(fields, advice["model"], weights)
        advice.setdefault(section, {}).update(fields)
    return advice


def _model_section(
    fields: dict[str, tuple[Any, str]],
    classifier: dict[str, tuple[Any, str]],
    weights: StartWeights | None,
) -> dict[str, tuple[Any, str]]:
    """Return the model fields that a task proposes, completed with a stem or backbone.

    Args:
      fields: Model fields proposed by the task.
      classifier: Model fields of the classifier. `dropout` and `stem` are removed in
        place if `fields` has a backbone.
      weights: Pretrained weights of the backbone, if any.
    """
    if "name" not in fields:
        return fields
    if "backbone" not in fields:
        return {**_backbone(classifier["name"][0]), **fields}
    for option in ("dropout", "stem"):
        classifier.pop(option, None)
    if weights is None:
        return fields
    return {**fields, "backbone": (weights.model, "the model of the weights")}


def _backbone(model: str) -> dict[str, tuple[str, str]]:
    """Propose the stem or backbone of a task's model, given the classifier's name."""
    if model == "convnet":
        return {"stem": ("cifar", "keeps the resolution of small images")}
    if model not in CLASSIFIERS or model == DEFAULT_BACKBONE:
        return {}
    return {"backbone": (model, "the classifier that extracts features")}


def _held_out(found: Survey, num_train: int) -> dict[str, tuple[float, str]]:
    if num_train < FEWEST_EXAMPLES:
        raise UserError(
            f"{num_train} training images are too few to hold out a validation and a "
            f"test split: provide {FEWEST_EXAMPLES} or more"
        )
    fraction = 0.2 if num_train < FEW_EXAMPLES else 0.1
    part = f"{fraction:.0%} of the training images, stratified by class"
    return {
        f"{split}_fraction": (fraction, f"there is no {split} split: {part}")
        for split in ("test", "validation")
        if split not in found.counts
    }


def _letterbox(found: Survey, proposed: Advice) -> dict[str, tuple[str, str]]:
    """Propose letterboxing if centre crops would discard large parts of images.

    Return {} if they do not, or if the task proposes a crop mode, as detection does.
    """
    if found.hears or "crop_mode" in proposed.get("data", {}):
        return {}
    fraction = cut_away(found.sizes)
    if fraction <= MUCH:
        return {}
    reason = f"{fraction:.0%} of the area is outside the central square crop"
    return {"crop_mode": ("border", reason)}


def _sound_section(found: Survey) -> Advice:
    """Propose `data.sound`; the clip length is the 90th percentile of sound lengths."""
    rates, counts = np.unique(found.sizes[:, 0], return_counts=True)
    usual = int(rates[counts.argmax()])
    rate = min(usual, SPEECH_RATE)
    told = f"most sounds have {usual:,} Hz"
    told += "" if rate == usual else "; enough for speech"
    long = float(np.quantile(found.seconds, 0.9))
    seconds = min(max(math.ceil(10 * long - 1e-6) / 10, 0.1), LONGEST)
    # For speech, windows of 25 ms (here the next power of two) every 10 ms are usual.
    window = 2 ** math.ceil(math.log2(0.025 * rate))
    return {
        "sound": {
            "sample_rate": (rate, told),
            "seconds": (seconds, f"90 % of the sounds last {long:.2f} s at most"),
            "window": (window, f"{1000 * window / rate:.0f} ms"),
            "hop": (max(1, rate // 100), "10 ms"),
            "mels": (min(64, window // 4), "bands of the mel scale"),
        }
    }


def _augmentation(
    found: Survey, size: int, letterboxed: bool
) -> dict[str, tuple[Any, str]]:
    # Do not combine letterboxing with random resized crops, which distort wide images.
    small = size <= SMALL_SIZE or letterboxed
    advice: dict[str, tuple[Any, str]] = {}
    if small:
        padding = max(1, size // 8)
        advice["crop_padding"] = padding, f"shifts by up to {padding} pixels"
    else:
        reason = "a different crop of the image in every epoch"
        advice["random_resized_crop"] = True, reason
    if not small and found.counts["train"] < LARGE_SET:
        reason = "smaller crops, usual for large data sets, may miss the object"
        advice["crop_scale"] = SMALLEST_WINDOW, reason
    same = "a mirrored photograph keeps its class"
    letters = "set True if mirrored images keep their class, unlike letters"
    flip = found.colour and size > SMALL_SIZE
    return {**advice, "horizontal_flip": (flip, same if flip else letters)}


def _fine_tuning(weights: StartWeights, batch_size: int) -> Advice:
    """Propose fine-tuning with AdamW.

    The learning rate is fastai's 2e-3 at batch size 64, and proportional to the square
    root of the batch size.
    """
    rate = float(f"{2e-3 * math.sqrt(batch_size / 64):.1g}")
    return {
        "model": {
            "name": (weights.model, "the model of the weights"),
            "pretrained": (weights.pretrained, ""),
        },
        "optimizer": {
            "name": ("adamw", "robust to the choice of the learning rate"),
            "learning_rate": (rate, "for the last layer; lower for earlier layers"),
            "weight_decay": (0.01, "excludes biases and normalisation layers"),
        },
    }


def _from_scratch(num_train: int, size: int, batch_size: int) -> Advice:
    rate = float(f"{2e-3 * math.sqrt(batch_size / 256):.1g}")
    if size <= SMALL_SIZE:
        model = {
            "name": ("convnet", "small images, or few sounds, need a small network"),
            "dropout": (0.2, "against overfitting"),
        }
    elif num_train >= LARGE_SET:
        model = {"name": ("resnet50", "enough images for a large model")}
    else:
        reason = "suits up to 100,000 images; resnet50 suits more"
        model = {"name": ("resnet18", reason)}
    return {
        "model": model,
        "optimizer": {
            "name": ("adamw", "robust to the choice of the learning rate"),
            "learning_rate": (rate, "scaled by the square root of the batch size"),
            "weight_decay": (0.05, "excludes biases and normalisation layers"),
            "schedule": (CosineSchedule(), "decays to 0 at the end"),
            "warmup_fraction": (0.05, "the learning rate first rises from 0"),
        },
    }


def _length(steps_per_epoch: int, *, fine_tune: bool) -> dict[str, tuple[Any, str]]:
    low, high = FINE_TUNE_EPOCHS if fine_tune else EPOCHS
    steps = FINE_TUNE_STEPS if fine_tune else TOTAL_STEPS
    epochs = min(high, max(low, math.ceil(steps / steps_per_epoch)))
    told = f"about {steps_per_epoch * epochs:,} steps"
    advice: dict[str, tuple[Any, str]] = {"epochs": (epochs, told)}
    if fine_tune:
        advice["fine_tune"] = (
            True,
            "trains only the new last layer for one epoch, then all layers",
        )
    return advice
