"""The head of the page: which run it is, how it ended, and its results."""

from typing import Any

from jaxtrain import tasks
from jaxtrain.pages.numbers import duration, shown
from jaxtrain.report.curves import title
from jaxtrain.report.history import History

# Of the metrics of the test split, those that are shown large.
MAX_METRICS = 4

# A number, and what it is.
Tile = tuple[str, str]


def verdict(history: History) -> tuple[str, str]:
    """Return how the run ended: good, note or warning, and a sentence."""
    step = f"{history.step:,}"
    if history.finished:
        if history.summary.get("stopped_early"):
            told = f"Stopped early at step {step}, as it got no better."
            return "good", told + _tested(history)
        return "good", f"Finished at step {step}.{_tested(history)}"
    last = history.events()[-1:] or [{}]
    event = str(last[0].get("event", ""))
    if event.startswith("stopped"):
        return "warning", f"Not finished: {event} (step {step})."
    told = f"Not finished: told of up to step {step}"
    if history.checkpoint:
        told += f", saved at step {history.checkpoint['step']:,}"
    if history.summary:
        told += f"; the summary is of step {shown(history.summary.get('step'))}"
    return "warning", told + "."


def _tested(history: History) -> str:
    """Say of which weights the results are, unless they are of the last."""
    if history.tested_step == history.step:
        return ""
    return (
        f" The results are of the checkpoint of step {history.tested_step:,}, the best "
        "on the validation split: evaluate, predict, export and serve take it, too."
    )


def subject(history: History) -> list[str]:
    """Return what was trained on, and what for."""
    config, model = history.config, history.model
    parts = []
    if config is not None:
        parts.append(config.data.source)
        if config.task != "classification":
            parts.append(f"task {config.task}")
    if model.get("image_shape"):
        height, width, channels = model["image_shape"]
        parts.append(f"{height}x{width}x{channels} images")
    if model.get("class_names"):
        parts.append(f"{len(model['class_names']):,} classes")
    return parts


def tiles(history: History) -> list[Tile]:
    """Return the results, and what they took."""
    found = []
    numbers = {n: v for n, v in history.test.items() if isinstance(v, int | float)}
    first = [n for n in (*tasks.FIRST, "loss") if n in numbers]
    others = [n for n in numbers if n not in (*first, "num_examples")]
    for name in (first + others)[:MAX_METRICS]:
        found.append((shown(numbers[name]), f"test {title(name)}"))
    best = history.best
    if best:
        where = f"best validation {title(str(best.get('metric')))}, step "
        where += shown(best.get("step"))
        found.append((shown(best.get("value")), where))
        last = history.last_validation.get(str(best.get("metric")))
        if history.finished and last is not None and best.get("step") != history.step:
            told = f"validation {title(str(best.get('metric')))} of the last weights, "
            found.append((shown(last), f"{told}step {history.step:,}"))
    if not history.test:
        found += _last(history)
    epochs = [line["epoch"] for line in history.lines if "epoch" in line]
    if epochs:
        found.append((shown(epochs[-1]), "epochs"))
    seconds = train_seconds(history)
    if seconds is not None:
        found.append((duration(seconds), "of training"))
    for name, told in (
        ("num_params", "parameters"),
        ("examples_per_second", "images per second"),
    ):
        value = history.summary.get(name)
        if value is not None:
            found.append((_compact(value), told))
    return found


def _last(history: History) -> list[Tile]:
    """Return tiles of the last line of training, where there is no result yet."""
    lines = [line for line in history.lines if line["kind"] == "train"]
    return [
        (shown(lines[-1][name]), f"training {title(name)}, last")
        for name in (*tasks.FIRST, "loss")
        if lines and name in lines[-1]
    ]


def train_seconds(history: History) -> Any:
    """Return the seconds that the run has trained for; None: not known."""
    source = history.summary if history.finished else history.progress
    return source.get("train_seconds")


def _compact(value: Any) -> str:
    if isinstance(value, int | float) and value >= 1e6:
        return f"{value / 1e6:.4g} M"
    return shown(value)
