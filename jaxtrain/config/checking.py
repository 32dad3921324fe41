"""Validation of a config whose sections were constructed `unchecked`."""

import dataclasses
from collections.abc import Iterator
from typing import Any, get_type_hints

from jaxtrain import own
from jaxtrain.config.base import RowHint, Section, default_of, unchecked
from jaxtrain.config.part import Part
from jaxtrain.plugin import resolve
from jaxtrain.problems import Problem
from jaxtrain.registry import unknown


def check_names(section: Any, path: str = "") -> Iterator[Problem]:
    """Yield a problem for each field whose value must be a key of a table, but is not.

    Args:
      section: Entire config, or a section; nested sections are included.
      path: Path of the section; "" for an entire config.
    """
    before = f"{path}." if path else ""
    for field in dataclasses.fields(section):
        if "table" not in field.metadata:
            continue
        part, path = getattr(section, field.name).name, before + field.name
        rows = field.metadata["table"].resolve()
        if not own.is_own(part) and part not in rows:
            yield Problem(unknown(rows, path, part), (path,))
    for name, hint in get_type_hints(type(section), include_extras=True).items():
        value = getattr(section, name)
        if isinstance(value, Section):
            yield from check_names(value, before + name)
        if not isinstance(value, str) or own.is_own(value):
            continue
        for extra in getattr(hint, "__metadata__", ()):
            row = getattr(extra, "help_behavior_hint", None)
            if not (isinstance(row, RowHint) and row.exact):
                continue
            if value not in (table := resolve(row.table)):
                yield Problem(unknown(table, before + name, value), (before + name,))


def problems_of(section: Any, path: str = "") -> list[Problem]:
    """Check a section and its nested sections; return the problems.

    A section is checked only if its nested sections have no problems.
    """
    found: list[Problem] = []
    for name, value in vars(section).items():
        if isinstance(value, Section):
            found += problems_of(value, f"{path}.{name}" if path else name)
    return found or section.problems(path)


def checked(section: Any, default: Any) -> tuple[list[Problem], Any]:
    """Check a section that was created in the `unchecked` context.

    Args:
      section: Entire config, or a section, with the values of the command line.
      default: The same section without the values of the command line.

    Returns:
      All problems; and the section with invalid values replaced by defaults, or None if
      it is still invalid.
    """
    found: list[Problem] = []
    with unchecked():
        for _ in range(3):
            more = problems_of(section)
            if not more:
                return found, section
            found += more
            for path in dict.fromkeys(p for problem in more for p in problem.fields):
                section = _reset(section, default, path)
    return found, None


def _reset(section: Any, default: Any, path: str) -> Any:
    name, _, rest = path.partition(".")
    old, value = getattr(section, name), getattr(default, name)
    # The name of a `Part` selects its class: reset the entire part with the name.
    if rest and not (isinstance(old, Part) and rest == "name"):
        value = _reset(old, value, rest)
    elif value == old:
        value = default_of(section, name)
    return dataclasses.replace(section, **{name: value})
