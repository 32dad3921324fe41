"""Command-line overrides of the config, and option names of other tools."""

import dataclasses
from typing import Any

from jaxtrain import own
from jaxtrain.config.base import default_of, unchecked
from jaxtrain.config.fields import get, replace
from jaxtrain.config.help import option_paths
from jaxtrain.config.metadata import with_metadata
from jaxtrain.config.optimizer import OptimizerConfig
from jaxtrain.config.part import CustomConfig, Part, make_part, owners_of, part_tables
from jaxtrain.config.root import ONE_OF, Config
from jaxtrain.console import print_stderr
from jaxtrain.errors import UserError, first_of, nearest
from jaxtrain.registry import NUM_OWNERS, unknown

# Command option -> names in timm, PyTorch Lightning, Keras, fastai and Ultralytics. For
# config fields such names are in the metadata `other_names`.
OF_COMMANDS = {
    "workdir": "out_dir output output_dir save_dir",
    "platform": "device",
}


def given_values(words: list[str]) -> dict[str, str]:
    """Map the field path of each option to the first value that follows the option.

    If an option is repeated, the value is from the last occurrence.
    """
    values = {}
    for word, following in zip(words, [*words, ""][1:], strict=True):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            path = name.removeprefix("--").replace("-", "_")
            values[path] = value if equals else following
    return values


def take_part_names(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """Split command-line arguments into options that select parts, and all others.

    Options that select parts are, for example, `--optimizer NAME`, `--optimizer.name
    NAME` and `--optimizer.schedule NAME`.

    Returns:
      All other arguments; and the selected names by path of the part.

    Raises:
      UserError: An option has no value.
    """
    tables = part_tables(Config)
    options = {f"--{path}{end}": path for path in tables for end in ("", ".name")}
    found, names = list[str](), dict[str, str]()
    following = iter(words)
    for word in following:
        option, equals, value = word.partition("=")
        path = options.get(option)
        if path is None:
            found.append(word)
            continue
        if not equals:
            value = next(following, "")
        if not value or value.startswith("--"):
            known = ", ".join(tables[path].resolve())
            raise UserError(f"--{path} needs a name: one of {known}, or {own.FORMS}")
        names[path] = value
    return found, {path: names[path] for path in tables if path in names}


def switch_part(config: Config, path: str, name: str) -> Config:
    """Replace a part by another part of its table, with default options.

    Fields that all parts of the table have, such as the learning rate, are unchanged.

    Args:
      config: Config of the recipe.
      path: Path of the part, such as `optimizer.schedule`.
      name: Name of the new part. `check_names` rejects unknown names later.
    """
    part, table = get(config, path), part_tables(config)[path]
    if part.name == name:
        return config
    with unchecked():
        new = dataclasses.replace(make_part(table, name), **part.shared())
        switched = replace(config, path, new)
    if options := part.changed():
        shown = ", ".join(f"{path}.{n} = {value!r}" for n, value in options.items())
        print_stderr(
            f"--{path} {name} ignores the recipe's {part.name} options: {shown}"
        )
    return switched


def clear_replaced(config: Config, given: dict[str, str]) -> Config:
    """Unset fields that overrides replace, such as `train.epochs` for `--train.steps`.

    Args:
      given: Options of the command line from `given_values`. An option with the value
        `None` replaces no other field.
    """
    for group in ONE_OF.values():
        new = [path for path in group if given.get(path, "None") != "None"]
        old = [path for path in group if get(config, path) is not None]
        if new and old and old[0] not in new:
            # 1 is a placeholder until the override is applied.
            section, _, name = old[0].partition(".")
            values = {name: None, new[0].partition(".")[2]: 1}
            changed = dataclasses.replace(get(config, section), **values)
            config = replace(config, section, changed)
    return _clear_schedule(config, given)


def _clear_schedule(config: Config, given: dict[str, str]) -> Config:
    if given.get("train.fine_tune") != "True" or config.train.fine_tune:
        return config
    optimizer = config.optimizer
    values = {
        name: getattr(optimizer, name)
        for name in with_metadata(OptimizerConfig, "set_by_fine_tune", inherit=False)
        if not any(f"{path}.".startswith(f"optimizer.{name}.") for path in given)
    }
    replaced = {n: x for n, x in values.items() if x != default_of(optimizer, n)}
    if not replaced:
        return config
    shown = ", ".join(
        f"optimizer.{name} = {(value.name if isinstance(value, Part) else value)!r}"
        for name, value in replaced.items()
    )
    print_stderr(f"train.fine_tune sets the schedule and replaces the recipe's {shown}")
    changes = {name: default_of(optimizer, name) for name in replaced}
    return replace(config, "optimizer", dataclasses.replace(optimizer, **changes))


def check_part_options(config: Config, given: dict[str, str]) -> None:
    """Reject options that the selected part, such as the optimizer, does not have.

    Args:
      config: Config with the selected parts.
      given: Options of the command line from `given_values`.

    Raises:
      UserError: A selected part does not have the option.
    """
    tables = part_tables(config)
    for path, value in given.items():
        owner = max(
            (p for p in tables if path.startswith(f"{p}.")), key=len, default=""
        )
        name = path.removeprefix(f"{owner}.")
        if not owner or hasattr(part := get(config, owner), name.partition(".")[0]):
            continue
        if isinstance(part, CustomConfig):
            if not own.is_own(part.name):
                raise UserError(unknown(tables[owner].resolve(), owner, part.name))
            raise UserError(
                f"{_option(path)}: {part.name} is custom code: write "
                f"--{owner}.options {name} {value}".rstrip()
            )
        owners = owners_of(tables[owner], name)
        known = part.arguments()
        options = [_option(f"{owner}.{n}") for n in (*known, *part.shared())]
        told = nearest(_option(path), options)
        if owners:
            told = f"; {name} is an option of {first_of(owners, NUM_OWNERS)}"
        raise UserError(
            f"{_option(path)}: no such option; {part.name} has "
            f"{', '.join(known) or 'no options'}{told}"
        )


def shorthands(default: Any) -> dict[str, str]:
    """Map option names of other tools to the paths of jaxtrain's options.

    Args:
      default: Default arguments of a command, with values of the config file.
    """
    names = {**with_metadata(default, "other_names", inherit=False), **OF_COMMANDS}
    # The prefix `overrides` is omitted on the command line.
    return {
        other: path.removeprefix("overrides.")
        for path, others in names.items()
        for other in others.split()
    }


def check_shorthands(given: dict[str, str], default: Any) -> None:
    """Reject option names of other tools; the message gives jaxtrain's name.

    Args:
      given: Options of the command line from `given_values`.
      default: Default arguments of a command, with values of the config file.
    """
    known, others = option_paths(default), shorthands(default)
    for name, value in given.items():
        # `optimizer.lr` matches the shorthand `lr`, too.
        field, _, last = name.rpartition(".")
        meant = others.get(last)
        # A key of a dict field; unlike sections, dicts have no known subfields.
        is_key = field in known and not any(k.startswith(f"{field}.") for k in known)
        is_known = name in known or is_key
        if meant is not None and not is_known and meant in known:
            shown = _option(meant) + f" {value}" * (not value.startswith("--"))
            raise UserError(f"{_option(name)}: no such option; write {shown.rstrip()}")


def _option(path: str) -> str:
    return f"--{path.replace('_', '-')}"
