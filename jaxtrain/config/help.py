"""Help of the commands that take a recipe.

`--help` shows common options, `--help SECTION` all fields of a config section, and
`--help-all` all fields.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterable
from typing import Annotated, Any, NoReturn, get_type_hints

import tyro
from rich.console import Console
from rich.table import Table

from jaxtrain.config.base import Section
from jaxtrain.config.metadata import with_metadata
from jaxtrain.config.part import Part, part_tables
from jaxtrain.config.root import Config
from jaxtrain.errors import UserError, hint

SHORT, ALL = ("-h", "--help"), "--help-all"


def answer_help(
    words: list[str], default: Any, *, prog: str, description: str | None
) -> list[str]:
    """Show the requested help and exit, except for `--help-all`, which tyro shows.

    Args:
      words: Command-line arguments, as in `sys.argv[1:]`.
      default: Arguments of a command, with the config of its recipe.
      prog: Name of the command in the help.
      description: Description of the command in the help.

    Returns:
      The command-line arguments, with `--help` instead of `--help-all`.

    Raises:
      SystemExit: Help was shown.
    """
    if ALL in words:
        return ["--help" if word == ALL else word for word in words]
    place = next((i for i, word in enumerate(words) if word in SHORT), None)
    if place is None:
        return words
    after = words[place + 1 :]
    topics = list(itertools.takewhile(lambda word: not word.startswith("-"), after))
    sections = sections_of(default)
    if topics:
        _show_topics(topics, sections, prog)
    _show_short(default, sections, prog, description)
    raise SystemExit(0)


def point_to_help(default: Any, prog: str) -> str:
    """Return a hint for error messages that points to the help of a command."""
    names = ", ".join(filter(None, sections_of(default)))
    return (
        f"{prog} {ALL} shows all options; {prog} --help SECTION shows one section: "
        f"{names}"
    )


def meanings(section: type) -> dict[str, str]:
    """Map fields of a dataclass to help texts, "" for a field without help."""
    return {
        field.name: field.metadata.get("help", "")
        for field in dataclasses.fields(section)
    }


def option_paths(default: Any) -> set[str]:
    """Return the paths of all options of a command, including config fields."""
    fields = {
        f"{path}.{name}" if path else name
        for path, section in sections_of(default).items()
        for name in vars(section)
    }
    return fields | set(vars(default))


def sections_of(default: Any) -> dict[str, Any]:
    """Return the config sections of a command by path; the root has the path ""."""

    def walk(path: str, section: Any) -> Iterable[tuple[str, Any]]:
        yield path, section
        for name, value in vars(section).items():
            if isinstance(value, Section):
                yield from walk(f"{path}.{name}" if path else name, value)

    # The prefix `overrides` is omitted on the command line.
    roots = {
        "" if name == "overrides" else name: value
        for name, value in vars(default).items()
        if isinstance(value, Section)
    }
    return dict(itertools.chain(*itertools.starmap(walk, roots.items())))


def _show_topics(topics: list[str], sections: dict[str, Any], prog: str) -> NoReturn:
    # `--help model.name` shows the help of `model`.
    parts = {f"{path}.name": path for path in part_tables(Config)}
    topics = [parts.get(topic, topic) for topic in topics]
    found = [_find_topic(topic, sections) for topic in topics]
    names = [f"topic{i}" for i in range(len(found))]
    kinds = [kind for kind, _ in found]
    shown = dataclasses.make_dataclass("Shown", list(zip(names, kinds, strict=True)))
    tyro.cli(
        shown,
        args=["--help"],
        default=shown(*(value for _, value in found)),
        prog=prog,
        description=f"Config fields of {', '.join(topics)}.{_other_parts(topics)}",
        config=(tyro.conf.FlagConversionOff,),
    )
    raise AssertionError("tyro ends with help")


def _other_parts(topics: list[str]) -> str:
    """Return hints on options that select another class for a config section."""
    tables = part_tables(Config)
    return "".join(
        f" --{topic} NAME selects another: {', '.join(tables[topic].resolve())}; "
        f"--{topic} NAME --help {topic} shows its fields."
        for topic in topics
        if topic in tables
    )


def _find_topic(topic: str, sections: dict[str, Any]) -> tuple[Any, Any]:
    path = topic.replace("-", "_")
    if path in filter(None, sections):
        named = tyro.conf.arg(name=path)
        return Annotated[type(sections[path]), named], sections[path]
    above, _, name = path.rpartition(".")
    section = type(sections.get(above))
    if name not in getattr(section, "__dataclass_fields__", {}):
        known = [*filter(None, sections)]
        raise UserError(f"--help {topic}: no such section; {hint(topic, known)}")
    told = meanings(section)[name]
    named = tyro.conf.arg(name=path, help=told)
    kind = get_type_hints(section, include_extras=True)[name]
    return Annotated[kind, named], getattr(sections[above], name)


def _show_short(
    default: Any, sections: dict[str, Any], prog: str, description: str | None
) -> None:
    print(f"usage: {prog} [OPTIONS] [--section.field VALUE ...]\n\n{description}\n")
    whole = "" in sections
    rare = with_metadata(type(default), "rare")
    own = [
        (name, value)
        for name, value in vars(default).items()
        if not isinstance(value, Section) and not (whole and name in rare)
    ]
    texts = meanings(type(default))
    rows = [(n, v, _brief(texts[n]) if whole else texts[n]) for n, v in own]
    _print_table("options", rows)
    root = sections.get("", Config())
    rows = [
        (
            path,
            getattr(sections[above], name),
            _brief(meanings(type(sections[above]))[name]),
        )
        for path in sorted(
            with_metadata(root, "common", inherit=False), key=_is_of_section
        )
        for above, _, name in [path.rpartition(".")]
        if above in sections
    ]
    _print_table("\ncommon config fields", rows)
    names = ", ".join(filter(None, sections))
    print(f"\n--help SECTION shows all fields of: {names}\n--help-all shows everything")


def _is_of_section(path: str) -> bool:
    return "." in path


def _brief(text: str) -> str:
    """Return the first clause of a field's help text and its `None: ...` clause."""
    unset = re.search(r"; (None: [^;.]*)|\b(None: [^;.]*)", text)
    # The colon of a topic such as `Mixup:` does not end the clause.
    first = re.match(r"(?:\w+:)?[^;:]*?(?=[;:]|\. |\.?$)", text)
    assert first is not None
    told = f"; {unset[1] or unset[2]}" if unset else ""
    return first[0] + told


def _print_table(title: str, rows: list[tuple[str, Any, str]]) -> None:
    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", max_width=18)
    table.add_column(ratio=1)
    for path, value, text in rows:
        table.add_row(f"  --{path.replace('_', '-')}", _shown(value), text)
    console = Console(highlight=False, markup=False)
    with console.capture() as capture:
        console.print(table)
    print(f"{title}:", *map(str.rstrip, capture.get().splitlines()), sep="\n")


def _shown(value: Any) -> str:
    if value is tyro.MISSING:
        return "(required)"
    if isinstance(value, Part):
        return value.name
    if isinstance(value, float):
        return f"{value:g}"
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
