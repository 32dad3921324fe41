"""`comparison.html`: comparison of runs, side by side."""

from collections.abc import Sequence
from typing import Any

from jaxtrain import tasks
from jaxtrain.config import values_of
from jaxtrain.plugins.report.curves import (
    MAX_CHARTS,
    DrawnCurves,
    chart,
    ordered,
    steps_of,
    title,
)
from jaxtrain.plugins.report.history import History
from jaxtrain.plugins.report.overview import verdict
from jaxtrain.plugins.report.pages.charts import NUM_COLOURS, Series
from jaxtrain.plugins.report.pages.templates import render
from jaxtrain.plugins.report.pages.text import duration, shown

MAX_RUNS = 2 * NUM_COLOURS


# Display name and records of a run.
Named = tuple[str, History]


def make_comparison(histories: Sequence[History], trials: Any = None) -> bytes:
    """Render the page that compares runs.

    The best values are marked only if all runs were tested on the same data.

    Args:
      histories: Records of the runs.
      trials: Table of all trials of a sweep (see `report/sweep.py`), or None if the
        runs are not from a sweep.
    """
    names = [history.name for history in histories]
    if len(set(names)) < len(names):
        names = [str(history.workdir) for history in histories]
    runs = list(zip(names, histories, strict=True))
    metrics = ordered({name for history in histories for name in history.test_numbers})
    apart = _other_data(runs)
    return render(
        "plugins/report/comparison.html.j2",
        names=names,
        heading=trials.heading if trials else f"{len(names)} runs compared",
        trials=trials,
        num_colours=NUM_COLOURS,
        cells=[_cells(history, metrics) for history in histories],
        best={} if apart else {_column(m): _winner(m, histories) for m in metrics},
        apart=apart,
        curves=_curves(runs),
        fields=_differences(histories),
        left_out=[f"{name}: {reason}" for name, run in runs for reason in run.missing],
    )


def _column(metric: str) -> str:
    return f"test {title(metric)}"


def _other_data(runs: Sequence[Named]) -> str:
    """Warning that names runs tested on other data than the first run; "" if none."""
    tested = [(name, _test_data(run)) for name, run in runs if run.test]
    others = [name for name, data in tested if data != tested[0][1]]
    if not others:
        return ""
    return (
        f"Tested on different data than {tested[0][0]}, or on unknown data: "
        f"{', '.join(others)}. The results are not comparable, so no best value is "
        "marked."
    )


def _test_data(history: History) -> Any:
    """Return values that identify a run's test split, or None if unknown."""
    data = history.data
    sizes = data.get("num_examples")
    if not isinstance(sizes, dict):
        return None
    # Data sets without a digest are identified by their source.
    which = data.get("digest") or data.get("source")
    return which, sizes.get("test"), data.get("class_names"), data.get("num_classes")


def _cells(history: History, metrics: Sequence[str]) -> dict[str, str]:
    """Table cells of a run, by column name."""
    level, _ = verdict(history)
    best, summary = history.best, history.summary
    value = "-"
    if (metric := best.get("metric")) is not None:
        value = f"{shown(best.get('value'))} {title(str(metric))}"
    return {
        "ended": "yes" if level == "good" else f"no, step {shown(history.step)}",
        **{_column(name): shown(history.test.get(name)) for name in metrics},
        "tested step": shown(history.tested_step) if history.test else "-",
        "best validation": value,
        "test data": _describe_test_data(history),
        "epochs": shown(history.epochs),
        "trained for": duration(history.train_seconds),
        "images per second": shown(summary.get("examples_per_second")),
        "parameters": shown(summary.get("num_params")),
    }


def _describe_test_data(history: History) -> str:
    sizes = history.data.get("num_examples")
    num = sizes.get("test") if isinstance(sizes, dict) else None
    source = str(history.data.get("source", "-"))
    return source if num is None else f"{source}, {shown(num)} images"


def _winner(metric: str, histories: Sequence[History]) -> int | None:
    """Index of the run with the best value; None for ties or a single value."""
    found = [history.test_numbers.get(metric) for history in histories]
    values = [value for value in found if value is not None]
    better = tasks.better(metric)
    if len(values) < 2 or better is None:
        return None
    best = min(values) if better == "lower" else max(values)
    return found.index(best) if values.count(best) == 1 else None


def _curves(runs: Sequence[Named]) -> DrawnCurves:
    """Draw two charts per metric, one for training and one for validation."""
    found = [(name, run.curves()) for name, run in runs]
    span, charts = steps_of(*(curves for _, curves in found)), []
    for metric in ordered({name for _, curves in found for name in curves}):
        for split, label in (("train", "training"), ("validation", "validation")):
            series = [
                Series(name, points, i, dashed=i >= NUM_COLOURS)
                for i, (name, curves) in enumerate(found)
                if (points := curves.get(metric, {}).get(split))
            ]
            charts.append(chart(metric, series, span, f", {label}"))
    charts = list(filter(None, charts))
    hidden = len(charts) - 2 * MAX_CHARTS
    notes = [f"{hidden} more charts are left out."] if hidden > 0 else []
    return DrawnCurves(charts[: 2 * MAX_CHARTS], notes)


def _differences(histories: Sequence[History]) -> dict[str, list[str | None]]:
    """Config fields that differ between runs, with the value of each run."""
    configs = [history.config for history in histories]
    values = [{} if config is None else values_of(config) for config in configs]
    known = [x for x in values if x]
    return {
        path: [repr(x[path]) if path in x else None for x in values]
        for path in dict.fromkeys(path for x in known for path in x)
        if any(x.get(path) != known[0].get(path) for x in known)
    }
