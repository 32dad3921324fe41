"""The fields of a config by their dotted paths; configs as JSON, and compared."""

import dataclasses
import json
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, TypeVar, get_type_hints

from jaxtrain import own
from jaxtrain.config.parallel import MESH_AXES
from jaxtrain.config.root import Config
from jaxtrain.errors import UserError

T = TypeVar("T")

# What may differ between a run and its continuation in the same workdir: it changes
# how a run is carried out, watched or ended, not what it computes.
MAY_CHANGE_ON_RESUME = (
    "logging",
    "checkpoint",
    "parallel.preset",
    *(f"parallel.{axis}" for axis in MESH_AXES),
    "parallel.pipeline_stages",
    "parallel.xla_flags",
    "parallel.heartbeat_seconds",
    "parallel.shutdown_seconds",
    "data.data_dir",
    "data.allow_overlap",
    "data.cache",
    "data.eval_batch_size",
    "data.workers",
    "train.epochs",
    "train.steps",
    "train.examples",
    "train.stop_after_steps",
    "train.steps_per_call",
    "train.remat",
    "train.max_bad_steps",
    "train.metrics",
    "train.step_timeout_seconds",
)
# What says where the data lie: it may change, too, if they are the same data.
WHERE_DATA_LIE = ("data.source", "data.include")


def get(config: Any, path: str) -> Any:
    """Return the value at a dotted path, such as `optimizer.learning_rate`."""
    return attrgetter(path)(config)


def replace(config: T, path: str, value: Any) -> T:
    """Return a copy of `config` with the value at a dotted path replaced."""
    name, _, rest = path.partition(".")
    if rest:
        value = replace(getattr(config, name), rest, value)
    return dataclasses.replace(config, **{name: value})  # type: ignore[type-var]


def paths(section: type = Config, prefix: str = "") -> list[str]:
    """List the dotted paths of all leaf fields."""
    found = []
    for name, hint in get_type_hints(section).items():
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            found += paths(hint, f"{prefix}{name}.")
        else:
            found.append(f"{prefix}{name}")
    return found


def to_json(config: Config) -> str:
    """Return a config as JSON text, which `from_json` reads back."""
    return json.dumps(dataclasses.asdict(config), indent=2) + "\n"


def from_json(text: str) -> Config:
    """Read back what `to_json` wrote.

    Raises:
      UserError: the text is not JSON, or names a field that is not known.
    """
    try:
        return _from_dict(Config, json.loads(text))
    except (json.JSONDecodeError, TypeError, AttributeError) as error:
        raise UserError(f"not a config of this version of jaxtrain: {error}") from None


def own_parts(config: Config) -> dict[str, str]:
    """Return the digest of each file that has a part of the user's own."""
    texts = [get(config, path) for path in paths()]
    names = [n for text in texts for n in (text if isinstance(text, tuple) else [text])]
    return own.digests(name for name in names if isinstance(name, str))


def differences(old: Config, new: Config, *, same_data: bool = False) -> list[str]:
    """List the fields, as `path: old -> new`, that make `new` another training run.

    Args:
      old: the config of the run so far.
      new: the config that it is to go on with.
      same_data: both have the same data, wherever they lie.
    """
    may_change = MAY_CHANGE_ON_RESUME + WHERE_DATA_LIE * same_data
    return [
        f"{path}: {get(old, path)!r} -> {get(new, path)!r}"
        for path in paths()
        if get(old, path) != get(new, path) and not _within(path, may_change)
    ]


def _within(path: str, prefixes: Sequence[str]) -> bool:
    return any(path == p or path.startswith(p + ".") for p in prefixes)


def _from_dict(section: type, values: dict[str, Any]) -> Any:
    """Make a section of the values of its fields; lists become tuples."""
    hints = get_type_hints(section)
    arguments = {}
    for name, value in values.items():
        hint = hints.get(name)
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            value = _from_dict(hint, value)
        elif isinstance(value, list):
            value = tuple(value)
        arguments[name] = value
    return section(**arguments)
