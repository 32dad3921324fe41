"""Config files and their command-line overrides."""

import dataclasses
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import tyro

from jaxtrain import config as config_lib, own
from jaxtrain.config import Config
from jaxtrain.config.base import unchecked
from jaxtrain.config.checking import checked
from jaxtrain.config.help import answer_help, point_to_help
from jaxtrain.config.metadata import with_metadata
from jaxtrain.config.option_words import with_option_words
from jaxtrain.config.overrides import (
    check_part_options,
    check_shorthands,
    clear_replaced,
    given_values,
    switch_part,
    take_part_names,
)
from jaxtrain.config.shipped import with_paths
from jaxtrain.config.user_code import load_function, running
from jaxtrain.console import print_stderr
from jaxtrain.errors import UserError
from jaxtrain.json_files.run_id import CONFIG
from jaxtrain.problems import Problem, ProblemsError

Arguments = TypeVar("Arguments")


class WrongValuesError(ProblemsError):
    """The command line has invalid values (exit code 2).

    Attributes:
      arguments: Arguments with the invalid values replaced by defaults, for further
        checks; None if they are still invalid.
    """

    def __init__(self, problems: Iterable[Problem], arguments: Any) -> None:
        super().__init__(problems)
        self.arguments = arguments


# Weight files of an exported model, in order of preference.
WEIGHTS = ("model.safetensors", "pytorch_model.bin")


def parse(
    kind: type[Arguments],
    words: list[str],
    *,
    prog: str,
    description: str | None = None,
) -> Arguments:
    """Read the config file, and apply the command-line overrides.

    `--config.section.field=VALUE`, as with ml_collections, means
    `--section.field=VALUE`. `--optimizer NAME` selects an optimizer with its default
    options; `--model`, `--task`, `--method` and `--optimizer.schedule` likewise.

    Args:
      kind: Dataclass with the fields `config` (path of a config file, or None) and
        `overrides` (a `Config`). On the command line, `--config` may also name a
        recipe. Without --config, the optional method `starting_config` of the
        dataclass creates the config from the given options.
      prog: Name of the command in the help.
      description: Description of the command in the help; None uses the docstring of
        `kind`.

    Raises:
      UserError: The config file is missing or invalid, or a value is invalid.
    """
    words = with_paths([re.sub(r"^--config\.", "--", word) for word in words])
    given = given_values(words)
    words, names = take_part_names(words)
    given |= {f"{part}.name": name for part, name in names.items()}
    path = Path(given["config"]) if given.get("config") else None
    if path is None and "config" in _required(kind):
        path = _config_of_workdir(given)
    # Help without --config shows the defaults of the fields.
    starting: Callable[[dict[str, Any]], Config] | None
    starting = getattr(kind, "starting_config", None)
    config = Config() if starting is None else starting(given)
    if path is not None:
        config = load_config(path)
        if is_saved(path):  # `stop_after_steps` does not apply to the resumed run.
            config = config_lib.replace(config, "train.stop_after_steps", None)
    for part, name in names.items():
        config = switch_part(config, part, name)
    fields = _required(kind) | {"overrides": clear_replaced(config, given)}
    # A command for which the recipe is optional has a default for `config`.
    default = kind(**fields | ({"config": path} if path else {}))
    check_shorthands(given, default)
    check_part_options(config, given)
    with unchecked():
        arguments: Any = _read_words(kind, words, default, prog, description)
    problems, overrides = checked(arguments.overrides, fields["overrides"])
    if overrides is not None:
        arguments = dataclasses.replace(arguments, overrides=overrides)
    named = config_lib.own_references(arguments.overrides)
    # Custom code named only in a saved config is not allowed to run.
    saved = path is not None and is_saved(path)
    own.allow(name for field, name in named if not saved or field in given)
    if problems:
        raise WrongValuesError(problems, None if overrides is None else arguments)
    return arguments


def _config_of_workdir(given: dict[str, str]) -> Path | None:
    """Return the path of the config in --workdir; None without it, or with --help.

    Raises:
      UserError: --workdir is not the directory of a run.
    """
    workdir = given.get("workdir")
    if not workdir or {"help", "help_all"} & given.keys():
        return None
    path = Path(workdir) / CONFIG
    if not (is_run(Path(workdir)) and path.is_file()):
        raise UserError(
            f"--workdir {workdir} contains no run to resume: give the directory of a "
            "run, or a recipe with --config NAME or --config FILE"
        )
    return path


def is_saved(config: Path) -> bool:
    """Whether --config is the config.json of a run instead of Python code."""
    return config.suffix == ".json"


def default_folder(config: Path) -> Path:
    """Return the default of --workdir, and of --out in other commands.

    Args:
      config: Path of the config file.
    """
    return config.parent if is_saved(config) else Path("runs") / config.stem


def parse_of_run(
    kind: type[Arguments], words: list[str], *, prog: str, description: str
) -> Arguments:
    """Parse the arguments of a command, with defaults from a run's `data` section.

    A new `data.source` does not inherit the run's splits, and a source of another type
    does not inherit the options for targets either.

    Args:
      kind: Dataclass with the fields `workdir` (a path) and `data` (a `DataConfig`).

    Raises:
      UserError: The config of the run cannot be read, or a value is invalid.
    """
    words = [re.sub(r"^--config\.", "--", word) for word in words]
    given = given_values(words)
    # Without a run, the default source is empty, so that any --data.source counts as a
    # new source, even `digits`. The command reports the missing run.
    data, workdir = config_lib.DataConfig(source=""), Path(given.get("workdir", ""))
    if is_run(workdir) and (workdir / CONFIG).is_file():
        data = read_run(workdir).data
    if given.get("data.source", data.source) != data.source:
        defaults = config_lib.DataConfig(source=given["data.source"])
        kinds = [x.source.partition(":")[0] for x in (data, defaults)]
        of_source = with_metadata(config_lib.DataConfig, "of_source")
        changes = {
            name: getattr(defaults, name)
            for name, of in of_source.items()
            if of != "kind" or kinds[0] != kinds[1]
        }
        data = dataclasses.replace(data, source=defaults.source, **changes)
    default = kind(**_required(kind) | {"data": data})
    check_shorthands(given, default)
    arguments: Any = _read_words(kind, words, default, prog, description)
    # Custom code named only in the run's config is not allowed to run.
    named = config_lib.own_references(arguments.data, "data.")
    own.allow(name for path, name in named if path in given)
    return arguments


def _read_words(
    kind: type, words: list[str], default: Any, prog: str, description: str | None
) -> Any:
    """Parse the command line with defaults; error messages point to the help."""
    words = answer_help(words, default, prog=prog, description=description)
    default, words = with_option_words(default, words)
    try:
        # tyro's messages would point to --help, which lists only the common options.
        return tyro.cli(
            kind,
            args=words,
            default=default,
            prog=prog,
            description=description,
            add_help="--help" in words,
        )
    except SystemExit as end:
        if end.code:
            print_stderr(point_to_help(default, prog))
        raise


def _required(kind: Any) -> dict[str, Any]:
    """Map the dataclass fields without a default to `tyro.MISSING`."""
    missing = dataclasses.MISSING
    return {
        field.name: tyro.MISSING
        for field in dataclasses.fields(kind)
        if field.default is missing and field.default_factory is missing
    }


def is_run(workdir: Path) -> bool:
    """Whether a path is the directory of a run, not of a model in timm's format."""
    holds_model = any((workdir / name).exists() for name in WEIGHTS)
    return workdir.is_dir() and not holds_model


def read_run(workdir: Path) -> Config:
    """Return the config of a run."""
    path = workdir / CONFIG
    try:
        config = config_lib.read_config(path)
    except UserError as error:
        raise UserError(f"--workdir {workdir}: {error}") from None
    if config is None:
        raise UserError(
            f"--workdir {workdir}: {path} does not exist: give the directory of a run"
        )
    return config


def load_config(path: Path) -> Config:
    """Execute a config file, and return the result of its `get_config()`.

    The `config.json` of a run is read as data, never executed.

    Raises:
      UserError: The file is missing, raises an error, has no `get_config`, or
        `get_config` does not return a `Config`.
    """
    if is_saved(path):
        return _read_saved(path)
    if (path / CONFIG).is_file():
        folder, config = (shlex.quote(str(place)) for place in (path, path / CONFIG))
        raise UserError(
            f"--config {path} is the directory of a run: resume the run with --workdir "
            f"{folder}, or start a new run from its config with --config {config}"
        )
    get_config = load_function("--config", path, "get_config")
    with running(path):
        config = get_config()
    if not isinstance(config, Config):
        raise UserError(
            f"{path}: get_config() returned {type(config).__name__}, expected "
            "jaxtrain.config.Config"
        )
    return config


def _read_saved(path: Path) -> Config:
    try:
        config = config_lib.read_config(path)
    except UserError as error:
        raise UserError(
            f"--config {path} is not the config.json of a run: {error}"
        ) from None
    if config is None:
        raise UserError(f"--config {path}: no such file")
    return config
