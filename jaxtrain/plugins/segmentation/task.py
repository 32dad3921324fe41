"""Semantic segmentation task."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.data.augment.geometry import Geometry
from jaxtrain.data.batch import Batch
from jaxtrain.data.pixel_classes import IGNORED, PIXEL_CLASSES
from jaxtrain.data.target_changes import Mosaic, Pasting
from jaxtrain.errors import UserError, counted
from jaxtrain.plugins.distillation.imitation import imitate_classes
from jaxtrain.plugins.segmentation.decoder import MaskDecoder
from jaxtrain.plugins.segmentation.options import SegmentationConfig
from jaxtrain.plugins.segmentation.pixel_losses import (
    cross_entropy_of_pixels,
    dice_of_pixels,
    lovasz_of_pixels,
)
from jaxtrain.plugins.segmentation.pixel_metrics import (
    boundary_sums,
    confusion_sums,
    pixel_metrics,
)
from jaxtrain.tasks.balance import relative_weights
from jaxtrain.tasks.base import Task
from jaxtrain.tasks.decoder import OutputDecoder, OutputFacts
from jaxtrain.tasks.losses import FOCAL_GAMMA
from jaxtrain.tasks.metrics import Metric
from jaxtrain.tasks.pictures import mistakes, overlay
from jaxtrain.tasks.proposals import Advice

# Maximum number of class names in the label text of a mask.
MAX_NAMED = 8
REFUSED: Mapping[str, str] = {
    "data.augment.mixup": "a mixed pixel has two classes instead of one",
    "data.sampling": "an image shows several classes, but has no class label",
}


class Segmentation(Task):
    """Semantic segmentation: integer targets (B, H, W), logits (B, H, W, C).

    Loss and metrics ignore pixels with the target `IGNORED` or `ignore_value`. Metrics
    are computed at the model's input size.

    Args:
      image_shape: Height, width and channels of the images.
      facts: Metadata of the data set, with the class names (key `PIXEL_CLASSES`) and,
        in training, a function that computes the histogram of the pixel values in the
        training masks (key `pixel_counts`).
      **given: Fields of `SegmentationConfig`.

    Raises:
      UserError: The data set has no masks, or an option does not match its classes.
    """

    Options = SegmentationConfig
    target_changes = (Geometry, Pasting, Mosaic)
    supports = frozenset({"data.sliding_size"})
    classes_fact = PIXEL_CLASSES
    best_metric = "mean_iou"
    lowest = "iou", "lowest IoU"
    shown = ("mean_iou", "pixel_accuracy")
    refused = REFUSED

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        facts: Mapping[str, Any],
        **given: Any,
    ):
        self._options = options = SegmentationConfig(**given)
        if PIXEL_CLASSES not in facts:
            raise UserError(
                "task = 'segmentation': the data set has no masks; use a data.source "
                "with masks, such as masks:DIR (docs/segmentation.md)"
            )
        self.class_names = tuple(map(str, facts[PIXEL_CLASSES]))
        self.num_classes = num = len(self.class_names)
        self.output_spec = (*image_shape[:2], num)
        if options.ignore_value != IGNORED and options.ignore_value >= num:
            raise UserError(
                f"task.ignore_value = {options.ignore_value}: expected a class of the "
                f"data set, 0 to {num - 1}, or {IGNORED}"
            )
        weights, self._weights = options.class_weights, None
        if not isinstance(weights, str):
            self._weights = weights
        elif "pixel_counts" in facts:  # Only in training: evaluation is unweighted.
            self._weights = self._balanced(facts["pixel_counts"]())
        if isinstance(weights, tuple) and len(weights) != num:
            raise UserError(
                f"task.class_weights = {weights} has "
                f"{counted(len(weights), 'weight')}: expected {num}, one per class "
                f"({', '.join(self.class_names)})"
            )
        ignored = None if options.ignore_value == IGNORED else options.ignore_value
        self._metrics = pixel_metrics(self._confusion, self._boundary, num, ignored)

    def check_targets(self, targets: Any, split: str) -> None:
        num = self.num_classes
        shape, dtype = np.shape(targets), getattr(targets, "dtype", np.dtype(object))
        if len(shape) != 3 or dtype.kind not in "iu":
            raise UserError(
                f"{split} has targets {dtype} {shape}: expected masks of class "
                "indices, integers (N, H, W)"
            )
        wrong = (targets < 0) | ((targets >= num) & (targets != IGNORED))
        if wrong.any():
            raise UserError(
                f"{split} has a mask with the value {targets[wrong][0]}: expected 0 to "
                f"{num - 1}, or {IGNORED}"
            )

    def label(self, target: Any) -> str:
        assert self.class_names is not None
        numbers = np.unique(target[self._counts(target)]).tolist()
        more = (
            f" and {len(numbers) - MAX_NAMED} more" if len(numbers) > MAX_NAMED else ""
        )
        names = [self.class_names[number] for number in numbers[:MAX_NAMED]]
        return (", ".join(names) or "none") + more

    def target(self, batch: Batch) -> jax.Array:
        return batch["target"].astype(jnp.int32)

    def transform_target(
        self, target: Any, change: Geometry | Pasting | Mosaic
    ) -> jax.Array:
        return change.pixels(target, border=IGNORED)

    def loss(self, outputs: Any, target: Any, *, training: bool) -> jax.Array:
        counts, options = self._counts(target), self._options
        if not training:
            return cross_entropy_of_pixels(outputs, target, counts)
        if options.loss == "dice":
            return dice_of_pixels(outputs, target, counts)
        if options.loss == "lovasz":
            return lovasz_of_pixels(outputs, target, counts)
        losses = cross_entropy_of_pixels(
            outputs,
            target,
            counts,
            class_weights=self._weights,
            gamma=FOCAL_GAMMA if options.loss == "focal" else 0.0,
        )
        if options.loss == "cross_entropy_dice":
            losses += dice_of_pixels(outputs, target, counts)
        return losses

    def imitation(
        self, outputs: Any, teacher: Any, *, temperature: float | None, hard: bool
    ) -> jax.Array:
        return imitate_classes(outputs, teacher, temperature, hard)

    def labelled(self, target: Any) -> jax.Array:
        """Mask over the batch: images with valid pixels, bool (B,).

        Other images have a loss of 0, which would lower the mean.
        """
        return jnp.any(self._counts(target), (1, 2))

    def train_metrics(self, outputs: Any, target: Any) -> dict[str, jax.Array]:
        counts = self._counts(target)
        right = (outputs.argmax(-1) == target) & counts
        num = counts.sum((1, 2))
        share = right.sum((1, 2)) / jnp.maximum(num, 1)
        # Mean over the images with valid pixels.
        mean = share.sum() / jnp.maximum((num > 0).sum(), 1)
        return {"pixel_accuracy": mean.astype(jnp.float32)}

    def metrics(self) -> Mapping[str, Metric]:
        return self._metrics

    @classmethod
    def suits(cls, facts: Mapping[str, Any], groups: np.ndarray) -> bool:
        del groups
        return PIXEL_CLASSES in facts

    @classmethod
    def advice(cls, class_counts: np.ndarray) -> Advice:
        del class_counts
        whole = "masks of the full image"
        same = "masks are flipped too; False if classes differ by left and right"
        seen = "encoder-decoder network on a backbone"
        return {
            "data": {"crop_mode": ("squash", whole)},
            "augment": {"horizontal_flip": (True, same)},
            "model": {"name": ("unet", seen)},
        }

    @classmethod
    def decoder(cls, facts: OutputFacts) -> OutputDecoder:
        if facts.class_names is None:
            return super().decoder(facts)
        return MaskDecoder(facts)

    def draw_target(self, image: np.ndarray, target: Any) -> np.ndarray:
        return overlay(image, np.where(self._counts(target), target, 0))

    def draw_example(
        self, image: np.ndarray, target: Any, outputs: Any
    ) -> Mapping[str, np.ndarray | str]:
        found, counts = outputs.argmax(-1), self._counts(target)
        return {
            "true": self.draw_target(image, target),
            "predicted": overlay(image, found),
            "errors": mistakes(image, counts & (found != target)),
            "classes": self.label(target),
        }

    def _balanced(self, pixels: np.ndarray) -> tuple[float, ...]:
        """Class weights: inverse class frequencies with a mean of 1 over the pixels.

        Classes without pixels get the weight 0.

        Args:
          pixels: Histogram of the pixel values in the training masks, (256,).

        Raises:
          UserError: The masks have fewer than two classes.
        """
        counts = np.where(self._counts(np.arange(len(pixels))), pixels, 0)
        found = int(np.count_nonzero(counts[: self.num_classes]))
        if found < 2:
            raise UserError(
                "task.class_weights = 'balanced' has no effect: the masks of the "
                f"training split have pixels of {counted(found, 'class', 'classes')}; "
                "leave task.class_weights out, or add masks with other classes"
            )
        return tuple(relative_weights("balanced", counts[: self.num_classes]).tolist())

    # --- metrics: sums on the device -------------------------------------------------

    def _counts(self, target: Any) -> Any:
        """Mask of valid pixels, bool, with the shape of the target."""
        return (target != IGNORED) & (target != self._options.ignore_value)

    def _confusion(self, outputs: Any, target: Any, mask: jax.Array) -> jax.Array:
        counts = self._counts(target) & (mask[:, None, None] > 0)
        return confusion_sums(outputs, target, counts)

    def _boundary(self, outputs: Any, target: Any, mask: jax.Array) -> jax.Array:
        return boundary_sums(outputs, target, self._counts(target), mask)

    known_metrics = pixel_metrics(_confusion, _boundary)
