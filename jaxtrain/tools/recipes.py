"""The text of a recipe: a Python file, each value under its reason."""

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from jaxtrain.console import printable
from jaxtrain.tools.advice import Advice

CLASSES = {
    "augment": "AugmentConfig",
    "checkpoint": "CheckpointConfig",
    "data": "DataConfig",
    "model": "ModelConfig",
    "optimizer": "OptimizerConfig",
    "train": "TrainConfig",
}
WIDTH = 88


def recipe_text(
    advice: Sequence[Advice], source: str, out: Path, told: Iterable[str]
) -> str:
    """Return the text of a recipe, as the formatter would write it."""
    sections: dict[str, list[Advice]] = {}
    for one in advice:
        sections.setdefault(one.section, []).append(one)
    names = sorted(["Config", *(CLASSES[s] for s in sections)])
    paragraphs = [
        line
        for text in told
        for line in _in_docstring(textwrap.fill(text, WIDTH)).splitlines()
    ]
    lines = [
        f'"""{_in_docstring(source)}, after a look at its images.',
        "",
        f"    python main.py --config {_in_docstring(str(out))}",
        "",
        *paragraphs,
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


def _fields(fields: Iterable[Advice], indent: int) -> list[str]:
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
