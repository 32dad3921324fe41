"""What the overrides of the command line replace in a recipe."""

import dataclasses

from jaxtrain.config.fields import get
from jaxtrain.config.optimizer import OptimizerConfig
from jaxtrain.config.root import ONE_OF, Config
from jaxtrain.config.train import SET_BY_FINE_TUNE
from jaxtrain.console import tell


def clear_replaced(config: Config, words: list[str]) -> Config:
    """Unset what an override replaces: `--train.steps` the file's `train.epochs`.

    `None` replaces nothing: it unsets its own field.
    """
    given = {path for path, value in given_values(words).items() if value != "None"}
    for group in ONE_OF:
        if given & set(group):
            old = {path: get(config, path) for path in group}
            named = [path for path, value in old.items() if value is not None]
            for path in set(named) - given:
                replacement = next(iter(given & set(group)))
                config = _swap(config, path, replacement)
    return _clear_schedule(config, words)


def _clear_schedule(config: Config, words: list[str]) -> Config:
    """Unset what `--train.fine-tune True` replaces in the file, and tell of it."""
    given, default = given_values(words), OptimizerConfig()
    if given.get("train.fine_tune") != "True" or config.train.fine_tune:
        return config
    replaced = {
        name: value
        for name in SET_BY_FINE_TUNE
        if (value := getattr(config.optimizer, name)) != getattr(default, name)
        and f"optimizer.{name}" not in given
    }
    if not replaced:
        return config
    shown = ", ".join(f"optimizer.{n} = {value!r}" for n, value in replaced.items())
    tell(f"train.fine_tune has a schedule of its own and replaces the recipe's {shown}")
    changes = {name: getattr(default, name) for name in replaced}
    optimizer = dataclasses.replace(config.optimizer, **changes)
    return dataclasses.replace(config, optimizer=optimizer)


def given_values(words: list[str]) -> dict[str, str]:
    """Return the first word that follows each option; given twice, the last counts."""
    values = {}
    for word, following in zip(words, [*words, ""][1:], strict=True):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            path = name.removeprefix("--").replace("-", "_")
            values[path] = value if equals else following
    return values


def _swap(config: Config, old: str, new: str) -> Config:
    """Unset `old` and set `new` to a placeholder: the override follows at once."""
    section, name = old.split(".")
    values = {name: None, new.split(".")[1]: 1}
    changed = dataclasses.replace(getattr(config, section), **values)
    return dataclasses.replace(config, **{section: changed})
