"""`main.py new`."""

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jaxtrain.config import DataConfig
from jaxtrain.console import printable
from jaxtrain.errors import UserError
from jaxtrain.processes.signals import StopSignals

if TYPE_CHECKING:
    from jaxtrain.data.survey import Survey
    from jaxtrain.run.advice import Advice

EXAMPLE = "--data folder:photos --out configs/photos.py"

CLASSES = {
    "augment": "AugmentConfig",
    "checkpoint": "CheckpointConfig",
    "data": "DataConfig",
    "model": "ModelConfig",
    "optimizer": "OptimizerConfig",
    "train": "TrainConfig",
}
WIDTH = 88


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Write a recipe for your own images, after a look at them."""

    # The images, as data.source takes them, such as folder:photos.
    data: str
    # The recipe to write, such as configs/photos.py.
    out: Path
    # Where TFDS data sets lie; None: $TFDS_DATA_DIR, else ~/tensorflow_datasets.
    data_dir: str | None = None


def run(arguments: Arguments, signals: StopSignals) -> None:
    """Look at the images, write the recipe, and print what was seen.

    Raises:
      UserError: the images cannot be read, or the file cannot be written.
    """
    from jaxtrain.config.recipe import load_config
    from jaxtrain.data.survey import survey
    from jaxtrain.records.run_log import show_table
    from jaxtrain.run.advice import advise

    out = arguments.out
    if out.suffix != ".py":
        raise UserError(
            f"--out {out}: a recipe is a Python file, such as {out.stem}.py"
        )
    if out.exists():
        raise UserError(
            f"--out {out} is there already: give another name, or remove it"
        )
    found = survey(DataConfig(source=arguments.data, data_dir=arguments.data_dir))
    advice = advise(found, arguments.data, arguments.data_dir)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(write(advice, found, arguments, out), encoding="utf-8")
    except OSError as error:
        raise UserError(f"--out {out}: {error.strerror}") from error
    load_config(out)
    show_table("data", describe(found))
    print(f"{out} is written; train with\n  python main.py --config {out}")


def describe(found: "Survey") -> dict[str, str]:
    """Return what a person wants to know of the data."""
    counts, sizes = found.class_counts, found.sizes
    height, width = sizes[:, 0], sizes[:, 1]
    rows = {
        "images": ", ".join(f"{n:,} {name}" for name, n in found.counts.items()),
        "size": f"{width.min()}x{height.min()} to {width.max()}x{height.max()}",
        "pixels": "colour" if found.colour else "grey",
        "classes": f"{found.num_classes}, of {counts.min():,} to {counts.max():,} "
        "training images",
    }
    if found.num_unreadable:
        rows["unreadable"] = (
            f"{found.num_unreadable} of {found.num_unreadable + len(sizes)}"
        )
    return rows


def write(
    advice: "list[Advice]", found: "Survey", arguments: Arguments, out: Path
) -> str:
    """Return the text of a recipe."""
    sections: dict[str, list[Advice]] = {}
    for one in advice:
        sections.setdefault(one.section, []).append(one)
    names = sorted(["Config", *(CLASSES[s] for s in sections)])
    seen = "; ".join(f"{name}: {text}" for name, text in describe(found).items())
    head = textwrap.fill(f"What was seen: {seen}.", WIDTH)
    lines = [
        f'"""{_in_docstring(arguments.data)}, after a look at its images.',
        "",
        f"    python main.py --config {_in_docstring(str(out))}",
        "",
        *_in_docstring(head).splitlines(),
        '"""',
        "",
        "from jaxtrain.config import (",
        *(f"    {name}," for name in names),
        ")",
        "",
        "",
        "def get_config() -> Config:",
        "    return Config(",
    ]
    augment = sections.pop("augment", [])
    for section, fields in sections.items():
        lines.append(f"        {section}={CLASSES[section]}(")
        lines += _fields(fields, 12)
        if section == "data":
            lines.append("            augment=AugmentConfig(")
            lines += _fields(augment, 16)
            lines.append("            ),")
        lines.append("        ),")
    return "\n".join([*lines, "    )", ""])


def _fields(fields: "Iterable[Advice]", indent: int) -> list[str]:
    """Return a line for each field, under a comment that says why."""
    space, lines = " " * indent, []
    for one in fields:
        if one.reason:
            reason = one.reason[0].upper() + one.reason[1:] + "."
            lines += textwrap.wrap(
                reason,
                WIDTH,
                initial_indent=f"{space}# ",
                subsequent_indent=f"{space}# ",
            )
        value = repr(one.value)
        if isinstance(one.value, str) and not {'"', "\\"} & set(value):
            # As ruff and black write it.
            value = f'"{value[1:-1]}"'
        lines.append(f"{space}{one.field}={value},")
    return lines


def _in_docstring(text: str) -> str:
    return printable(text).replace("\\", "\\\\").replace('"', '\\"')
