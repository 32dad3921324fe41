"""The detection task: boxes and classes of objects."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.config.part import typed_options
from jaxtrain.data.augment.geometry import Geometry
from jaxtrain.data.boxes import CATEGORY_IDS, NAMES, NUM_BOXES
from jaxtrain.data.target_changes import Mosaic
from jaxtrain.errors import UserError
from jaxtrain.plugins.detection import box_metrics, fcos
from jaxtrain.plugins.detection.box_geometry import mosaic_boxes, transform_boxes
from jaxtrain.plugins.detection.box_places import Places, make_places
from jaxtrain.plugins.detection.decoder import BoxDecoder
from jaxtrain.plugins.detection.found_boxes import Finder
from jaxtrain.plugins.detection.options import DetectionConfig
from jaxtrain.tasks.base import Task
from jaxtrain.tasks.decoder import OutputDecoder, OutputFacts
from jaxtrain.tasks.metrics import Metric
from jaxtrain.tasks.pictures import outlines
from jaxtrain.tasks.proposals import Advice

# Maximum number of boxes in the label text of an example.
MAX_NAMED = 12
# NMS receives the `max(CANDIDATES, keep)` top-scoring boxes of each image.
CANDIDATES = 300


class Detection(Task):
    """Object detection; targets are boxes with classes (see `BoxFileStore`).

    Outputs are one dict per pyramid level; see `jaxtrain.plugins.detection.fcos`.

    Args:
      image_shape: Height, width and channels of the images.
      facts: Metadata of the data set, with the class names.
      **given: Fields of `DetectionConfig`.

    Raises:
      UserError: The data have no boxes, or the image size is not a multiple of the
        largest stride.
    """

    Options = DetectionConfig
    classes_fact = NAMES
    target_changes = (Geometry, Mosaic)
    whole_images = True
    size_multiple = DetectionConfig.strides[-1]
    known_metrics = box_metrics.metrics(lambda outputs, target: {})
    best_metric = "map"
    shown = ("map", "map50")
    refused: Mapping[str, str] = {
        "data.augment.mixup": "the objects of mixed images would be half transparent",
        "data.augment.cutmix": "the pasted patch hides boxes, or parts of them",
        "data.sampling": "an image has boxes of several classes, but no class label",
    }

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        facts: Mapping[str, Any],
        **given: Any,
    ):
        self._options = options = DetectionConfig(**given)
        if NAMES not in facts or NUM_BOXES not in facts:
            raise UserError(
                "task = 'detection': the data set has no boxes; use a coco: or yolo: "
                "source (docs/detection.md)"
            )
        self.column_names = tuple(facts[NAMES])
        if options.category_ids is None:
            ids = facts.get(CATEGORY_IDS, range(len(self.column_names)))
            self.inferred = {"category_ids": ",".join(map(str, ids))}
        _check_strides(options.strides, image_shape)
        self.output_spec = output_spec(
            image_shape, options.strides, len(self.column_names)
        )
        self._finder = make_finder(options, self.column_names, image_shape)

    def check_targets(self, targets: Any, split: str) -> None:
        wanted = {"boxes", "classes", "crowd", "size"}
        if not (isinstance(targets, dict) and targets.keys() == wanted):
            raise UserError(
                f"{split} has targets that are not boxes: expected arrays "
                f"{', '.join(sorted(wanted))}, as in jaxtrain.data.boxes"
            )

    def label(self, target: Any) -> str:
        return self._label_text(np.asarray(target["classes"]))

    def transform_target(self, target: Any, change: Geometry | Mosaic) -> Any:
        if isinstance(change, Mosaic):
            return mosaic_boxes(target, change.tiles)
        return transform_boxes(target, change)

    def loss(self, outputs: Any, target: Any, *, training: bool) -> jax.Array:
        del training
        parts = self._losses(outputs, target)
        return parts["classes"] + parts["boxes"] + parts["centerness"]

    def train_metrics(self, outputs: Any, target: Any) -> dict[str, jax.Array]:
        return {
            f"{name}_loss": jnp.mean(x).astype(jnp.float32)
            for name, x in self._losses(outputs, target).items()
        }

    def metrics(self) -> Mapping[str, Metric]:
        return box_metrics.metrics(self._keep)

    @classmethod
    def suits(cls, facts: Mapping[str, Any], groups: np.ndarray) -> bool:
        return NUM_BOXES in facts

    @classmethod
    def advice(cls, class_counts: np.ndarray) -> Advice:
        del class_counts
        letterbox_reason = "pads the full image: cropped objects cannot be detected"
        flip_reason = "boxes are flipped too; False if classes differ by left and right"
        return {
            "data": {"crop_mode": ("border", letterbox_reason)},
            "augment": {"horizontal_flip": (True, flip_reason)},
            "model": {
                "name": ("fcos", "anchor-free detector"),
                "backbone": ("resnet18", "a good start; resnet50 for larger data sets"),
                "pyramid_channels": (128, "the paper uses 256, for 80 classes"),
                "head_layers": (2, "the paper uses 4"),
            },
            "checkpoint": {"best_metric": (cls.best_metric, "COCO's main metric")},
        }

    @classmethod
    def decoder(cls, facts: OutputFacts) -> OutputDecoder:
        chosen = typed_options(DetectionConfig, facts.options, "detection")
        names = tuple(facts.column_names or ())
        return BoxDecoder(facts, make_finder(chosen, names, facts.image_shape))

    def draw_target(self, image: np.ndarray, target: Any) -> np.ndarray:
        true = np.asarray(target["classes"]) >= 0
        return outlines(image, np.asarray(target["boxes"])[true])

    def _losses(self, outputs: Any, target: Any) -> dict[str, jax.Array]:
        places = _output_places(self._options, outputs)
        return fcos.losses(fcos.flatten(outputs, places), target, places)

    def _keep(self, outputs: Any, target: Any) -> dict[str, Any]:
        """Return the detections and the ground truth of each image, for the metrics."""
        true = {name: target[name] for name in ("boxes", "classes", "crowd")}
        return {"found": self._finder.of(outputs), "true": true}

    def _label_text(self, classes: np.ndarray) -> str:
        assert self.column_names is not None
        names = [self.column_names[i] for i in classes.tolist() if i >= 0]
        more = len(names) - MAX_NAMED
        rest = f" and {more} more" if more > 0 else ""
        return ", ".join(names[:MAX_NAMED]) + rest if names else "none"


def output_spec(
    image_shape: tuple[int, int, int], strides: Sequence[int], num_classes: int
) -> tuple[dict[str, tuple[int, int, int]], ...]:
    """Return the output shapes, (rows, columns, channels) by name, of each level."""
    height, width, _ = image_shape
    features = {"boxes": 4, "centerness": 1, "classes": num_classes}
    return tuple(
        {name: (height // s, width // s, size) for name, size in features.items()}
        for s in strides
    )


def make_finder(
    options: DetectionConfig, names: tuple[str, ...], image_shape: tuple[int, int, int]
) -> Finder:
    """Return the functions that compute boxes from outputs."""
    ids = options.category_ids or tuple(range(len(names)))

    def candidates(outputs: Any) -> tuple[jax.Array, jax.Array]:
        places = _output_places(options, outputs)
        flat = fcos.flatten(outputs, places)
        return fcos.candidates(flat, places, image_shape[:2])

    limits: dict[str, Any] = {
        "num": max(CANDIDATES, options.keep),
        "keep": options.keep,
        "score_threshold": options.score_threshold,
        "nms_threshold": options.nms_threshold,
    }

    def detect(outputs: Any) -> dict[str, jax.Array]:
        return fcos.detect(*candidates(outputs), **limits)

    return Finder(names, ids, detect, candidates, limits)


def _output_places(options: DetectionConfig, outputs: Any) -> Places:
    """Return the locations of all pyramid levels, given the levels' outputs."""
    shapes = [level["boxes"].shape[1:3] for level in outputs]
    return make_places(shapes, options.strides, options.bounds)


def _check_strides(strides: tuple[int, ...], image_shape: tuple[int, ...]) -> None:
    for side in image_shape[:2]:
        if side % strides[-1]:
            raise UserError(
                f"task.strides = {strides}: an image side of {side} pixels is not a "
                f"multiple of the last stride, {strides[-1]}; change data.image_size "
                "or task.strides"
            )
