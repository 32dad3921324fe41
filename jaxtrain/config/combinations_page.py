"""The page docs/combinations.md, made of what the sections of the config declare.

python -m jaxtrain.config.combinations_page > docs/combinations.md
"""

from collections.abc import Iterable

from jaxtrain.config.combinations import Incompatible, Needs
from jaxtrain.config.root import COMBINATIONS, ONE_OF

TEXT = """\
# Options that exclude or need each other

This page is generated: `python -m jaxtrain.config.combinations_page` prints it, from
what [`jaxtrain/config/`](../jaxtrain/config/) declares beside the fields.

A config is refused, with exit code 2 and before anything is opened, if it uses both
options of a row of the first table, or one of the second without what it needs. The
message names both fields with their values, and says what to do. An option is used if
it has another value than its default, unless the table says which values count.

## Not together

{incompatible}

## Without effect alone

{needs}

## One of a row

An option on the command line replaces that of its row in the recipe.

{one_of}

## What depends on more than the config

Options that do not fit the devices, the data, the model or the task are refused once
these are known: see [several devices](parallelism.md), [pipeline stages](pipeline.md),
[data](data.md) and [tasks](tasks.md). So is an option that a model, an optimizer or a
schedule does not take ([training](training.md)).
"""


def page() -> str:
    """Return the text of the page."""
    pairs = [(row, row.first.named("`"), row.second.named("`")) for row in COMBINATIONS]
    incompatible = [
        (first, second, row.reason)
        for row, first, second in pairs
        if isinstance(row, Incompatible)
    ]
    needs = [(first, second) for row, first, second in pairs if isinstance(row, Needs)]
    one_of = [(", ".join(f"`{path}`" for path in group),) for group in ONE_OF]
    return TEXT.format(
        incompatible=_table(("option", "not with", "why"), incompatible),
        needs=_table(("option", "needs"), needs),
        one_of=_table(("give one of",), one_of),
    )


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    print(page(), end="")
