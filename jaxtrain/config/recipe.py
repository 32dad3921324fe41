"""Config files, and the overrides of the command line on top of them."""

import dataclasses
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import tyro

from jaxtrain import config as config_lib
from jaxtrain import own
from jaxtrain.config import Config
from jaxtrain.config.base import unchecked
from jaxtrain.config.checking import checked
from jaxtrain.config.help import answer_help, option_paths, point_to_help
from jaxtrain.config.metadata import with_metadata
from jaxtrain.config.option_words import with_option_words
from jaxtrain.config.overrides import (
    check_shorthands,
    clear_replaced,
    given_values,
    part_words,
    switch_part,
)
from jaxtrain.config.shipped import with_paths
from jaxtrain.config.user_code import load_function, running
from jaxtrain.console import tell
from jaxtrain.errors import UserError
from jaxtrain.json_files.run_id import CONFIG
from jaxtrain.problems import Problem, ProblemsError

Arguments = TypeVar("Arguments")


class WrongValuesError(ProblemsError):
    """The values of a command line are wrong (exit 2).

    Attributes:
      arguments: Those of the command with other values in their place, with which a
        start can be checked for more; None if there are none.
    """

    def __init__(self, problems: Iterable[Problem], arguments: Any) -> None:
        super().__init__(problems)
        self.arguments = arguments


# Weights files of an exported model, in order of preference.
WEIGHTS = ("model.safetensors", "pytorch_model.bin")


def parse(
    kind: type[Arguments],
    words: list[str],
    *,
    prog: str,
    description: str | None = None,
) -> Arguments:
    """Read the config file and apply the overrides of the command line.

    `--config.section.field=VALUE`, as with ml_collections, means
    `--section.field=VALUE`; `--optimizer NAME` switches the part of a section.

    Args:
      kind: a dataclass with the fields `config`, a path (on the command line also the
        name of a recipe) or None, and `overrides`, a Config; its `starting_config`, if
        it has one, is the config without a file.
      prog: what --help shows as the command.
      description: what --help says of it; None: the docstring of `kind`.

    Raises:
      UserError: the config file is missing or wrong, or a value is.
    """
    words = with_paths([re.sub(r"^--config\.", "--", word) for word in words])
    words, switched = part_words(words)
    given = given_values(words)
    path = Path(given["config"]) if given.get("config") else None
    if path is None and "config" in _required(kind):
        path = _config_of_workdir(given)
    # Help without --config shows the defaults of the fields.
    starting: Callable[[dict[str, Any]], Config] | None
    starting = getattr(kind, "starting_config", None)
    config = Config() if starting is None else starting(given)
    if path is not None:
        config = load_config(path)
        if is_saved(path):  # It was where that start was to end.
            config = config_lib.replace(config, "train.stop_after_steps", None)
    for section in switched:
        config = switch_part(config, section, given[f"{section}.name"])
    fields = _required(kind) | {"overrides": clear_replaced(config, given)}
    # A command that can do without a recipe has a default for it.
    default = kind(**fields | ({"config": path} if path else {}))
    with unchecked():
        arguments: Any = _read_words(kind, words, default, prog, description)
    problems, overrides = checked(arguments.overrides, fields["overrides"])
    if overrides is not None:
        arguments = dataclasses.replace(arguments, overrides=overrides)
    named = config_lib.own_references(arguments.overrides)
    # What a saved config names is not allowed by that.
    saved = path is not None and is_saved(path)
    own.allow(name for field, name in named if not saved or field in given)
    if problems:
        raise WrongValuesError(problems, None if overrides is None else arguments)
    return arguments


def _config_of_workdir(given: dict[str, str]) -> Path | None:
    """Return the config of the run that --workdir names, to go on with it.

    Raises:
      UserError: It is no folder of a run, and help is not asked for.
    """
    workdir = given.get("workdir")
    if not workdir or {"help", "help_all"} & given.keys():
        return None
    path = Path(workdir) / CONFIG
    if not (is_run(Path(workdir)) and path.is_file()):
        raise UserError(
            f"--workdir {workdir} holds no run to go on with: give the folder of one, "
            "or the recipe with --config FILE or NAME"
        )
    return path


def is_saved(config: Path) -> bool:
    """Whether --config names the config.json of a run, which is data and no code."""
    return config.suffix == ".json"


def default_folder(config: Path) -> Path:
    """Return the folder of a run without --workdir, and of results without --out.

    Args:
      config: As --config names it.
    """
    return config.parent if is_saved(config) else Path("runs") / config.stem


def parse_of_run(
    kind: type[Arguments], words: list[str], *, prog: str, description: str
) -> Arguments:
    """Parse the arguments of a command on a run's data; its config gives the defaults.

    A replaced source does not inherit splits, nor, if of another kind, the option of
    the targets' place.

    Args:
      kind: A dataclass with the fields `workdir`, a path, and `data`, a DataConfig.

    Raises:
      UserError: the config of the run cannot be read, or a value is wrong.
    """
    words = [re.sub(r"^--config\.", "--", word) for word in words]
    given = given_values(words)
    # Without a run help shows the defaults, and no source: the command tells that there
    # is none, and the default source may be what is given.
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
    arguments: Any = _read_words(kind, words, default, prog, description)
    # What the run's own config names is not allowed by that.
    named = config_lib.own_references(arguments.data, "data.")
    own.allow(name for path, name in named if path in given)
    return arguments


def _read_words(
    kind: type, words: list[str], default: Any, prog: str, description: str | None
) -> Any:
    """Read the command line over a default; after a mistake, point to the help."""
    words = answer_help(words, default, prog=prog, description=description)
    check_shorthands(given_values(words), option_paths(default))
    default, words = with_option_words(default, words)
    try:
        # tyro's messages would point to --help, which is the short one here.
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
            tell(point_to_help(default, prog))
        raise


def _required(kind: Any) -> dict[str, Any]:
    """Return a type of the fields without a default, which tyro asks for."""
    missing = dataclasses.MISSING
    return {
        field.name: tyro.MISSING
        for field in dataclasses.fields(kind)
        if field.default is missing and field.default_factory is missing
    }


def is_run(workdir: Path) -> bool:
    """Say whether a path is the folder of a run, and of no model alone."""
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
            f"--workdir {workdir}: {path} cannot be read (there is no such file): give "
            "the folder of a run"
        )
    return config


def load_config(path: Path) -> Config:
    """Run a config file and return what its `get_config()` makes.

    The `config.json` of a run is read, and never run.

    Raises:
      UserError: the file is missing, has no `get_config`, raises, or returns something
        else.
    """
    if is_saved(path):
        return _read_saved(path)
    if (path / CONFIG).is_file():
        folder, config = (shlex.quote(str(place)) for place in (path, path / CONFIG))
        raise UserError(
            f"--config {path} is the folder of a run: --workdir {folder} goes on with "
            f"it, and --config {config} takes its config"
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
        raise UserError(f"--config {path} is no config of a run: {error}") from None
    if config is None:
        raise UserError(f"--config {path}: no such file")
    return config
