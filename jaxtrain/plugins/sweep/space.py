"""The search space: what a trial changes in the config of a sweep."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jaxtrain import own
from jaxtrain.config import ONE_OF, Config, from_json, get, paths
from jaxtrain.config.metadata import with_metadata
from jaxtrain.config.user_code import load_function, running
from jaxtrain.errors import UserError, hint

# What a trial changes: values of JSON by the paths of their fields.
Overrides = dict[str, Any]

FUNCTION = "space"
# Fields that no trial may change, and why.
FIXED = with_metadata(Config, "fixed_in_trials")


class SearchSpace:
    """The function `space(trial) -> {"section.field": value}` of a user's file.

    Args:
      path: Python file that defines it; loading it runs code of the user.
      config: Config that trials change.

    Raises:
      UserError: The file is missing, raises, or has no such function.
    """

    def __init__(self, path: Path, config: Config):
        self._path, self._config = path, config
        self._function: Callable[[Any], Any] = load_function("--space", path, FUNCTION)

    def draw(self, trial: Any) -> Overrides:
        """Return what a trial of Optuna changes in the config.

        Parts of the user's own that the function names may then be loaded.

        Raises:
          UserError: The function raises, names a field that there is not or that must
            not change, or returns something else than values of JSON by field.
        """
        with running(self._path):
            overrides = self._function(trial)
            if not isinstance(overrides, Mapping):
                raise UserError(
                    f"{FUNCTION}() returned {type(overrides).__name__}, expected a "
                    'dict such as {"optimizer.learning_rate": 0.1}'
                )
            for path in overrides:
                self._check_path(path)
            try:
                drawn = json.loads(json.dumps(dict(overrides), allow_nan=False))
            except (TypeError, ValueError) as error:
                raise UserError(
                    f"{FUNCTION}() returned a value that JSON does not have ({error}): "
                    "give numbers, texts, True, False, None, and lists of them"
                ) from None
        for value in drawn.values():
            names = value if isinstance(value, list) else [value]
            own.allow(name for name in names if isinstance(name, str))
        return drawn

    def _check_path(self, path: Any) -> None:
        if path in FIXED:
            raise UserError(f"{path} cannot be searched: {FIXED[path]}")
        known = paths()
        section, _, _ = str(path).rpartition(".")
        is_option = section in known and isinstance(get(self._config, section), dict)
        if path not in known and not is_option:
            raise UserError(f"{path!r} is no field of the config; {hint(path, known)}")


def apply(config: Config, overrides: Overrides) -> Config:
    """Return a config with other values.

    A length of the run, an interval or a warm-up replaces the one that is set, in
    whatever unit that is.

    Args:
      config: Config of the sweep.
      overrides: Values by field; `task_options.NAME` is one option of several.

    Raises:
      UserError: The values do not fit, alone or together.
    """
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
