"""Overrides of the command line, and names of options in other tools."""

import dataclasses
from collections.abc import Collection
from typing import Any

from jaxtrain import own
from jaxtrain.config.base import Renamed, default_of, unchecked
from jaxtrain.config.fields import get, replace
from jaxtrain.config.metadata import with_metadata
from jaxtrain.config.optimizer import OptimizerConfig
from jaxtrain.config.part import CustomConfig, Part, make_part, part_class, part_tables
from jaxtrain.config.removed import removed_fields
from jaxtrain.config.root import ONE_OF, Config
from jaxtrain.console import print_stderr
from jaxtrain.errors import UserError, nearest
from jaxtrain.plugin import resolve
from jaxtrain.registry import unknown

# Names in timm, PyTorch Lightning, Keras, fastai and Ultralytics for command options.
# Names for config fields are in the metadata `other_names` of the fields.
OF_COMMANDS = {
    "workdir": "out_dir output output_dir save_dir",
    "platform": "device",
}
OURS = {**with_metadata(Config, "other_names"), **OF_COMMANDS}
SHORTHANDS = {other: ours for ours, names in OURS.items() for other in names.split()}


def given_values(words: list[str]) -> dict[str, str]:
    """Return the first value of each option, by field path.

    If an option is repeated, its last occurrence counts.
    """
    values = {}
    for word, following in zip(words, [*words, ""][1:], strict=True):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            path = name.removeprefix("--").replace("-", "_")
            values[path] = value if equals else following
    return values


def part_words(words: list[str]) -> tuple[list[str], list[str]]:
    """Replace `--optimizer NAME` by `--optimizer.name NAME`, and likewise `--model`.

    Returns:
      The words, and the sections given in the short form, for `switch_part`.
    """
    parts = [
        name for name, section in vars(Config()).items() if hasattr(section, "name")
    ]
    found, switched = list[str](), list[str]()
    for word in words:
        option, equals, value = word.partition("=")
        if (section := option.removeprefix("--")) in parts and option[:2] == "--":
            switched.append(section)
            word = f"{option}.name{equals}{value}"
        found.append(word)
    return found, switched


def take_part_names(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """Remove `--task.name NAME` and `--method.name NAME` from the words.

    Returns:
      The other words, and the names by section.

    Raises:
      UserError: An option has no value.
    """
    found, names = list[str](), dict[str, str]()
    options = {f"--{section}.name": section for section in part_tables(Config)}
    following = iter(words)
    for word in following:
        option, equals, value = word.partition("=")
        section = options.get(option)
        if section is None:
            found.append(word)
            continue
        if not equals:
            value = next(following, "")
        if not value or value.startswith("--"):
            known = ", ".join(resolve(part_tables(Config)[section]))
            raise UserError(f"--{section} needs a name: one of {known}, or {own.FORMS}")
        names[section] = value
    return found, names


def switch_part(config: Config, section: str, name: str) -> Config:
    """Reset options of a task, method, model or optimizer before selecting another.

    Other fields of the section, such as the learning rate, are unchanged.

    Args:
      config: Config of the recipe.
      section: Section whose field `name` selects a task, method, model or optimizer.
      name: New value of the field.

    Raises:
      UserError: There is no task or method of this name.
    """
    part = getattr(config, section)
    if part.name == name:
        return config
    if isinstance(part, Part):
        table = resolve(reference := part_tables(config)[section])
        if name not in table and not own.is_own(name):
            raise UserError(unknown(table, section, name))
        _tell_ignored(section, name, part, part.changed())
        with unchecked():
            return replace(config, section, make_part(reference, name))
    options = {
        field: default_of(part, field)
        for field in with_metadata(type(part), "part_option")
    }
    replaced = {f: getattr(part, f) for f in options if getattr(part, f) != options[f]}
    _tell_ignored(section, name, part, replaced)
    # The override of the command line sets the name later.
    return replace(config, section, dataclasses.replace(part, **options))


def _tell_ignored(section: str, name: str, part: Any, options: dict[str, Any]) -> None:
    if options:
        shown = ", ".join(f"{section}.{f} = {value!r}" for f, value in options.items())
        print_stderr(
            f"--{section} {name}: ignores the recipe's {part.name} options: {shown}"
        )


def clear_replaced(config: Config, given: dict[str, str]) -> Config:
    """Unset fields that overrides replace, such as `train.epochs` for `--train.steps`.

    Args:
      given: Options of the command line from `given_values`. The value `None` only
        unsets its own field.
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
    default = OptimizerConfig()
    if given.get("train.fine_tune") != "True" or config.train.fine_tune:
        return config
    replaced = {
        name: value
        for name in with_metadata(OptimizerConfig, "set_by_fine_tune")
        if (value := getattr(config.optimizer, name)) != getattr(default, name)
        and f"optimizer.{name}" not in given
    }
    if not replaced:
        return config
    shown = ", ".join(f"optimizer.{n} = {value!r}" for n, value in replaced.items())
    print_stderr(f"train.fine_tune sets the schedule and replaces the recipe's {shown}")
    changes = {name: getattr(default, name) for name in replaced}
    optimizer = dataclasses.replace(config.optimizer, **changes)
    return dataclasses.replace(config, optimizer=optimizer)


def check_part_options(config: Config, given: dict[str, str]) -> None:
    """Refuse options that the selected task or method does not have.

    Args:
      config: Config with the selected parts.
      given: Options of the command line from `given_values`.

    Raises:
      UserError: An option belongs to another part, or to none.
    """
    for path, value in given.items():
        section, _, name = path.partition(".")
        part = getattr(config, section, None)
        first = name.partition(".")[0]
        if not name or not isinstance(part, Part) or hasattr(part, first):
            continue
        if isinstance(part, CustomConfig):
            raise UserError(
                f"{_option(path)}: {part.name} is custom code: write "
                f"--{section}.options {name} {value}".rstrip()
            )
        table = part_tables(config)[section]
        kinds = {known: part_class(table, known) for known in resolve(table)}
        owners = [x for x, kind in kinds.items() if name in kind.__dataclass_fields__]
        known = ", ".join(part.arguments()) or "no options"
        raise UserError(
            f"{_option(path)}: {part.name} has {known}"
            + (f"; {name} is an option of {', '.join(owners)}" if owners else "")
            + (nearest(name, part.arguments()) if not owners else "")
        )


def check_shorthands(given: dict[str, str], known: Collection[str]) -> None:
    """Reject removed options, and names of other tools; messages name our option."""
    removed = dict(removed_fields(Config))
    for name, value in given.items():
        if name in removed and not isinstance(removed[name], Renamed):
            raise UserError(f"{_option(name)}: this option was removed: leave it out")
        # `optimizer.lr` matches the shorthand `lr`, too.
        field, _, last = name.rpartition(".")
        meant = SHORTHANDS.get(last)
        # A key of a dict field; unlike sections, dicts have no known subfields.
        is_key = field in known and not any(k.startswith(f"{field}.") for k in known)
        is_known = name in known or is_key
        if meant is not None and not is_known and meant in known:
            shown = _option(meant) + f" {value}" * (not value.startswith("--"))
            raise UserError(f"{_option(name)}: no such option; write {shown.rstrip()}")


def _option(path: str) -> str:
    return f"--{path.replace('_', '-')}"
