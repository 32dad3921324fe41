"""Multi-label classification task."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.config.multilabel import MultilabelConfig
from jaxtrain.data.columns import NAMES, ORIGIN
from jaxtrain.data.target_changes import Mixing
from jaxtrain.errors import UserError, counted
from jaxtrain.tasks import label_metrics
from jaxtrain.tasks.base import Task, Values
from jaxtrain.tasks.class_decoder import LabelDecoder
from jaxtrain.tasks.decoder import OutputDecoder, OutputFacts
from jaxtrain.tasks.label_metrics import THRESHOLD, Kept, f1, f1_counts
from jaxtrain.tasks.losses import asymmetric_losses, label_losses
from jaxtrain.tasks.metrics import Metric
from jaxtrain.tasks.proposals import Advice

# Name of a metric, and key in `Task.chosen`.
THRESHOLDS = "thresholds"
# Maximum number of labels per example in a report.
MAX_NAMED = 12


def _metrics(find_thresholds: Any) -> dict[str, Metric]:
    """Create the metrics; `find_thresholds` returns the thresholds for F1."""
    keep = partial(Metric, keep=label_metrics.scores, resampled=True)

    def counts(kept: Kept) -> np.ndarray:
        return f1_counts(kept, find_thresholds(kept))

    def micro(kept: Kept, num_examples: int) -> float | None:
        hits, true, found = counts(kept).sum(axis=1).tolist()
        return 2 * hits / (true + found) if true + found else None

    def each(kept: Kept, num_examples: int) -> list[float | None]:
        return f1(counts(kept))

    def chosen(kept: Kept, num_examples: int) -> list[float]:
        return find_thresholds(kept).tolist()

    ap, auroc = label_metrics.average_precision, label_metrics.auroc
    mean_of, higher = label_metrics.mean_of, "higher"
    scores = label_metrics.scores
    return {
        "mean_average_precision": keep(
            value=mean_of(ap), better=higher, title="mean average precision"
        ),
        "mean_auroc": keep(value=mean_of(auroc), better=higher, title="mean AUROC"),
        "micro_f1": keep(value=micro, better=higher, title="micro F1"),
        "macro_f1": keep(value=mean_of(each), better=higher, title="macro F1"),
        "average_precision": keep(value=ap),
        "auroc": keep(value=auroc, title="AUROC"),
        "f1": keep(value=each, title="F1"),
        THRESHOLDS: Metric(keep=scores, value=chosen),
        "positives": Metric(keep=scores, value=label_metrics.positives),
    }


METRICS = _metrics(label_metrics.best_thresholds)


class Multilabel(Task):
    """Multi-label classification, with targets (B, labels) of 1, 0 or unknown.

    Unknown labels, -1 or NaN, are excluded from metrics and from the loss, which is a
    mean over labels. Outputs are logits.

    Args:
      image_shape: Shape of the images (H, W, C).
      facts: Metadata of the data set: `target_names`, and in training
        `training_targets`.
      **given: Fields of `MultilabelConfig`.

    Raises:
      UserError: The data set has no label columns, a label is constant in training, or
        the number of weights differs from the number of labels.
    """

    Options = MultilabelConfig
    target_changes = (Mixing,)
    known_metrics = METRICS
    best_metric = "mean_average_precision"
    lowest = "average_precision", "lowest average precision"
    shown = ("mean_average_precision",)

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        facts: Mapping[str, Any],
        **given: Any,
    ):
        del image_shape
        self._options = options = MultilabelConfig(**given)
        if NAMES not in facts:
            raise UserError(
                "task = 'multilabel': the data set has no label columns: set "
                "data.targets to the names of the columns of 0 and 1 (for a one-hot "
                "array, give a name per column), or list the labels in the column "
                "`label` and set data.label_separator (docs/multilabel.md)"
            )
        self.class_names = tuple(facts[NAMES])
        moved = zip(self.class_names, facts.get(ORIGIN, ()), strict=False)
        if numbers := [name for name, origin in moved if origin]:
            raise UserError(
                f"task = 'multilabel': the column {numbers[0]!r} has numbers other "
                "than 0 and 1; remove the column from data.targets, or set task = "
                "'regression'"
            )
        self.num_outputs = len(self.class_names)
        self._weights: np.ndarray | None = None
        if "training_targets" in facts:
            targets = known_targets(facts["training_targets"]())
            self._check_both_values(targets)
            self._weights = _positive_weights(options.positive_weights, targets)

    def _check_both_values(self, targets: np.ndarray) -> None:
        assert self.class_names is not None
        for name, column in zip(self.class_names, targets.T, strict=True):
            values = np.unique(column[~np.isnan(column)])
            # Invalid values are reported by `check_targets`.
            if len(values) < 2:
                told = f"always {values[0]:g}" if len(values) else "always missing"
                raise UserError(
                    f"the label {name!r} is {told} in the {len(column):,} training "
                    "images and cannot be learned; remove the label from data.targets "
                    "or from the lists of labels, or add images"
                )

    def check_targets(self, targets: np.ndarray, split: str) -> None:
        assert self.class_names is not None
        if np.ndim(targets) != 2 or targets.shape[1] != self.num_outputs:
            raise UserError(
                f"{split} has targets of the shape {np.shape(targets)}: expected "
                f"{self.num_outputs} labels per image"
            )
        good = np.isin(targets, (-1, 0, 1)) | np.isnan(targets)
        if not good.all():
            row, column = np.argwhere(~good)[0]
            raise UserError(
                f"{split}: the label {self.class_names[column]!r} is "
                f"{targets[row, column]:g} for image {row}: expected 1 (present), 0 "
                "(absent), or -1 or an empty cell (unknown); correct the column, or "
                "remove the column from data.targets"
            )
        if not (targets >= 0).any():
            raise UserError(
                f"{split} has no image with a known label: choose another split"
            )

    def label(self, target: np.ndarray) -> str:
        assert self.class_names is not None
        names = [
            name for name, x in zip(self.class_names, target, strict=True) if x > 0
        ]
        return _named(names)

    def target(self, batch: Any) -> jax.Array:
        return known_targets(batch["target"])

    def transform_target(
        self, target: tuple[jax.Array, jax.Array], change: Mixing
    ) -> jax.Array:
        """Interpolate the labels of mixed images by the mixing ratio.

        The losses are linear in the target. A label that is unknown in one target is
        unknown in the mixture, unless the weight of this target is 0.
        """
        one, other = map(known_targets, target)
        share = change.weight[:, None]
        return jnp.where(share == 1, one, share * one + (1 - share) * other)

    def loss(
        self, outputs: jax.Array, target: jax.Array, *, training: bool
    ) -> jax.Array:
        known = ~jnp.isnan(target)
        probability = jnp.where(known, target, 0)
        weights: Any = 1.0
        if training and self._weights is not None:
            weights = jnp.asarray(self._weights, probability.dtype)
        if training and self._options.loss == "asymmetric":
            losses = asymmetric_losses(outputs, probability, weights)
        else:
            losses = label_losses(outputs, probability, weights)
        num = jnp.maximum(jnp.sum(known, axis=-1), 1).astype(losses.dtype)
        return jnp.sum(jnp.where(known, losses, 0), axis=-1) / num

    def labelled(self, target: jax.Array) -> jax.Array:
        """Mask of images with a known label; other images would lower the mean loss."""
        return jnp.any(~jnp.isnan(target), axis=-1)

    @classmethod
    def suits(cls, facts: Mapping[str, Any], groups: np.ndarray) -> bool:
        return NAMES in facts and groups.ndim == 2

    @classmethod
    def advice(cls, class_counts: np.ndarray) -> Advice:
        del class_counts
        reason = "a mean over labels, so that rare labels count equally"
        return {"checkpoint": {"best_metric": (cls.best_metric, reason)}}

    def metrics(self) -> Mapping[str, Metric]:
        return _metrics(self._thresholds)

    def choose(self, validation: Values) -> dict[str, list[float]]:
        # Thresholds are missing if an output is not finite.
        return {name: validation[name] for name in (THRESHOLDS,) if name in validation}

    def _thresholds(self, kept: Kept) -> np.ndarray:
        """Return the fitted thresholds; on the validation split, fit them to `kept`."""
        if self.chosen is None:
            return np.array(label_metrics.best_thresholds(kept))
        return thresholds(self.chosen, self.num_outputs)

    @classmethod
    def decoder(cls, facts: OutputFacts) -> OutputDecoder:
        names = facts.class_names
        if names is None or not facts.is_row:
            return super().decoder(facts)
        return LabelDecoder(facts, thresholds(facts.chosen, len(names)))

    def draw_example(
        self, image: np.ndarray, target: np.ndarray, outputs: np.ndarray
    ) -> Mapping[str, str]:
        assert self.class_names is not None
        scores = label_metrics.probability(outputs)
        found = scores >= thresholds(self.chosen or {}, self.num_outputs)
        rows = sorted(zip(scores, self.class_names, found, strict=True), reverse=True)
        names = [f"{name} {score:.0%}" for score, name, predicted in rows if predicted]
        return {"labels": self.label(target), "predicted": _named(names)}


def known_targets(target: Any) -> Any:
    """Convert targets to floats, with NaN for unknown labels."""
    xp = jnp if isinstance(target, jax.Array) else np
    return xp.where(target < 0, xp.nan, target)


def thresholds(chosen: Mapping[str, Any], num_labels: int) -> np.ndarray:
    """Probability threshold of each label, (labels,)."""
    return np.array(chosen.get(THRESHOLDS, [THRESHOLD] * num_labels))


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more if names else "none"


def _positive_weights(
    weights: str | tuple[float, ...] | None, targets: np.ndarray
) -> np.ndarray | None:
    """Weight of the positive loss term of each label, (labels,), or None.

    Raises:
      UserError: The number of weights differs from the number of labels.
    """
    if weights is None:
        return None
    if isinstance(weights, str):
        return np.sum(targets == 0, axis=0) / np.sum(targets == 1, axis=0)
    if len(weights) != targets.shape[1]:
        raise UserError(
            f"task.positive_weights = {weights} has {counted(len(weights), 'weight')}: "
            f"expected {targets.shape[1]}, one per label"
        )
    return np.array(weights, float)
