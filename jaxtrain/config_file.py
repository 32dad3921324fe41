"""Config files, and the overrides of the command line on top of them."""

import dataclasses
import re
import runpy
import traceback
from pathlib import Path
from typing import Any, TypeVar, cast

import tyro

from jaxtrain import config as config_lib
from jaxtrain.config import Config
from jaxtrain.errors import UserError, hint

Arguments = TypeVar("Arguments")


def parse(
    kind: type[Arguments],
    words: list[str],
    *,
    prog: str,
    description: str | None = None,
) -> Arguments:
    """Read the config file and apply the overrides of the command line.

    `--config.section.field=VALUE`, as with ml_collections, means
    `--section.field=VALUE`.

    Args:
      kind: a dataclass with the fields `config`, a path, and `overrides`, a Config.
      words: the command line.
      prog: what --help shows as the command.
      description: what --help says of it; None: the docstring of `kind`.

    Raises:
      UserError: the config file is missing or wrong, or a value is.
    """
    words = [re.sub(r"^--config\.", "--", word) for word in words]
    path = _config_path(words)
    # Help without --config shows the defaults of the fields.
    config = Config() if path is None else load_config(path)
    config = _clear_replaced(config, words)
    fields = dataclasses.fields(cast(Any, kind))
    values = {f.name: tyro.MISSING for f in fields if f.default is dataclasses.MISSING}
    values |= {"config": path or tyro.MISSING, "overrides": config}
    return tyro.cli(
        kind, args=words, default=kind(**values), prog=prog, description=description
    )


def load_config(path: Path) -> Config:
    """Run a config file and return what its `get_config()` makes.

    Raises:
      UserError: the file is missing, has no `get_config`, raises, or returns something
        else.
    """
    if not path.is_file():
        known = sorted(str(p) for p in path.parent.glob("*.py"))
        raise UserError(f"--config {path}: no such file; {hint(str(path), known)}")
    try:
        get_config = runpy.run_path(str(path)).get("get_config")
        if not callable(get_config):
            raise UserError(f"{path} does not define get_config()")
        config = get_config()
    except UserError as error:
        raise UserError(f"{path}{_line(error, path)}: {error}") from None
    except Exception as error:
        message = f"{path}{_line(error, path)}: {type(error).__name__}: {error}"
        raise UserError(message + _suggest_field(error)) from error
    if not isinstance(config, Config):
        raise UserError(
            f"{path}: get_config() returned {type(config).__name__}, expected "
            "jaxtrain.config.Config"
        )
    return config


def _config_path(words: list[str]) -> Path | None:
    path = _values(words).get("config")
    return Path(path) if path else None


def _clear_replaced(config: Config, words: list[str]) -> Config:
    """Unset what an override replaces: `--train.steps` the file's `train.epochs`.

    `None` replaces nothing: it unsets its own field.
    """
    given = {path for path, value in _values(words).items() if value != "None"}
    for group in config_lib.ONE_OF:
        if given & set(group):
            old = {path: config_lib.get(config, path) for path in group}
            named = [path for path, value in old.items() if value is not None]
            for path in set(named) - given:
                replacement = next(iter(given & set(group)))
                config = _swap(config, path, replacement)
    return config


def _values(words: list[str]) -> dict[str, str]:
    """Return the first word that follows each option; given twice, the last counts."""
    values = {}
    for word, following in zip(words, [*words[1:], ""], strict=True):
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


def _line(error: BaseException, path: Path) -> str:
    """Return `:LINE` of the config file that an error came from."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if f.filename == str(path)]
    if isinstance(error, SyntaxError):
        lines = [error.lineno]
    return f":{lines[-1]}" if lines else ""


def _suggest_field(error: Exception) -> str:
    """Name the field that a misspelt one in a config file was meant to be."""
    match = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if not match:
        return ""
    known = sorted({name for path in config_lib.paths() for name in path.split(".")})
    return "; " + hint(match[1], known)
