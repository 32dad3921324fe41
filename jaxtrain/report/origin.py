"""Where a run comes from: its data, its system, its time, its config."""

from datetime import UTC, datetime
from typing import Any

from jaxtrain.config import Config, get, paths
from jaxtrain.pages.page import facts, note, section, table, text
from jaxtrain.report.again import write_recipe
from jaxtrain.report.history import History
from jaxtrain.report.numbers import duration, share, shown
from jaxtrain.report.overview import train_seconds

MAX_NAMES = 30
MAX_EVENTS = 40
# The year 9999, in seconds since 1970.
MAX_TIME = 253_000_000_000
# Of an event: where and when, and lists of examples.
PLACE = {"kind", "step", "epoch", "time", "event"}


def data(history: History) -> str:
    """Return what the run learnt from."""
    found, model = history.data, history.model
    pairs: dict[str, object] = {}
    if "source" in found:
        pairs["source"] = found["source"]
    for split, num in (found.get("num_examples") or {}).items():
        pairs[f"{split} images"] = shown(num)
    if model.get("image_shape"):
        pairs["size (height x width x channels)"] = "x".join(
            map(str, model["image_shape"])
        )
    if found.get("num_classes") is not None:
        pairs["classes"] = shown(found["num_classes"])
    for name, key in (("mean of the channels", "mean"), ("deviation", "std")):
        if model.get(key):
            pairs[name] = ", ".join(f"{value:.4f}" for value in model[key])
    if found.get("digest"):
        pairs["digest"] = str(found["digest"])[:16]
    names = list(history.class_names or ())
    told = ""
    if names:
        more = f" and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else ""
        told = note("Classes: " + ", ".join(names[:MAX_NAMES]) + more)
    return section("Data", facts(pairs), told)


def system(history: History) -> str:
    """Return what it ran on."""
    found = history.summary
    pairs: dict[str, object] = {}
    if "device_kind" in found:
        pairs["devices"] = f"{shown(found.get('num_devices'))} x {found['device_kind']}"
        pairs["processes"] = shown(found.get("num_processes"))
    config = history.config
    if config is not None:
        pairs["precision"] = config.precision
        pairs["mesh"] = config.parallel.preset
    if "pipeline_idle_share" in found:
        pairs["pipeline idle"] = share(found["pipeline_idle_share"])
    versions = found.get("versions") or history.checkpoint.get("versions") or {}
    return section("System", facts({**pairs, **versions}))


def time(history: History) -> str:
    """Return how long it took, and what for."""
    found, progress = history.summary, history.progress
    total, when = train_seconds(history), facts(_moments(history))
    if not isinstance(total, int | float):
        told = note("What it went into is not known: nothing was saved.")
        return section("Time", when, told)
    steps = progress.get("step_seconds")
    speed, config = found.get("examples_per_second"), history.config
    if history.finished and speed and config is not None:
        steps = history.step * config.data.batch_size / speed
    parts = {}
    if isinstance(steps, int | float):
        parts["training steps"] = min(steps, total)
        parts["evaluations, checkpoints and the rest"] = max(0.0, total - steps)
    compiling = found.get("compile_seconds") if history.finished else None
    if isinstance(compiling, int | float):
        parts["compilation, of the last start"] = compiling
    whole = sum(parts.values())
    if not whole:
        return section("Time", when, note(f"{duration(total)} of training."))
    stack = "".join(
        f'<i class="k{i}" style="width:{100 * value / whole:.2f}%"></i>'
        for i, value in enumerate(parts.values())
    )
    legend = "".join(
        f'<span class="k{i}"><i></i>{text(name)}: {duration(value)}, '
        f"{share(value / whole)}</span>"
        for i, (name, value) in enumerate(parts.items())
    )
    drawn = f'<div class="stack">{stack}</div><div class="legend">{legend}</div>'
    return section("Time", when, f'<div style="margin-top:.9rem">{drawn}</div>')


def _moments(history: History) -> dict[str, str]:
    """Return when the first and the last line of metrics were written."""
    moments = [line["time"] for line in history.lines if _is_time(line.get("time"))]
    if not moments:
        return {}
    ends = {"first line of metrics": min(moments), "last line": max(moments)}
    return {
        name: f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S} UTC"
        for name, moment in ends.items()
    }


def _is_time(value: Any) -> bool:
    return isinstance(value, float) and 0 < value < MAX_TIME


def events(history: History) -> str:
    """Return what happened on the way."""
    found = history.events()
    rows = [
        [shown(event["step"]), text(event.get("event", "")), text(_details(event))]
        for event in found[:MAX_EVENTS]
    ]
    hidden = len(found) - len(rows)
    more = note(f"{hidden:,} more are in metrics.jsonl.") if hidden else ""
    head = ["step", "event", "details"]
    return section("Events", table(head, rows, numbers=(0,)), more) if rows else ""


def _details(event: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {shown(value)}"
        for name, value in event.items()
        if name not in PLACE and not isinstance(value, list | dict)
    )


def config(history: History) -> str:
    """Return all fields of the config, those first that differ from the defaults."""
    found = history.config
    if found is None:
        return section("Config", note("config.json cannot be read by this version."))
    default = Config()
    changed = [p for p in paths() if get(found, p) != get(default, p)]
    rows = [
        [_code(path), _code(_value(found, path)), _code(_value(default, path))]
        for path in changed
    ]
    rest = [p for p in paths() if p not in changed]
    same = [[_code(path), _code(_value(found, path))] for path in rest]
    return section(
        "Config",
        table(["differs from the default", "value", "default"], rows),
        f"<details><summary>{len(rest)} fields have their default</summary>"
        f"{table(['field', 'value'], same)}</details>",
    )


def again(history: History) -> str:
    """Return how the run is made again."""
    found = history.config
    if found is None:
        return ""
    command = "python main.py --config again.py --workdir runs/again"
    return section(
        "Make this run again",
        f"<pre>{text(command)}</pre><details open><summary>again.py</summary>"
        f"<pre>{text(write_recipe(found))}</pre></details>",
        note="Save the recipe as again.py, where the run was started: paths in it are "
        "from there.",
    )


def _value(config: Config, path: str) -> str:
    value = get(config, path)
    return value if isinstance(value, str) else repr(value)


def _code(value: str) -> str:
    return f"<code>{text(value)}</code>"
