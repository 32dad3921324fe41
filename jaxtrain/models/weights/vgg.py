"""VGG: what are dense layers in torchvision are convolutions in timm."""

from typing import Any

from jaxtrain.models.vgg import POOLED, VGG
from jaxtrain.models.weights.names import (
    POINTWISE,
    ArrayNames,
    after_flatten,
    convolution,
)

# Pixels up to which timm's VGGs compute what torchvision's and ours do: of more, their
# last layer has more than 7 rows, over which they convolve where we pool.
TIMM_SIZE = 255


def torchvision(model: type[VGG]) -> ArrayNames:
    """Return torchvision's names; it counts ReLUs and pools among the layers."""
    return ArrayNames(
        layers=_features(model)
        | {
            r"dense1/linear": "classifier.0",
            r"dense2/linear": "classifier.3",
            r"head/linear": "classifier.6",
        },
        first_conv="features.0",
        classifier="classifier.6",
        layouts={r"dense1/linear/kernel": after_flatten(POOLED, POOLED)},
    )


def timm(model: type[VGG]) -> ArrayNames:
    """Return timm's names.

    It computes the same up to images of `TIMM_SIZE` pixels.
    """
    return ArrayNames(
        layers=_features(model)
        | {
            r"dense(\d)/linear": "pre_logits.fc{0}",
            r"head/linear": "head.fc",
        },
        first_conv="features.0",
        classifier="head.fc",
        layouts={
            r"dense1/linear/kernel": convolution(POOLED, POOLED),
            r"dense2/linear/kernel": POINTWISE,
        },
    )


def _features(model: type[VGG]) -> dict[str, Any]:
    names, number, last_stage = {}, 0, 1
    for stage, index in model.block_numbers():
        if stage > last_stage:
            number, last_stage = number + 1, stage
        names[f"stage{stage}_conv{index}"] = f"features.{number}"
        if model.batch_norm:
            number += 1
            names[f"stage{stage}_norm{index}"] = f"features.{number}"
        number += 2
    return names
