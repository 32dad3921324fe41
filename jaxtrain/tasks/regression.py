"""The task of predicting one or several numbers of an image."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from markupsafe import Markup

from jaxtrain.config.base import typed_options
from jaxtrain.config.regression import RegressionOptions
from jaxtrain.data.batch import Batch
from jaxtrain.data.columns import NAMES
from jaxtrain.dtypes import widen
from jaxtrain.errors import UserError, counted
from jaxtrain.tasks.base import Advice, Readout, Task, Values, check_columns
from jaxtrain.tasks.metrics import Metric
from jaxtrain.tasks.number_losses import STD, NumberLoss, make_loss
from jaxtrain.tasks.number_metrics import (
    OF_COLUMNS,
    coverage_sums,
    error_sums,
    number_metrics,
)
from jaxtrain.tasks.number_sections import number_sections

# What a column is called that has no name.
UNNAMED = "target"
# Numbers of an example that texts show.
MAX_SHOWN = 8
# Examples of a split that are looked at where to look at all would be to read images.
FEW = 2


class Regression(Task):
    """Targets are numbers, (B,) or (B, columns), NaN where one is missing.

    The model learns them standardised: in deviations of their column, from its mean.
    Metrics and what people get have the units of the data.

    Args:
      image_shape: of the images.
      facts: of the data set: `target_names`, if the columns have names, and in training
        `training_targets`, a function that returns all targets of the training split.
      **given: `RegressionOptions`; where they have no mean and deviation, these are
        those of the training targets.

    Raises:
      UserError: the targets are classes, or a column cannot be learnt.
    """

    Options = RegressionOptions
    whole_images = True
    best_metric = "mae"
    shown = ("mae",)
    refused: ClassVar[Mapping[str, str]] = {
        "data.augment.cutmix": "a part of an image does not have that part of its "
        "numbers; data.augment.mixup mixes them",
        "data.sampling": "numbers are no classes whose images could be balanced",
    }

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        facts: Mapping[str, Any],
        **given: Any,
    ):
        del image_shape
        options = RegressionOptions(**given)
        if NAMES not in facts and "num_classes" in facts:
            raise UserError(
                "task = 'regression': the targets of the data set are classes; name "
                "the columns that hold its numbers by data.targets"
            )
        if options.mean is None or options.std is None:
            targets = facts["training_targets"]()
            _check_numbers(targets, "the training split")
            targets = _in_columns(targets)
            self._names = _names(facts, targets.shape[1])
            mean, std = _statistics(targets, self._names)
            self.settled = {"mean": _as_text(mean), "std": _as_text(std)}
        else:
            mean, std = options.mean, options.std
            self._names = _names(facts, len(mean))
        self.column_names = self._names
        num = len(self._names)
        for name, values in (("mean", mean), ("std", std)):
            if len(values) != num:
                raise UserError(
                    f"task_options: {name} = {values} has "
                    f"{counted(len(values), 'value')}, the data set has "
                    f"{counted(num, 'column')}: {', '.join(self._names)}"
                )
        self._mean, self._std = np.array(mean), np.array(std)
        self._loss = make_loss(options)
        self._readout = _make_readout(self._loss, mean, std, self._names)
        check_columns(self._readout.columns)
        self.num_outputs = num * self._loss.num_outputs
        self._metrics = {
            name: metric
            for name, metric in number_metrics(self._errors, self._coverage).items()
            if (self._loss.has_interval or metric.add == self._errors)
            and (num > 1 or not name.endswith(OF_COLUMNS))
        }

    def describe(self) -> str:
        names = ", ".join(self._names[:MAX_SHOWN])
        more = ", ..." if len(self._names) > MAX_SHOWN else ""
        return f"{counted(len(self._names), 'number')}: {names}{more}"

    def check_targets(self, targets: Any, split: str) -> None:
        _check_numbers(targets, split)
        columns = _in_columns(targets)
        if columns.shape[1] != len(self._names):
            raise UserError(
                f"{split} has {counted(columns.shape[1], 'column')} of numbers, and "
                f"the task {len(self._names)}: {', '.join(self._names)}"
            )
        _check_finite(columns, self._names, split)
        # Of a few an example may have none.
        if len(columns) > FEW and np.isnan(columns).all():
            raise UserError(f"{split} has no number: choose another split")

    def label(self, target: Any) -> str:
        return self._told(np.ravel(target))

    def target(self, batch: Batch) -> jax.Array:
        return _in_columns(batch["target"])

    def mix(self, target: Any, partner: Any, weight: jax.Array) -> jax.Array:
        one, other = _in_columns(target), _in_columns(partner)
        share = weight.astype(one.dtype)[:, None]
        # A partner without a share may have no number.
        return jnp.where(share == 1, one, share * one + (1 - share) * other)

    def loss(self, outputs: Any, target: Any, *, training: bool) -> jax.Array:
        """Return the mean over the numbers that an example has; 0 if it has none."""
        del training
        of_columns, standardised, known = self._read(outputs, target)
        losses = jnp.where(known, self._loss.losses(of_columns, standardised), 0)
        return jnp.sum(losses, -1) / jnp.maximum(jnp.sum(known, -1), 1)

    def sums(self, outputs: Any, target: Any, mask: jax.Array) -> Any:
        """Leave out the examples that have no number, which would thin out the loss."""
        has_number = jnp.any(~jnp.isnan(target), -1)
        return super().sums(outputs, target, jnp.where(has_number, mask, 0))

    def train_metrics(self, outputs: Any, target: Any) -> dict[str, jax.Array]:
        num, absolute, *_ = self._errors(outputs, target, jnp.ones(len(target)))
        mae = absolute / jnp.maximum(num, 1)
        return {"mae": jnp.mean(mae).astype(jnp.float32)}

    @classmethod
    def suits(cls, facts: Mapping[str, Any], groups: np.ndarray) -> bool:
        return NAMES in facts and groups.ndim == 1

    @classmethod
    def advice(cls, class_counts: np.ndarray) -> Advice:
        del class_counts
        whole = "what is cut off would not be counted, or move the others"
        return {"data": {"crop_pct": (1.0, whole)}}

    @classmethod
    def known_metrics(cls) -> Mapping[str, Metric]:
        return number_metrics(cls._errors, cls._coverage)

    def metrics(self) -> Mapping[str, Metric]:
        return self._metrics

    @classmethod
    def readout(
        cls, options: Mapping[str, Any], names: Sequence[str] | None
    ) -> Readout | None:
        chosen = typed_options(RegressionOptions, options, "regression")
        if chosen.mean is None or chosen.std is None:
            return None
        names = _names({NAMES: names} if names else {}, len(chosen.mean))
        return _make_readout(make_loss(chosen), chosen.mean, chosen.std, names)

    @staticmethod
    def report_sections(values: Values, names: Sequence[str]) -> Markup:
        return number_sections(values, names)

    def draw_example(
        self, image: np.ndarray, target: Any, outputs: Any
    ) -> Mapping[str, np.ndarray | str]:
        del image
        row = np.asarray(self._readout.of(jnp.asarray(outputs)[None]))[0]
        told = zip(self._readout.columns[:MAX_SHOWN], row, strict=False)
        return {
            "target": self._told(target),
            "prediction": ", ".join(f"{name} {x:.4g}" for name, x in told),
        }

    # --- sums, on the device ---------------------------------------------------------

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

    def _read(
        self, outputs: Any, target: jax.Array, mask: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return outputs (B, columns, ...), standardised targets, and which count.

        Targets that are missing are 0, so that no gradient is NaN.
        """
        outputs = widen(outputs)
        shape = len(target), len(self._names), self._loss.num_outputs
        mean, std = (jnp.asarray(x, outputs.dtype) for x in (self._mean, self._std))
        known = ~jnp.isnan(target)
        standardised = jnp.where(known, (target.astype(mean.dtype) - mean) / std, 0)
        if mask is not None:
            known &= mask[:, None] > 0
        return outputs.reshape(shape), standardised, known

    def _told(self, numbers: np.ndarray) -> str:
        shown = zip(self._names[:MAX_SHOWN], np.asarray(numbers), strict=False)
        texts = [
            f"{name} {'missing' if math.isnan(x) else format(x, '.4g')}"
            for name, x in shown
        ]
        return ", ".join(texts)


def _make_readout(
    loss: NumberLoss, mean: Sequence[float], std: Sequence[float], names: Sequence[str]
) -> Readout:
    """Return what people get: numbers in the units of the data.

    Those of a column are its prediction and what the loss puts beside it.
    """
    endings = ("", *loss.endings)

    def values(outputs: jax.Array) -> jax.Array:
        outputs = widen(outputs).reshape(-1, len(names), loss.num_outputs)
        scale, shift = (jnp.asarray(x, outputs.dtype) for x in (std, mean))
        found = []
        read = loss.prediction(outputs), *loss.beside(outputs)
        for ending, x in zip(endings, read, strict=True):
            x = x * scale if ending == STD else x * scale + shift
            found.append(x[..., None])
        return jnp.concatenate(found, -1).reshape(-1, len(names) * len(endings))

    columns = tuple(f"{name}{ending}" for name in names for ending in endings)
    return Readout("values", columns, values)


def _in_columns(targets: Any) -> Any:
    """Return numbers (N,) or (N, columns) as floats (N, columns), at least float32."""
    dtype = np.promote_types(targets.dtype, np.float32)
    return targets.astype(dtype).reshape(len(targets), -1)


def _check_numbers(targets: Any, split: str) -> None:
    """Raise UserError for targets that are no numbers (N,) or (N, columns)."""
    array = isinstance(targets, np.ndarray) and targets.ndim in (1, 2)
    if not (array and targets.dtype.kind in "biuf"):
        raise UserError(
            f"{split} has targets that are no numbers (N,) or (N, columns): choose "
            "another task"
        )


def _names(facts: Mapping[str, Any], num: int) -> tuple[str, ...]:
    """Return the names of the columns, or names for those that have none."""
    if NAMES in facts:
        return tuple(map(str, facts[NAMES]))
    return (UNNAMED,) if num == 1 else tuple(f"{UNNAMED}_{i}" for i in range(num))


def _statistics(
    targets: np.ndarray, names: Sequence[str]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation of each column over the numbers that it has.

    The sums are exact: on another CPU a resumed run must find the same.

    Raises:
      UserError: a column has no number, only one, or one that is infinite.
    """
    _check_finite(targets, names, "the training split")
    mean, std = [], []
    for name, column in zip(names, targets.astype(np.float64).T, strict=True):
        known = column[~np.isnan(column)]
        if not len(known):
            raise UserError(
                f"task = 'regression': the column {name!r} has no number in the "
                "training split; fill it in, or leave it out of data.targets"
            )
        mean.append(math.fsum(known) / len(known))
        std.append(math.sqrt(math.fsum(np.square(known - mean[-1])) / len(known)))
        if known.min() == known.max():
            raise UserError(
                f"task = 'regression': the column {name!r} is {known[0]:g} in all "
                f"{len(known):,} training examples that have it, a deviation of 0: "
                "there is nothing to learn; leave it out of data.targets"
            )
    return tuple(mean), tuple(std)


def _check_finite(targets: np.ndarray, names: Sequence[str], split: str) -> None:
    """Raise UserError for numbers that are infinite."""
    for name, column in zip(names, targets.T, strict=True):
        bad = np.flatnonzero(np.isinf(column))
        if len(bad):
            raise UserError(
                f"{split}: the column {name!r} is {column[bad[0]]} for "
                f"{counted(len(bad), 'example')}, first for no. {bad[0]}: give finite "
                "numbers, or NaN where one is missing"
            )


def _as_text(values: Sequence[float]) -> str:
    """Return numbers as an option of a task holds them."""
    return ",".join(map(repr, map(float, values)))
