"""Top of the page: description, outcome and results of the run."""

from typing import Any

from jaxtrain import tasks
from jaxtrain.config import Config
from jaxtrain.errors import first_of
from jaxtrain.plugins.report.curves import title
from jaxtrain.plugins.report.history import History
from jaxtrain.plugins.report.pages.text import duration, shown

# Maximum number of tiles with test metrics.
MAX_METRICS = 4
# Maximum number of regression columns whose names are shown.
MAX_COLUMNS = 6

# (value, caption) of a tile.
Tile = tuple[str, str]


def verdict(history: History) -> tuple[str, str]:
    """Outcome of the run: ("good" or "warning", sentence)."""
    step = f"{history.step:,}"
    if history.finished:
        if history.summary.get("stopped_early"):
            sentence = f"Stopped early at step {step}, without further improvement."
            return "good", sentence + _tested(history)
        return "good", f"Finished at step {step}.{_tested(history)}"
    last = history.events()[-1:] or [{}]
    event = str(last[0].get("event", ""))
    if event.startswith("stopped"):
        return "warning", f"Not finished: {event} (step {step})."
    sentence = f"Not finished: recorded up to step {step}"
    if history.checkpoint:
        sentence += f", saved at step {history.checkpoint['step']:,}"
    if history.summary:
        sentence += f"; the summary is from step {shown(history.summary.get('step'))}"
    return "warning", sentence + "."


def _tested(history: History) -> str:
    """Sentence that names the tested checkpoint; empty for the last checkpoint."""
    if history.tested_step == history.step:
        return ""
    return (
        f" The results are from the checkpoint of step {history.tested_step:,}, the "
        "best on the validation split, which evaluate, predict, export and serve use."
    )


def subject(history: History) -> list[str]:
    """Phrases that describe the run: data source, task, image shape and classes."""
    config, model = history.config, history.model
    parts = []
    if config is not None:
        parts.append(config.data.source)
        if config.task.name != Config().task.name:
            parts.append(f"task {config.task.name}")
    if model.get("image_shape"):
        height, width, channels = model["image_shape"]
        parts.append(f"{height}x{width}x{channels} images")
    if model.get("class_names"):
        parts.append(f"{len(model['class_names']):,} classes")
    if history.column_names:
        parts.append(first_of(history.column_names, MAX_COLUMNS))
    return parts


def _first_metrics() -> tuple[str, ...]:
    return (*tasks.first_metrics(), "loss")


def tiles(history: History) -> list[Tile]:
    """Tiles with metrics, training time, model size and throughput."""
    numbers = history.test_numbers
    names = [n for n in _first_metrics() if n in numbers]
    names += [n for n in numbers if n not in names]
    found = [(shown(numbers[n]), f"test {title(n)}") for n in names[:MAX_METRICS]]
    best = history.best
    if best:
        metric, step = str(best.get("metric")), best.get("step")
        caption = f"best validation {title(metric)}, step {shown(step)}"
        found.append((shown(best.get("value")), caption))
        last = history.last_validation.get(metric)
        if history.finished and last is not None and step != history.step:
            caption = f"validation {title(metric)} of the last weights, step "
            found.append((shown(last), f"{caption}{history.step:,}"))
    if not history.test:
        lines = [line for line in history.lines if line["kind"] == "train"]
        last = lines[-1] if lines else {}
        known = [name for name in _first_metrics() if name in last]
        found += [(shown(last[n]), f"training {title(n)}, last") for n in known]
    summary = history.summary
    made = (
        (history.epochs, shown, "epochs"),
        (history.train_seconds, duration, "of training"),
        (summary.get("num_params"), _compact, "parameters"),
        (summary.get("examples_per_second"), _compact, "images per second"),
    )
    return found + [(show(x), caption) for x, show, caption in made if x is not None]


def _compact(value: Any) -> str:
    if isinstance(value, int | float) and value >= 1e6:
        return f"{value / 1e6:.4g} M"
    return shown(value)
