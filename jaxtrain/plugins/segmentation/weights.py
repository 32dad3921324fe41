"""Torchvision weights of the segmentation models."""

from typing import Any

from jaxtrain.plugins.segmentation import map_families, voc
from jaxtrain.weights.names import ArrayNames
from jaxtrain.weights.sources import Sources, WeightsSource


def _maps(name: str, names: ArrayNames) -> Sources:
    """Weights of a torchvision model, with torchvision's evaluation image size."""
    facts: dict[str, Any] = {"task": "segmentation", "labels": voc.LABELS}
    facts |= {"image_size": 520, "crop_pct": 1.0}
    return (WeightsSource("torchvision", name, names, **facts),)


DEEPLAB_V3_RESNET50 = _maps("deeplabv3_resnet50", map_families.DEEPLAB_V3)
DEEPLAB_V3_RESNET101 = _maps("deeplabv3_resnet101", map_families.DEEPLAB_V3)
FCN_RESNET50 = _maps("fcn_resnet50", map_families.FCN)
FCN_RESNET101 = _maps("fcn_resnet101", map_families.FCN)
