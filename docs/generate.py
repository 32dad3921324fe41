"""Write the pages api.md, config.md, combinations.md and models.md.

python docs/generate.py
"""

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any, get_type_hints

import jaxtrain
from jaxtrain.config import CLASSES
from jaxtrain.config.base import Options, Section, default_of, shown_type
from jaxtrain.config.combinations import Incompatible, Needs
from jaxtrain.config.fields import get
from jaxtrain.config.help import meanings, sections_of
from jaxtrain.config.part import Part, part_classes, part_tables
from jaxtrain.config.root import COMBINATIONS, ONE_OF, Config
from jaxtrain.trainer.trainer import Trainer
from jaxtrain.zoo.listing import HEAD, cells, models

INTRODUCTION = """# The config: every field

This page is generated: `python docs/generate.py` writes it from
the schema in [`jaxtrain/config/`](../jaxtrain/config/), where `help` of each
field is its meaning. On the command line a field is `--SECTION.FIELD VALUE`
([all forms](command-line.md)); `python main.py --config FILE --help SECTION` shows the
fields of a section with the values of a recipe. `None` unsets a field whose default is
`None`.
"""
HEADER = "| field | default | meaning |\n|---|---|---|"
# Methods of `Trainer` that docs/python.md shows.
TRAINER = "init", "batches", "step", "evaluate", "prepare", "put"
# More names than these are listed by the help alone.
MOST_NAMES = 20

COMBINED = """\
# Options that exclude or need each other

This page is generated: `python docs/generate.py` writes it from what
[`jaxtrain/config/`](../jaxtrain/config/) declares next to the fields.

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

API = """# The Python API

This page is generated: `python docs/generate.py` writes it from the docstrings.

The names below are those of `jaxtrain.__all__`, and the whole public API: `import jaxtrain`
loads none of them before it is used. Versions follow [semantic versioning](https://semver.org):
as long as the first number is 0, a new second number may change a name or its meaning, which the
[changelog](../CHANGELOG.md) says first; a new third number only mends. So it is with the command
line, the fields of the [config](config.md), and the keys of `summary.json`, `metrics.jsonl` and
`evaluation.json`. All other modules are private: they move without notice. A
[package of yours](extending.md) may import the modules that its page shows.

Errors are those of `jaxtrain.errors`: `UserError` and its kinds `CheckpointError` and
`BadNumbersError`, with the message of the command line. Examples: [Python](python.md),
[extending](extending.md).

{parts}
"""  # noqa: E501

MODELS = """# Models

`python main.py models` prints this table; `python main.py models NAME` describes one model, with
the sources of its published results. `python docs/generate.py` writes this page.

{table}

- **image**: default height and width in pixels; most models support other sizes.
- **parameters**: trainable parameters, including auxiliary heads, for 1,000 classes (10 for images
  of 28 or 32 pixels, 21 for segmentation models, 80 for `fcos`).
- **GFLOPs**: 10^9 floating-point operations of the compiled forward pass in evaluation, for one
  image. A multiply-add counts as two operations (as one in many other tables). Products with zero
  padding are not counted.
- **step MiB**: peak memory of the compiled training step on 32 images, for XLA:CPU, SGD with
  momentum and float32. A GPU needs a different amount: see [plan](plan.md).
- **published**: accuracy reported by others: top-1 in percent on ImageNet's validation images, or
  on CIFAR-10's test images for 32x32; mean IoU in percent for
  [segmentation models](segmentation-models.md).
- **weights**: libraries with compatible [weights](fine-tuning.md#pretrained-weights).
"""  # noqa: E501


def config_page() -> str:
    """Return docs/config.md: each field with its type, default and meaning."""
    parts = [INTRODUCTION]
    tables = part_tables(Config)
    sections = {"": Config(), **sections_of(Config())}
    for path, section in sections.items():
        if path in tables:
            continue
        title = f"`{path}`" if path else "The whole run"
        about = (type(section).__doc__ or "").partition("\n")[0]
        parts.append(f"## {title}\n\n{about}\n\n{_fields(path, section)}\n")
    for path, table in tables.items():
        default = get(Config(), path)
        if shared := default.shared():
            rows = _fields(path, default, shared)
            about = "Fields that all parts of the table have."
            parts.append(f"## `{path}`\n\n{about}\n\n{rows}\n")
        names: dict[type[Part], list[str]] = {}
        for name, kind in part_classes(table).items():
            names.setdefault(kind, []).append(name)
        for kind, listed in names.items():
            about = (kind.__doc__ or "").partition("\n")[0]
            options = kind.option_names()
            told = _fields(path, kind(), options) if options else "No options."
            title, text = listed[0], f"`{kind.__name__}`: {about}"
            if len(listed) > 1:
                title, text = kind.__name__, f"{about} Names: {', '.join(listed)}."
            parts.append(f"## `{path}` {title}\n\n{_filled(text)}\n\n{told}\n")
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
    return MODELS.format(table="\n".join(lines))


def api_page() -> str:
    """Return docs/api.md: the public names, by their docstrings."""
    sections = [x for x in jaxtrain.__all__ if x in CLASSES and x != "Config"]
    names = [name for name in jaxtrain.__all__ if name not in sections]
    parts = [_api_part(name, getattr(jaxtrain, name)) for name in names]
    at = names.index("Trainer")
    methods = (_method_row(name, getattr(Trainer, name)) for name in TRAINER)
    parts[at] += f"\n{_table(('method', ''), methods)}\n"
    listed = ", ".join(f"`{name}`" for name in sections)
    told = _filled(f"{listed}: [all fields](config.md).")
    parts.append(f"## Sections of a config\n\n{told}\n")
    return API.format(parts="\n".join(parts)).rstrip() + "\n"


def _api_part(name: str, thing: Any) -> str:
    """Return a section of the API page: signature, docstring, methods of a class."""
    is_class = inspect.isclass(thing)
    parts = [f"## `{name}`", _in_markdown(inspect.getdoc(thing) or "")]
    if not is_class:
        call = f"{name}({', '.join(_arguments(thing))})"
        parts.insert(
            1, f"```\n{textwrap.fill(call, 88, subsequent_indent='    ')}\n```"
        )
    if is_class and not dataclasses.is_dataclass(thing):
        parts.append(_methods(thing))
    return "\n\n".join(parts) + "\n"


def _methods(kind: type) -> str:
    """Return the table of the public methods of a class."""
    public = [(n, getattr(kind, n)) for n in dir(kind) if n[0] != "_"]
    are = inspect.isfunction, inspect.ismethod
    rows = [_method_row(n, x) for n, x in public if any(is_one(x) for is_one in are)]
    return _table(("method", ""), rows)


def _method_row(name: str, method: Any) -> tuple[str, ...]:
    arguments = [x for x in _arguments(method) if x != "self"]
    about = (inspect.getdoc(method) or "").partition("\n\n")[0].replace("\n", " ")
    return f"`{name}({', '.join(arguments)})`", about.replace("|", r"\|")


def _arguments(function: Any) -> list[str]:
    """Return the arguments of a function without their types."""
    signature = inspect.signature(function)
    empty, bare = inspect.Parameter.empty, list[inspect.Parameter]()
    for x in signature.parameters.values():
        # Functions and mappings have no short form.
        plain = x.default is empty or isinstance(x.default, bool | int | str | None)
        bare.append(x.replace(annotation=empty, default=x.default if plain else ...))
    text = str(signature.replace(parameters=bare, return_annotation=empty))
    return [x.replace("Ellipsis", "...") for x in text[1:-1].split(", ") if x]


def _in_markdown(docstring: str) -> str:
    """Turn the sections of a docstring in Google's style into lists."""
    about, *sections = re.split(r"^(\w+):\n", docstring, flags=re.M)
    parts = [about.strip()]
    for title, text in zip(sections[::2], sections[1::2], strict=True):
        text = textwrap.dedent(text.strip("\n"))
        items = re.split(r"^(?=\S)", text, flags=re.M)[1:] if title != "Returns" else []
        named = [
            _filled(re.sub(r"^([*\w]+):", r"- `\1`:", _joined(item))) for item in items
        ]
        parts.append(_filled(f"**{title}.** " + ("" if named else _joined(text))))
        parts += ["\n".join(named)] if named else []
    return "\n\n".join(x.strip() for x in parts)


def _filled(item: str) -> str:
    """Wrap a list item or a paragraph."""
    indent = "  " * item.startswith("- ")
    return textwrap.fill(item, 99, subsequent_indent=indent, break_on_hyphens=False)


def _joined(text: str) -> str:
    """Join the lines of a paragraph."""
    return " ".join(text.split())


def _fields(path: str, section: Section, names: Container[str] | None = None) -> str:
    """Return the table of the fields of a section, or only of the named fields."""
    rows = (
        _row(path, section, field)
        for field in _leaves(section)
        if names is None or field.name in names
    )
    return "\n".join([HEADER, *rows])


def _leaves(section: Section) -> list[dataclasses.Field[Any]]:
    return [
        field
        for field in dataclasses.fields(section)  # type: ignore[arg-type]
        if field.init and not isinstance(getattr(section, field.name), Section)
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


PAGES = {
    "api.md": api_page,
    "config.md": config_page,
    "combinations.md": combinations_page,
    "models.md": models_page,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        Path(__file__).with_name(name).write_text(page(), encoding="utf-8")
