"""Command-line syntax of dict fields: `--field NAME VALUE ...`, `--field.NAME VALUE`.

tyro accepts the first form only if the recipe leaves the dict empty, and the second
form only for names that the recipe sets, with values of the same type. With this
module, both forms can set any option; all other options keep the recipe's values.
"""

import copy
from collections.abc import Iterator
from typing import Any

from jaxtrain.config.help import sections_of


def with_option_words(default: Any, words: list[str]) -> tuple[Any, list[str]]:
    """Merge the options of the recipe's dict fields into the command-line arguments.

    `--field` without values removes all options of the field.

    Args:
      default: Arguments of a command, with the config of its recipe.
      words: Command-line arguments, as in `sys.argv[1:]`.

    Returns:
      `default` with {} in each dict field that the command line sets; and command-line
      arguments that set all options of these fields, as `--field NAME VALUE ...`.
    """
    recipe = {
        f"{path}.{name}" if path else name: value
        for path, section in sections_of(default).items()
        for name, value in vars(section).items()
        if isinstance(value, dict)
    }
    given, others = dict[str, list[str]](), list[str]()
    for option in _options(words):
        name, equals, value = option[0].partition("=")
        path = name.removeprefix("--").replace("-", "_")
        # The value after `=`, if any, and the arguments that follow the option.
        values = [value] * bool(equals) + option[1:]
        field = next((f for f in recipe if path == f or path.startswith(f"{f}.")), None)
        if field is None or not name.startswith("--"):
            others += option
        elif path == field:
            given[field] = given.get(field, []) + values
        else:
            key = name.removeprefix("--")[len(field) + 1 :]
            if key not in recipe[field]:
                key = key.replace("-", "_")
            given[field] = [*given.get(field, []), key, *values]
    for field, pairs in given.items():
        named = dict(zip(pairs[::2], pairs[1::2], strict=False))
        stay = recipe[field] if pairs else {}
        kept = [(k, v) for k, v in stay.items() if k not in named]
        others += [f"--{field.replace('_', '-')}"]
        others += [str(word) for pair in kept for word in pair]
        others += pairs
        default = _emptied(default, field)
    return default, others


def _options(words: list[str]) -> Iterator[list[str]]:
    """Yield the arguments before the first option, then each option with its values."""
    option = list[str]()
    for word in words:
        if word.startswith("--") and option:
            yield option
            option = []
        option.append(word)
    if option:
        yield option


def _emptied(default: Any, field: str) -> Any:
    """Return a copy of the arguments with a field set to {}, without validation."""
    first, _, rest = field.partition(".")
    if not hasattr(default, first):
        # The prefix `overrides` is omitted on the command line.
        first, rest = "overrides", field
    changed = copy.copy(default)
    value = _emptied(getattr(default, first), rest) if rest else {}
    object.__setattr__(changed, first, value)
    return changed
