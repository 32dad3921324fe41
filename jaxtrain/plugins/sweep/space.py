"""Search space, from which the config overrides of trials are drawn."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jaxtrain import own
from jaxtrain.config import ONE_OF, Config, from_json, get, paths, replace
from jaxtrain.config.base import unchecked
from jaxtrain.config.metadata import with_metadata
from jaxtrain.config.part import make_part, part_tables
from jaxtrain.config.user_code import load_function, running
from jaxtrain.errors import UserError, hint

# Config overrides: JSON values by field path, such as optimizer.learning_rate.
Overrides = dict[str, Any]

FUNCTION = "space"
# Config fields that a search space must not set -> reason.
FIXED = {
    **with_metadata(Config, "fixed_in_trials"),
    "task.name": "one metric ranks all trials",
}


class SearchSpace:
    """Search space: `space(trial) -> {"section.field": value}` from a user's file.

    Args:
      path: Python file that defines the function; the file is executed.
      config: Base config of the trials.

    Raises:
      UserError: The file is missing, raises an error, or lacks the function.
    """

    def __init__(self, path: Path, config: Config):
        self._path, self._config = path, config
        self._function: Callable[[Any], Any] = load_function("--space", path, FUNCTION)

    def draw(self, trial: Any) -> Overrides:
        """Draw the config overrides of an Optuna trial.

        The user's file is trusted, so custom code named by the overrides becomes
        trusted, too.

        Raises:
          UserError: The function raises an error, returns a field that is unknown or in
            `FIXED`, or does not return a dict of JSON values.
        """
        with running(self._path):
            overrides = self._function(trial)
            if not isinstance(overrides, Mapping):
                raise UserError(
                    f"{FUNCTION}() returned {type(overrides).__name__}: return a dict "
                    'such as {"optimizer.learning_rate": 0.1}'
                )
            overrides = _named(overrides)
            known = paths(_with_parts(self._config, overrides))
            for path in overrides:
                self._check_path(path, known)
            try:
                drawn = json.loads(json.dumps(dict(overrides), allow_nan=False))
            except (TypeError, ValueError) as error:
                raise UserError(
                    f"{FUNCTION}() returned a value that JSON does not support "
                    f"({error}): return numbers, strings, True, False, None, and lists "
                    "of these values"
                ) from None
        for value in drawn.values():
            names = value if isinstance(value, list) else [value]
            own.allow(name for name in names if isinstance(name, str))
        return drawn

    def _check_path(self, path: Any, known: list[str]) -> None:
        if path in FIXED:
            raise UserError(
                f"{path} cannot be searched: {FIXED[path]}; remove {path} from the "
                f"dict of {FUNCTION}()"
            )
        section, _, _ = str(path).rpartition(".")
        is_option = section in known and isinstance(get(self._config, section), dict)
        if path not in known and not is_option:
            raise UserError(
                f"{path!r} is not a field of the config; {hint(path, known)}"
            )


def apply(config: Config, overrides: Overrides) -> Config:
    """Apply overrides to a config.

    Some settings have a field in steps and a field in epochs, which exclude each other.
    An override of either field clears the other field.

    Args:
      config: Base config of the trials.
      overrides: Config overrides; `method.name` selects another method.

    Raises:
      UserError: A value, or a combination of values, is invalid.
    """
    overrides = _named(overrides)
    config = _with_parts(config, overrides)
    values = json.loads(json.dumps(dataclasses.asdict(config)))
    for group in ONE_OF.values():
        if any(overrides.get(path) is not None for path in group):
            overrides = {**dict.fromkeys(group), **overrides}
    for path, value in overrides.items():
        section, _, name = path.rpartition(".")
        inner = values
        for part in filter(None, section.split(".")):
            inner = inner[part]
        inner[name] = value
    return from_json(json.dumps(values))


def _named(overrides: Mapping[str, Any]) -> Overrides:
    """Append `.name` to keys that are config parts, such as `optimizer.schedule`."""
    parts = part_tables(Config)
    return {f"{p}.name" if p in parts else p: x for p, x in overrides.items()}


def _with_parts(config: Config, overrides: Mapping[str, Any]) -> Config:
    """Replace config parts, such as the optimizer, whose `name` is overridden.

    A new part keeps the values of fields that the old part has, too; other fields get
    their defaults. The config is not checked here: it may be valid only with the
    remaining overrides.
    """
    with unchecked():
        for path, table in part_tables(config).items():
            part = get(config, path)
            name = overrides.get(f"{path}.name", part.name)
            if name != part.name:
                new = dataclasses.replace(make_part(table, name), **part.shared())
                config = replace(config, path, new)
    return config
