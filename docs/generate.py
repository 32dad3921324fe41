"""Write the pages config.md, combinations.md and models.md, which are generated.

python docs/generate.py
"""

import collections
import dataclasses
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_type_hints

from jaxtrain.config.base import Options, Section, default_of, shown_type
from jaxtrain.config.combinations import Incompatible, Needs
from jaxtrain.config.help import meanings, rows_with_options, sections_of
from jaxtrain.config.metadata import with_metadata
from jaxtrain.config.root import COMBINATIONS, ONE_OF, Config
from jaxtrain.zoo.listing import HEAD, cells, models

INTRODUCTION = """# The config: every field

This page is generated: `python docs/generate.py` writes it from
the schema in [`jaxtrain/config/`](../jaxtrain/config/), where a comment above each
field is its meaning. On the command line a field is `--SECTION.FIELD VALUE`
([all forms](command-line.md)); `python main.py --config FILE --help SECTION` shows the
fields of a section with the values of a recipe. `None` unsets a field whose default is
`None`.
"""
HEADER = "| field | default | meaning |\n|---|---|---|"
# More names than these are listed by the help alone.
MOST_NAMES = 20

COMBINED = """\
# Options that exclude or need each other

This page is generated: `python docs/generate.py` writes it from what
[`jaxtrain/config/`](../jaxtrain/config/) declares beside the fields.

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

MODELS = """# Models

`python main.py models` prints this table, `python main.py models NAME` all that is known of one,
and `--json` the same for programs. `python docs/generate.py` writes this page.

{table}

- **image**: height and width that a model is made for, and evaluated at. Most take others, too;
  `model.name` and its options: [training](training.md#models).
- **parameters**: trainable ones, for 1,000 classes (10 where the image has 28 or 32 pixels, 21 of
  models of maps), auxiliary heads included.
- **GFLOPs**: of the compiled program that evaluates one image, in 10^9; a multiplication and an
  addition count one each (many tables count both as one), products with the padding nothing.
- **step MiB**: memory of the compiled training step on 32 images, as XLA:CPU plans it: SGD with
  momentum, float32. A GPU takes another amount: [plan](plan.md).
- **published**: the first of the figures below, not measured here: top-1 in percent of ImageNet's
  validation images (CIFAR-10's test images for 32x32); of models of [maps](segmentation-models.md)
  the mean IoU.
- **weights**: libraries whose [weights](fine-tuning.md#pretrained-weights) fit.

`python benchmarks/zoo.py --write` makes the three counts.

## Where the results are published

{sources}
"""  # noqa: E501


def config_page() -> str:
    """Return docs/config.md: each field with its type, default and meaning."""
    parts = [INTRODUCTION]
    for path, section in {"": Config(), **sections_of(Config())}.items():
        title = f"`{path}`" if path else "The whole run"
        about = (type(section).__doc__ or "").partition("\n")[0]
        parts.append(f"## {title}\n\n{about}\n\n{_fields(path, section)}\n")
    options = [
        (f, *row)
        for f in with_metadata(Config, "rows")
        for row in rows_with_options(f).items()
    ]
    for field, name, kind in options:
        title = f"`{field}` of {name}"
        parts.append(f"## {title}\n\n{kind.__doc__}\n\n{_fields('', kind())}\n")
    return "\n".join(parts)


def combinations_page() -> str:
    """Return docs/combinations.md, from what the sections of the config declare."""
    pairs = [(row, row.first.named("`"), row.second.named("`")) for row in COMBINATIONS]
    incompatible = [
        (first, second, row.reason)
        for row, first, second in pairs
        if isinstance(row, Incompatible)
    ]
    needs = [(first, second) for row, first, second in pairs if isinstance(row, Needs)]
    one_of = [(", ".join(f"`{path}`" for path in group),) for group in ONE_OF.values()]
    return COMBINED.format(
        incompatible=_table(("option", "not with", "why"), incompatible),
        needs=_table(("option", "needs"), needs),
        one_of=_table(("give one of",), one_of),
    )


def models_page() -> str:
    """Return docs/models.md: all models with their facts and counts."""
    rows = [HEAD, ("---", "---", *["---:"] * 4, "---"), *map(cells, models())]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return MODELS.format(table="\n".join(lines), sources="\n".join(_sources()))


def _fields(path: str, section: Section) -> str:
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


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _sources() -> list[str]:
    """Return a list item for each source, with what it says of which models."""
    found: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for model in models():
        for result in model.published.results if model.published else ():
            figure = f"`{model.name}` {result.figure.partition(' ')[0]}"
            found[result.of, result.source].append(figure)
    items = (f"- [{of}]({at}): {', '.join(told)}" for (of, at), told in found.items())
    return [
        textwrap.fill(item, 99, subsequent_indent="  ", break_on_hyphens=False)
        for item in items
    ]


PAGES = {
    "config.md": config_page,
    "combinations.md": combinations_page,
    "models.md": models_page,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        Path(__file__).with_name(name).write_text(page(), encoding="utf-8")
