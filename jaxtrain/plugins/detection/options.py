"""Options of the detection task."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from jaxtrain.config.base import row_of
from jaxtrain.config.metadata import field
from jaxtrain.config.model import ModelConfig
from jaxtrain.config.models import (
    DROP_PATH,
    NORM_EPSILON,
    PADDING,
    STEM,
    WIDTH,
    Padding,
    Stem,
)
from jaxtrain.config.part import Part

# Maximum distance that a level predicts, in units of its stride (FCOS, section 3.2).
REACH = 8.0


@dataclass(frozen=True, kw_only=True)
class DetectionConfig(Part):
    """Object detection: boxes with classes."""

    name: str = field("detection", init=False)
    strides: tuple[int, ...] = field(
        (8, 16, 32),
        help="Strides of the feature levels in image pixels, increasing; image height "
        "and width must be multiples of the last stride.",
    )
    score_threshold: float = field(
        0.05,
        help="Minimum score of a detection.",
    )
    nms_threshold: float = field(
        0.6,
        help="IoU above which NMS removes the lower-scoring of two boxes of a class.",
    )
    keep: int = field(
        100,
        help="Maximum number of detections per image.",
    )
    category_ids: tuple[int, ...] | None = field(
        None,
        help="COCO category id of each class; None uses the ids in the data set.",
    )

    def validate(self) -> None:
        rising = all(a < b for a, b in pairwise((0, *self.strides)))
        self._check(
            "strides", bool(self.strides) and rising, "increasing values above 0"
        )
        self._positive("keep")
        for name in ("score_threshold", "nms_threshold"):
            self._check(name, 0 <= getattr(self, name) < 1, "0 or more, below 1")

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        """Range per level of the distance to the farthest side of a box, in pixels."""
        ends = (0.0, *(REACH * stride for stride in self.strides[:-1]), float("inf"))
        return tuple(pairwise(ends))


@dataclass(frozen=True, kw_only=True)
class FCOSConfig(ModelConfig):
    """FCOS: anchor-free detection on a feature pyramid (Tian et al. 2019)."""

    name: str = field("fcos", init=False)
    backbone: Annotated[str | None, row_of("jaxtrain.models:CLASSIFIERS")] = field(
        None, help="Name of the classifier used as backbone; None: resnet18."
    )
    pyramid_channels: int | None = field(
        None, help="Number of channels of each level of the feature pyramid."
    )
    head_layers: int | None = field(
        None,
        help="Number of convolutions of each head before the output convolution.",
    )
    width: float | None = field(None, help=WIDTH)
    stem: Stem | None = field(None, help=STEM)
    drop_path: float | None = field(
        None, help=DROP_PATH, other_names="drop_path", in_training=True
    )
    norm_epsilon: float | None = field(None, help=NORM_EPSILON)
    padding: Padding | None = field(None, help=PADDING)

    def validate(self) -> None:
        super().validate()
        self._positive("width", "pyramid_channels", "head_layers", "norm_epsilon")
        self._fraction("drop_path")
