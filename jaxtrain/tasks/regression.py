"""Regression task: one or several numbers per image."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.config.part import typed_options
from jaxtrain.config.regression import RegressionConfig
from jaxtrain.data.batch import Batch
from jaxtrain.data.columns import NAMES, ORIGIN
from jaxtrain.data.target_changes import Mixing
from jaxtrain.dtypes import widen
from jaxtrain.errors import UserError, counted
from jaxtrain.tasks.base import Task
from jaxtrain.tasks.decoder import OutputDecoder, OutputFacts
from jaxtrain.tasks.metrics import Metric
from jaxtrain.tasks.number_columns import (
    as_number,
    as_text,
    check_finite,
    check_levels,
    check_numbers,
    check_rounding,
    in_columns,
    levels_of,
    names_of,
    statistics_of,
    training_numbers,
)
from jaxtrain.tasks.number_decoder import RegressionDecoder
from jaxtrain.tasks.number_losses import (
    PointLoss,
)
from jaxtrain.tasks.number_metrics import (
    OF_COLUMNS,
    coverage_sums,
    error_sums,
    number_metrics,
)
from jaxtrain.tasks.number_readout import make_loss, make_readout
from jaxtrain.tasks.outputs import check_columns
from jaxtrain.tasks.proposals import Advice

# Config field that is incompatible with ordinal regression -> reason.
UNMIXED = {"data.augment.mixup": "ordinal targets have no values between two levels"}
# Maximum number of columns per example in reports.
MAX_SHOWN = 8
# Number of targets to check per split if targets cannot be read without images.
FEW = 2


class Regression(Task):
    """Regression, with numbers (B,) or (B, columns) as targets; NaN is missing.

    For the loss, targets are standardized by the mean and standard deviation of each
    column. Metrics and predictions are in the units of the data.

    Args:
      image_shape: Shape of the images (H, W, C).
      facts: Metadata of the data set: `target_names` of named columns, and in training
        `training_targets`, a function that returns all training targets.
      **given: Fields of `RegressionConfig`. Mean and standard deviation default to
        the statistics of the training targets.

    Raises:
      UserError: The targets are classes, or a column is empty or constant.
    """

    Options = RegressionConfig
    target_changes = (Mixing,)
    whole_images = True
    best_metric = "mae"
    shown = ("mae",)
    refused: Mapping[str, str] = {
        "data.augment.cutmix": "numeric targets are not proportional to the image "
        "area; use data.augment.mixup instead",
        "data.sampling": "balanced sampling requires class labels",
    }

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        facts: Mapping[str, Any],
        **given: Any,
    ):
        del image_shape
        options = RegressionConfig(**given)
        if NAMES not in facts and "num_classes" in facts:
            raise UserError(
                "task = 'regression': the targets of the data set are classes; set "
                "data.targets to the names of numeric columns"
            )
        mean, std, levels = options.mean, options.std, options.levels
        if mean is None or std is None:
            targets = training_numbers(facts)
            self._names = names_of(facts, targets.shape[1])
            mean, std = statistics_of(targets, self._names)
            self.inferred = {"mean": as_text(mean), "std": as_text(std)}
        else:
            self._names = names_of(facts, len(mean))
        if options.loss == "ordinal" and levels is None:
            levels = levels_of(training_numbers(facts))
            self.inferred = {**self.inferred, "levels": as_text(levels)}
        if levels is not None:
            self.refused = {**self.refused, **UNMIXED}
        self.column_names = self._names
        num = len(self._names)
        for name, values in (("mean", mean), ("std", std)):
            if len(values) != num:
                raise UserError(
                    f"task.{name} = {values} has "
                    f"{counted(len(values), 'value')}, but the data set has "
                    f"{counted(num, 'column')}: {', '.join(self._names)}"
                )
        # Number that the store has subtracted from each column.
        self._origin = np.array(facts.get(ORIGIN, (0.0,) * num))
        self._mean, self._std = np.array(mean) - self._origin, np.array(std)
        self._levels = levels
        self._loss = make_loss(options, mean, std, levels)
        self._readout = make_readout(self._loss, mean, std, self._names)
        check_columns(self._readout.columns)
        self.num_outputs = num * self._loss.num_outputs
        self._metrics = {
            name: metric
            for name, metric in number_metrics(self._errors, self._coverage).items()
            if (self._loss.has_interval or metric.add == self._errors)
            and (num > 1 or not name.endswith(OF_COLUMNS))
        }

    @property
    def has_point_outputs(self) -> bool:
        """Whether the outputs are the predicted numbers, not distributions."""
        return isinstance(self._loss, PointLoss)

    def check_targets(self, targets: Any, split: str) -> None:
        check_numbers(targets, split)
        columns = in_columns(targets)
        if columns.shape[1] != len(self._names):
            raise UserError(
                f"{split} has {counted(columns.shape[1], 'column')} of targets: "
                f"expected {len(self._names)} ({', '.join(self._names)})"
            )
        check_finite(columns, self._names, split)
        if not jax.config.read("jax_enable_x64"):
            check_rounding(columns, self._names, split)
        if self._levels is not None:
            names, off = self._names, self._origin
            check_levels(columns, names, off, self._std, self._levels, split)
        # All numbers of a small sample may be missing.
        if len(columns) > FEW and np.isnan(columns).all():
            raise UserError(f"{split} has no numeric targets: choose another split")

    def label(self, target: Any) -> str:
        return self._told(np.ravel(target))

    def target(self, batch: Batch) -> jax.Array:
        return in_columns(batch["target"])

    def transform_target(self, target: tuple[Any, Any], change: Mixing) -> jax.Array:
        one, other = map(in_columns, target)
        share = change.weight.astype(one.dtype)[:, None]
        # Where the weight of `other` is 0, its missing numbers (NaN) have no effect.
        return jnp.where(share == 1, one, share * one + (1 - share) * other)

    def loss(self, outputs: Any, target: Any, *, training: bool) -> jax.Array:
        """Compute the mean loss over the known targets of each example, (B,).

        The loss is 0 for examples without known targets.
        """
        del training
        of_columns, standardised, known = self._read(outputs, target)
        losses = jnp.where(known, self._loss.losses(of_columns, standardised), 0)
        return jnp.sum(losses, -1) / jnp.maximum(jnp.sum(known, -1), 1)

    def labelled(self, target: Any) -> jax.Array:
        """Mask of examples with a known target; the others have loss 0."""
        return jnp.any(~jnp.isnan(target), -1)

    def train_metrics(self, outputs: Any, target: Any) -> dict[str, jax.Array]:
        num, absolute, *_ = self._errors(outputs, target, jnp.ones(len(target)))
        mae = absolute / jnp.maximum(num, 1)
        # Average over the columns that have a number in the batch.
        mean = jnp.sum(mae) / jnp.maximum(jnp.sum(num > 0), 1)
        return {"mae": mean.astype(jnp.float32)}

    @classmethod
    def suits(cls, facts: Mapping[str, Any], groups: np.ndarray) -> bool:
        return NAMES in facts and groups.ndim == 1

    @classmethod
    def advice(cls, class_counts: np.ndarray) -> Advice:
        del class_counts
        whole = "a crop could remove the measured object"
        return {"data": {"crop_pct": (1.0, whole)}}

    def metrics(self) -> Mapping[str, Metric]:
        return self._metrics

    @classmethod
    def decoder(cls, facts: OutputFacts) -> OutputDecoder:
        chosen = typed_options(RegressionConfig, facts.options, "regression")
        unknown = chosen.loss == "ordinal" and chosen.levels is None
        if chosen.mean is None or chosen.std is None or unknown:
            return super().decoder(facts)
        known = {NAMES: facts.column_names} if facts.column_names else {}
        names = names_of(known, len(chosen.mean))
        loss = make_loss(chosen, chosen.mean, chosen.std, chosen.levels)
        readout = make_readout(loss, chosen.mean, chosen.std, names)
        distribution = None if isinstance(loss, PointLoss) else chosen.loss
        return RegressionDecoder(facts, readout, names, distribution)

    def draw_example(
        self, image: np.ndarray, target: Any, outputs: Any
    ) -> Mapping[str, np.ndarray | str]:
        del image
        read = np.asarray(self._readout.of(jnp.asarray(outputs)[None]))
        columns = self._readout.columns[:MAX_SHOWN]
        std = np.repeat(self._std, len(self._readout.columns) // len(self._std))
        told = zip(columns, self._readout.add_offset(read)[0], std, strict=False)
        return {
            "target": self._told(target),
            "prediction": ", ".join(f"{n} {as_number(x, std)}" for n, x, std in told),
        }

    # --- metric sums, on the device --------------------------------------------------

    def _errors(self, outputs: Any, target: Any, mask: jax.Array) -> jax.Array:
        of_columns, standardised, known = self._read(outputs, target, mask)
        error = self._loss.prediction(of_columns) - standardised
        std = jnp.asarray(self._std, error.dtype)
        return error_sums(error, standardised, known, std)

    def _coverage(self, outputs: Any, target: Any, mask: jax.Array) -> jax.Array:
        of_columns, standardised, known = self._read(outputs, target, mask)
        bounds = self._loss.interval(of_columns)
        assert bounds is not None
        low, high = bounds
        inside = (low <= standardised) & (standardised <= high)
        return coverage_sums(inside, known)

    known_metrics = number_metrics(_errors, _coverage)

    def _read(
        self, outputs: Any, target: jax.Array, mask: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Reshape outputs, and standardize targets.

        Returns:
          Outputs (B, columns, num_outputs); targets (B, columns), where missing targets
            are 0, so that no gradient is NaN; mask of known targets (B, columns).
        """
        outputs = widen(outputs)
        shape = len(target), len(self._names), self._loss.num_outputs
        # `rest` corrects the rounding error of the float32 mean.
        rounded = self._mean.astype(outputs.dtype)
        rest = (self._mean - rounded) / self._std
        mean, std, rest = (
            jnp.asarray(x, outputs.dtype) for x in (rounded, self._std, rest)
        )
        known = ~jnp.isnan(target)
        scaled = (target.astype(mean.dtype) - mean) / std - rest
        standardised = jnp.where(known, scaled, 0)
        if mask is not None:
            known &= mask[:, None] > 0
        return outputs.reshape(shape), standardised, known

    def _told(self, numbers: np.ndarray) -> str:
        whole = np.asarray(numbers) + self._origin
        shown = zip(self._names[:MAX_SHOWN], whole, self._std, strict=False)
        texts = [
            f"{name} {'missing' if math.isnan(x) else as_number(x, std)}"
            for name, x, std in shown
        ]
        return ", ".join(texts)
