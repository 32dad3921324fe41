"""Options of the regression task."""

import math
from dataclasses import dataclass
from typing import Any, Literal

from jaxtrain.config.base import report
from jaxtrain.config.metadata import field
from jaxtrain.config.part import Part

# Options that apply to one loss only: name -> (loss, default).
OF_ONE_LOSS: dict[str, tuple[str, Any]] = {
    "level": ("gaussian", 0.9),
    "quantiles": ("quantiles", (0.05, 0.5, 0.95)),
    "levels": ("ordinal", None),
}
# Maximum number of ordinal levels. The model has an output for each level except the
# lowest.
MAX_LEVELS = 100


@dataclass(frozen=True, kw_only=True)
class RegressionConfig(Part):
    """Regression: one or more numbers per image."""

    name: str = field("regression", init=False)
    loss: Literal["mse", "l1", "huber", "gaussian", "quantiles", "ordinal"] = field(
        "mse",
        help="Training loss, on targets that are standardized per column.",
    )
    level: float | None = field(
        None,
        help="For loss gaussian: coverage of the prediction interval; None: 0.9.",
    )
    quantiles: tuple[float, ...] | None = field(
        None,
        help="For loss quantiles: quantile levels in ascending order, with the median "
        "in the middle; None: 0.05, 0.5, 0.95.",
    )
    levels: tuple[float, ...] | None = field(
        None,
        help="For loss ordinal: target values in ascending order; None: the values in "
        "the training split.",
    )
    mean: tuple[float, ...] | None = field(
        None,
        help="Mean of each target column, to standardize it; None: computed from the "
        "training split.",
    )
    std: tuple[float, ...] | None = field(
        None,
        help="Standard deviation of each target column, to standardize it; None: "
        "computed from the training split.",
    )

    def validate(self) -> None:
        for name, (loss, _) in OF_ONE_LOSS.items():
            value = getattr(self, name)
            if value is not None and self.loss != loss:
                report(
                    f"task.{name} = {value!r} has no effect with task.loss = "
                    f"{self.loss!r}: leave task.{name} out, or set task.loss to {loss}",
                    name,
                )
        between = "a value between 0 and 1"
        self._all(("level",), lambda value: 0 < value < 1, between)
        self._all(
            ("quantiles",),
            _are_quantiles,
            "three or more increasing values between 0 and 1, with 0.5 in the middle",
        )
        self._all(
            ("levels",),
            lambda x: 2 <= len(x) <= MAX_LEVELS and list(x) == sorted({*x}),
            f"2 to {MAX_LEVELS} increasing values",
        )
        self._all(("std",), lambda values: values and min(values) > 0, "values above 0")
        if (self.mean is None) != (self.std is None):
            report(
                f"task.mean = {self.mean} and task.std = {self.std}: give both or "
                "neither",
                "mean",
                "std",
            )

    def of_loss(self, name: str) -> Any:
        """Return the value of an option in `OF_ONE_LOSS`; its default if it is None."""
        value = getattr(self, name)
        return OF_ONE_LOSS[name][1] if value is None else value


def _are_quantiles(values: tuple[float, ...]) -> bool:
    odd = len(values) >= 3 and len(values) % 2 == 1
    rising = all(a < b for a, b in zip((0, *values), (*values, 1), strict=True))
    return odd and rising and math.isclose(values[len(values) // 2], 0.5)
