"""Training curves of a run."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from jaxtrain import tasks
from jaxtrain.errors import counted
from jaxtrain.plugins.report.history import Curves, History
from jaxtrain.plugins.report.pages.charts import Series, line_chart
from jaxtrain.records.writer import SYSTEM

TITLES = {
    "examples_per_second": "images per second",
    "grad_norm": "gradient norm",
    "mfu": "model FLOP utilization",
    "data_wait": "fraction of time waiting for data",
    "gpu_utilization": "GPU utilization",
    "gpu_memory_bytes": "GPU memory, bytes",
    "gpu_peak_bytes": "peak GPU memory of arrays, bytes",
    "gpu_power_watts": "GPU power, watts",
    "gpu_temperature": "GPU temperature, degrees Celsius",
    "host_cpu_cores": "busy CPU cores",
    "host_memory_bytes": "host memory, bytes",
}
COLOURS = {"train": 0, "validation": 1, "test": 2}
MAX_CHARTS = 24


class DrawnCurves(NamedTuple):
    """Charts of metrics by step.

    Attributes:
      charts: Charts as SVG.
      notes: Sentences below the charts.
      resumed: Whether dashed lines mark the steps at which the run resumed.
    """

    charts: list[Markup]
    notes: list[str]
    resumed: bool = False


def curves(history: History) -> DrawnCurves:
    """Charts of all metrics of a run."""
    found = history.curves()
    names = ordered(found)
    marks = [e["step"] for e in history.events() if e.get("event") == "resumed"]
    span = steps_of(found)
    charts = [
        chart(
            name,
            [Series(p, xy, COLOURS.get(p, 3)) for p, xy in found[name].items()],
            span,
            marks=marks,
        )
        for name in names[:MAX_CHARTS]
    ]
    notes = _notes(history, found)
    if (hidden := len(names) - MAX_CHARTS) > 0:
        notes.append(f"{hidden} more metrics are in metrics.jsonl.")
    return DrawnCurves(list(filter(None, charts)), notes, bool(marks))


def chart(
    metric: str,
    series: Sequence[Series],
    span: tuple[float, float],
    suffix: str = "",
    marks: Sequence[float] = (),
) -> Markup:
    """Chart of a metric by step, as SVG.

    Args:
      metric: Name of the metric.
      series: Lines of the chart.
      span: First and last step of the x axis.
      suffix: Text to append to the title.
      marks: Steps with a dashed vertical line.
    """
    log = metric != "learning_rate"  # A linear axis shows the shape of the schedule.
    return line_chart(title(metric) + suffix, series, span=span, marks=marks, log=log)


def steps_of(*found: Curves) -> tuple[float, float]:
    """Minimum and maximum step over all curves; (0, 1) without points."""
    steps = [
        x
        for curves in found
        for parts in curves.values()
        for points in parts.values()
        for x, _ in points
    ]
    return min(steps, default=0), max(steps, default=1)


def _notes(history: History, found: Curves) -> list[str]:
    notes = []
    if not found:
        notes.append("No metrics are recorded yet.")
    elif not any("validation" in parts for parts in found.values()):
        notes.append(
            "There is no evaluation on a validation split: see "
            "data.validation_fraction and data.validation_split."
        )
    bad = sum(line.get("loss", 0) is None for line in history.lines)
    if bad:
        notes.append(
            f"The loss of {counted(bad, 'line')} is not finite, which leaves gaps in "
            "the curve."
        )
    return notes


def ordered(names: Iterable[str]) -> list[str]:
    """Sort metric names for the page.

    The loss and other built-in metrics come first, system metrics last; the remaining
    names are sorted alphabetically.
    """
    names, rates = set(names), ("learning_rate", "grad_norm", "examples_per_second")
    first = ("loss", *tasks.first_metrics(), *rates)
    metrics = sorted(names - {*first, *SYSTEM})
    return [n for n in (*first, *metrics, *SYSTEM) if n in names]


def title(name: str) -> str:
    return TITLES.get(name) or tasks.title(name)
