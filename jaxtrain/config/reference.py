"""The page docs/config.md: every field of a config with its type, default and meaning.

python -m jaxtrain.config.reference > docs/config.md
"""

import dataclasses
import textwrap
from typing import Any, get_type_hints

from jaxtrain.config.base import Options, Section, default_of, shown_type
from jaxtrain.config.help import meanings, sections_of
from jaxtrain.config.names import OPTIONS, rows_with_options
from jaxtrain.config.root import Config

INTRODUCTION = """# The config: every field

This page is generated: `python -m jaxtrain.config.reference > docs/config.md` writes it
from the schema in [`jaxtrain/config/`](../jaxtrain/config/), where a comment above each
field is its meaning. On the command line a field is `--SECTION.FIELD VALUE`
([all forms](command-line.md)); `python main.py --config FILE --help SECTION` shows the
fields of a section with the values of a recipe. `None` unsets a field whose default is
`None`.
"""
HEADER = "| field | default | meaning |\n|---|---|---|"
# More names than these are listed by the help alone.
MOST_NAMES = 20


def page() -> str:
    """Return the page as Markdown."""
    parts = [INTRODUCTION]
    for path, section in {"": Config(), **sections_of(Config())}.items():
        title = f"`{path}`" if path else "The whole run"
        about = (type(section).__doc__ or "").partition("\n")[0]
        parts.append(f"## {title}\n\n{about}\n\n{_table(path, section)}\n")
    options = [(f, *row) for f in OPTIONS for row in rows_with_options(f).items()]
    for field, name, kind in options:
        title = f"`{field}` of {name}"
        if isinstance(Config().train, kind):
            names = ", ".join(f"`{field.name}`" for field in _leaves(kind()))
            told = f"{names}: as fields of [`train`](#train)."
            wrapped = textwrap.fill(told, 99, break_long_words=False)
            parts.append(f"## {title}\n\n{wrapped}\n")
        else:
            parts.append(f"## {title}\n\n{kind.__doc__}\n\n{_table('', kind())}\n")
    return "\n".join(parts)


def _table(path: str, section: Section) -> str:
    rows = (_row(path, section, field) for field in _leaves(section))
    return "\n".join([HEADER, *rows])


def _leaves(section: Section) -> list[dataclasses.Field[Any]]:
    return [
        field
        for field in dataclasses.fields(section)  # type: ignore[arg-type]
        if not isinstance(getattr(section, field.name), Section)
    ]


def _row(path: str, section: Section, field: dataclasses.Field[Any]) -> str:
    name = f"{path}.{field.name}" if path else field.name
    hint = get_type_hints(type(section))[field.name]
    meaning = meanings(type(section))[field.name] + _row_names(name, section, field)
    default = _default(hint, default_of(section, field.name))
    cells = (f"`{name}`", default, meaning)
    escaped = (cell.replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def _default(hint: Any, default: Any) -> str:
    """Return a default, with the type where it does not show it."""
    if default is not None and hint in (bool, int, float, str, Options):
        return f"`{default!r}`"
    kind = shown_type(hint)
    if default is None:
        return f"`None` or {kind.removesuffix(' or None')}"
    return f"`{default!r}`, {kind}"


def _row_names(name: str, section: Section, field: dataclasses.Field[Any]) -> str:
    """Return the names of the table's rows, for a field that names one."""
    hint = get_type_hints(type(section), include_extras=True)[field.name]
    for extra in getattr(hint, "__metadata__", ()):
        names = extra.help_behavior_hint("").partition(": ")[2].rpartition(";")[0]
        num = len(names.split(", "))
        listed = f"one of {names}" if num <= MOST_NAMES else f"`--help {name}` has all"
        return f" ({listed})"
    return ""


if __name__ == "__main__":
    print(page(), end="")
