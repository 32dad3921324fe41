"""Options by name: `--field NAME VALUE ...` or `--field.NAME VALUE`.

tyro takes the first form where the recipe has no options, and the second where it has,
then with no further names and with the type of each value that is there. Here both
mean the same: those that are named replace the recipe's, and the others stay.
"""

import copy
from collections.abc import Iterator
from typing import Any

from jaxtrain.config.help import sections_of


def with_option_words(default: Any, words: list[str]) -> tuple[Any, list[str]]:
    """Return a default without the options that words name, and words with all of them.

    `--field` without any word after it leaves none.

    Args:
      default: Arguments of a command, with the config of its recipe.
      words: Words of the command line.
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
        # The words that belong to it.
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
    """Yield each option with the words that follow it, and first those before any."""
    option = list[str]()
    for word in words:
        if word.startswith("--") and option:
            yield option
            option = []
        option.append(word)
    if option:
        yield option


def _emptied(default: Any, field: str) -> Any:
    """Return arguments whose options of a field are {}; checks are not repeated."""
    first, _, rest = field.partition(".")
    if not hasattr(default, first):
        # What holds a whole recipe has no prefix on the command line.
        first, rest = "overrides", field
    changed = copy.copy(default)
    value = _emptied(getattr(default, first), rest) if rest else {}
    object.__setattr__(changed, first, value)
    return changed
