"""`comparison.html`: runs side by side."""

from collections.abc import Sequence
from typing import Any

from jaxtrain.config import get, paths
from jaxtrain.pages.charts import NUM_COLOURS, Series, line_chart
from jaxtrain.pages.page import breakable, note, render, section, table, text
from jaxtrain.report.curves import (
    MAX_CHARTS,
    drop_zero_counts,
    ordered,
    steps_of,
    title,
)
from jaxtrain.report.history import History
from jaxtrain.report.numbers import duration, shown
from jaxtrain.report.overview import train_seconds, verdict
from jaxtrain.tasks import BETTER

MAX_RUNS = 2 * NUM_COLOURS


def make_comparison(histories: Sequence[History]) -> bytes:
    """Return the page; the first run is the one that the others are laid beside."""
    names = _names(histories)
    legend = "".join(
        f'<span class="k{i % NUM_COLOURS}"><i></i>{breakable(name)}</span>'
        for i, name in enumerate(names)
    )
    body = [
        f"<header><h1>{len(histories)} runs compared</h1>"
        f'<div class="legend">{legend}</div></header>',
        _results(histories, names),
        _curves(histories, names),
        _differences(histories, names),
        _missing(histories, names),
    ]
    return render(f"{len(histories)} runs compared", body)


def _names(histories: Sequence[History]) -> list[str]:
    """Return the names of the folders, or their paths where two are the same."""
    names = [history.name for history in histories]
    if len(set(names)) < len(names):
        return [str(history.workdir) for history in histories]
    return names


def _results(histories: Sequence[History], names: Sequence[str]) -> str:
    """Return a table with a row for each run."""
    metrics = ordered(
        {
            name
            for history in histories
            for name, value in history.test.items()
            if _is_number(value) and name != "num_examples"
        }
    )
    found = [_cells(history, metrics) for history in histories]
    apart = _other_data(histories, names)
    winners = {} if apart else {name: _winner(name, histories) for name in metrics}
    rows = []
    for i, (name, cells) in enumerate(zip(names, found, strict=True)):
        colour = f"swatch k{i % NUM_COLOURS}"
        swatch = f'<span class="{colour}"><i></i>{breakable(name)}</span>'
        for metric, winner in winners.items():
            if winner == i:
                column = f"test {title(metric)}"
                cells[column] = f'<span class="best">{cells[column]}</span>'
        rows.append([swatch, *cells.values()])
    head = ["run", *found[0]]
    told = "The best of a column stands out, where it is known what is better."
    results = table(head, rows, range(2, len(head)), pinned=True)
    return section("Results", results, note=apart or told)


def _other_data(histories: Sequence[History], names: Sequence[str]) -> str:
    """Say which runs were tested on other data than the first; nothing if none was."""
    first = _test_data(histories[0])
    others = [
        name
        for name, history in zip(names, histories, strict=True)
        if _test_data(history) != first
    ]
    if not others:
        return ""
    return (
        f"Tested on other data than {names[0]}, or it is not known on which: "
        f"{', '.join(others)}. Their numbers cannot be compared, and none is marked "
        "as the best."
    )


def _test_data(history: History) -> Any:
    """Return what tells the test split of a run from others; None: not known."""
    data = history.data
    sizes = data.get("num_examples")
    if not history.test or not isinstance(sizes, dict):
        return None
    # A set that has no digest is what its source says.
    which = data.get("digest") or data.get("source")
    return which, sizes.get("test"), data.get("class_names"), data.get("num_classes")


def _cells(history: History, metrics: Sequence[str]) -> dict[str, str]:
    """Return what a row says of a run: name of the column -> cell, HTML."""
    level, _ = verdict(history)
    epochs = [line["epoch"] for line in history.lines if "epoch" in line]
    best = history.best
    metric = best.get("metric")
    values = {
        "ended": "yes" if level == "good" else f"no, step {shown(history.step)}",
        **{f"test {title(n)}": shown(history.test.get(n)) for n in metrics},
        "tested step": shown(history.tested_step) if history.test else "-",
        "best validation": "-"
        if metric is None
        else f"{shown(best.get('value'))} {title(str(metric))}",
        "test data": _describe_test_data(history),
        "epochs": shown(epochs[-1] if epochs else None),
        "trained for": duration(train_seconds(history)),
        "images per second": shown(history.summary.get("examples_per_second")),
        "parameters": shown(history.summary.get("num_params")),
    }
    return {name: text(value) for name, value in values.items()}


def _describe_test_data(history: History) -> str:
    sizes = history.data.get("num_examples")
    num = sizes.get("test") if isinstance(sizes, dict) else None
    source = str(history.data.get("source", "-"))
    return source if num is None else f"{source}, {shown(num)} images"


def _winner(metric: str, histories: Sequence[History]) -> int | None:
    """Return the run with the best value, if there is one."""
    values: dict[int, float] = {
        i: history.test[metric]
        for i, history in enumerate(histories)
        if _is_number(history.test.get(metric))
    }
    better = BETTER.get(metric)
    if len(values) < 2 or better is None:
        return None
    best = (min if better == "lower" else max)(values.values())
    winners = [i for i, value in values.items() if value == best]
    return winners[0] if len(winners) == 1 else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _curves(histories: Sequence[History], names: Sequence[str]) -> str:
    """Return of each metric a chart for training and one for the validation split."""
    found = [drop_zero_counts(history.curves()) for history in histories]
    span, charts = steps_of(*found), []
    for metric in ordered({name for curves in found for name in curves}):
        for split in ("train", "validation"):
            series = [
                Series(name, points, i, dashed=i >= NUM_COLOURS)
                for i, (name, curves) in enumerate(zip(names, found, strict=True))
                if (points := curves.get(metric, {}).get(split))
            ]
            told = f"{title(metric)}, {'training' if split == 'train' else split}"
            log = metric != "learning_rate"
            charts.append(line_chart(told, series, span=span, log=log))
    charts = [chart for chart in charts if chart]
    hidden = len(charts) - 2 * MAX_CHARTS
    drawn = f'<div class="charts">{"".join(charts[: 2 * MAX_CHARTS])}</div>'
    more = note(f"{hidden} more are left out.") if hidden > 0 else ""
    told = "By step; a number after a name is the last value."
    return section("Curves", drawn if charts else "", more, note=told)


def _differences(histories: Sequence[History], names: Sequence[str]) -> str:
    """Return the fields of the configs that differ."""
    configs = [history.config for history in histories]
    known = [config for config in configs if config is not None]
    rows = []
    for path in paths():
        values = [None if c is None else get(c, path) for c in configs]
        if any(get(c, path) != get(known[0], path) for c in known):
            cells = [
                "-" if config is None else f"<code>{text(repr(value))}</code>"
                for config, value in zip(configs, values, strict=True)
            ]
            rows.append([f"<code>{text(path)}</code>", *cells])
    if not rows:
        return section("Configs", note("They do not differ."))
    told = f"Fields that differ: {len(rows)}."
    return section("Configs", table(["field", *names], rows, pinned=True), note=told)


def _missing(histories: Sequence[History], names: Sequence[str]) -> str:
    notes = [
        note(f"{name}: {told}")
        for name, history in zip(names, histories, strict=True)
        for told in history.missing
    ]
    return section("Left out", *notes)
