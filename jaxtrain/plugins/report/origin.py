"""Provenance of a run: data, system, times, events and config."""

from datetime import UTC, datetime
from typing import Any, NamedTuple

from jaxtrain.config import Config, values_of
from jaxtrain.plugins.report.history import History, is_number
from jaxtrain.plugins.report.pages.text import share, shown
from jaxtrain.trainer.advice import advise

MAX_EVENTS = 40
# Display names of the activities timed by `trainer/clock.py`, in page order.
ACTIVITIES = {
    "step": "training steps",
    "data_wait": "waiting for data",
    "compile": "compilation",
    "evaluation": "evaluations",
    "checkpoint": "checkpoints",
    "lost": "lost to restarts",
    "setup": "start",
    "other": "other",
}
# Maximum Unix time to format, in seconds: `datetime` supports years up to 9999.
MAX_TIME = 253_000_000_000
# Keys of an event that the details column omits.
PLACE = {"kind", "step", "epoch", "time", "event"}


def data(history: History) -> dict[str, str]:
    """Properties of the training data, by display name."""
    found, model = history.data, history.model
    pairs = {}
    if "source" in found:
        pairs["source"] = str(found["source"])
    for split, num in (found.get("num_examples") or {}).items():
        pairs[f"{split} images"] = shown(num)
    if shape := model.get("image_shape"):
        pairs["size (height x width x channels)"] = "x".join(map(str, shape))
    if found.get("num_classes") is not None:
        pairs["classes"] = shown(found["num_classes"])
    for name, key in (("mean of the channels", "mean"), ("standard deviation", "std")):
        if model.get(key):
            pairs[name] = ", ".join(f"{value:.4f}" for value in model[key])
    if found.get("digest"):
        pairs["digest"] = str(found["digest"])[:16]
    return pairs


def system(history: History) -> dict[str, str]:
    """Hardware and software of the run, by display name."""
    found, config = history.summary, history.config
    pairs = {}
    if "device_kind" in found:
        pairs["devices"] = f"{shown(found.get('num_devices'))} x {found['device_kind']}"
        pairs["processes"] = shown(found.get("num_processes"))
    if config is not None:
        pairs |= {"precision": config.precision, "mesh": config.parallel.preset}
    if "pipeline_idle_share" in found:
        pairs["pipeline idle"] = share(found["pipeline_idle_share"])
    versions = found.get("versions") or history.checkpoint.get("versions") or {}
    return {**pairs, **versions}


def times(history: History) -> dict[str, float]:
    """Wall-clock seconds per activity, by display name; empty if unknown."""
    known = _seconds(history)
    if known:
        return {
            title: known[name] for name, title in ACTIVITIES.items() if known.get(name)
        }
    found, total = history.summary, history.train_seconds
    if not is_number(total):
        return {}
    steps = history.progress.get("step_seconds")
    speed, config = found.get("examples_per_second"), history.config
    if history.finished and speed and config is not None:
        steps = history.step * config.data.batch_size / speed
    parts = {}
    if is_number(steps):
        parts["training steps"] = min(steps, total)
        parts["evaluations, checkpoints and other"] = max(0.0, total - steps)
    compiling = found.get("compile_seconds") if history.finished else None
    if is_number(compiling):
        parts["compilation at the last start"] = compiling
    return parts


def advice(history: History) -> list[str]:
    """Bottlenecks of the run, with suggestions."""
    mfu, config = history.summary.get("mfu"), history.config
    known = mfu if is_number(mfu) else None
    return advise(_seconds(history), known, config)


def _seconds(history: History) -> dict[str, float]:
    """Wall-clock seconds per activity; {} if any value is invalid."""
    found = history.seconds
    return found if all(map(is_number, found.values())) else {}


def moments(history: History) -> dict[str, str]:
    """Earliest and latest UTC time in metrics.jsonl, by display name."""
    times = [line.get("time") for line in history.lines]
    known = [t for t in times if isinstance(t, float) and 0 < t < MAX_TIME]
    if not known:
        return {}
    ends = {"first record of metrics": min(known), "last record": max(known)}
    return {
        name: f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S} UTC"
        for name, moment in ends.items()
    }


class Events(NamedTuple):
    """First events of a run.

    Attributes:
      first: Tuples (step, name, details), in order.
      num_more: Number of later events, which the page omits.
    """

    first: list[tuple[int, str, str]]
    num_more: int


def events(history: History) -> Events:
    """First `MAX_EVENTS` events of a run, and the number of the remaining events."""
    found = history.events()
    first = [
        (event["step"], str(event.get("event", "")), _details(event))
        for event in found[:MAX_EVENTS]
    ]
    return Events(first, len(found) - len(first))


def _details(event: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {shown(value)}"
        for name, value in event.items()
        if name not in PLACE and not isinstance(value, list | dict)
    )


class ConfigField(NamedTuple):
    """Config field with its value and its default, formatted for the page."""

    path: str
    value: str
    default: str
    changed: bool


def fields(config: Config) -> list[ConfigField]:
    """Fields of a config, with their defaults."""

    def code(value: Any) -> str:
        return value if isinstance(value, str) else repr(value)

    default = Config()
    defaults = values_of(default)
    found = ((p, x, defaults.get(p)) for p, x in values_of(config).items())
    return [ConfigField(p, code(v), code(d), v != d) for p, v, d in found]
