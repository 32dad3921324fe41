"""`main.py new`: write a recipe for a new data set."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from jaxtrain.config import DataConfig, own_references
from jaxtrain.config.command_options import trust_option
from jaxtrain.config.metadata import field
from jaxtrain.errors import UserError, first_of
from jaxtrain.invocation import program
from jaxtrain.processes.signals import StopSignals

if TYPE_CHECKING:
    from jaxtrain.config import Config
    from jaxtrain.plugins.doctor.survey import Survey
    from jaxtrain.plugins.plan.estimate import Estimate

EXAMPLE = "--data folder:photos --out configs/photos.py"
# Maximum number of mask classes whose names are printed.
NUM_NAMED = 8


@dataclass(frozen=True, kw_only=True)
class NewArguments:
    """Inspect your own images or sounds, and write a recipe for them."""

    data: str = field(
        help="The images or sounds: a directory with one folder per class, or any "
        "data.source, such as csv:list.csv.",
    )
    out: Path = field(
        help="The recipe to write, such as configs/photos.py.",
    )
    pretrained: str | None = field(
        None,
        help="Weights to fine-tune, in any form that model.pretrained supports; None: "
        "train from scratch.",
    )
    trust: bool = trust_option("the directory of --pretrained requires")
    allow_outside: bool = field(
        False,
        help="Whether images may be outside the directory (data.allow_outside).",
    )
    targets: tuple[str, ...] = field(
        (),
        help="Columns of labels (0 or 1), or of numbers to predict (data.targets); for "
        "csv:, hf: and audio: sources.",
    )
    label_separator: str | None = field(
        None,
        help="Separator between the labels of an example (data.label_separator); for "
        "csv: and audio: sources.",
    )
    classes: str | None = field(
        None,
        help="File of the mask classes (data.classes); for masks:, csv: and hf: "
        "sources.",
    )
    data_dir: str | None = field(
        None,
        help="Directory of TFDS data sets; None: $TFDS_DATA_DIR, else "
        "~/tensorflow_datasets.",
    )


def run(arguments: NewArguments, signals: StopSignals) -> None:
    """Survey the data, write the recipe, time some steps, and print the results."""
    from jaxtrain.config.recipe import load_config
    from jaxtrain.data.opening import complete
    from jaxtrain.plugins.doctor.advice import advise, find_weights
    from jaxtrain.plugins.doctor.recipes import recipe_text
    from jaxtrain.plugins.doctor.survey import suitable_task, survey
    from jaxtrain.plugins.plan.estimate import estimate
    from jaxtrain.records.atomic_output import atomic_output, reported
    from jaxtrain.records.run_log import show_table
    from jaxtrain.weights.trust import trust

    out, source = arguments.out, complete(arguments.data)
    if out.suffix != ".py":
        raise UserError(f"--out {out}: expected a Python file, such as {out.stem}.py")
    if out.exists():
        raise UserError(
            f"--out {out} already exists: give another file name, or remove the "
            "existing file"
        )
    pretrained = arguments.pretrained
    if arguments.trust:
        if pretrained is None:
            raise UserError(
                "--trust has no effect without --pretrained: leave --trust out"
            )
        trust(pretrained)
    weights = None if pretrained is None else find_weights(pretrained)
    outside, data_dir = arguments.allow_outside, arguments.data_dir
    data = DataConfig(
        source=source,
        data_dir=data_dir,
        allow_outside=outside,
        targets=arguments.targets,
        label_separator=arguments.label_separator,
        classes=arguments.classes,
    )
    found = survey(data)
    task, advice = suitable_task(found, data), advise(found, data, weights)
    seen = describe(found)
    summary = "; ".join(f"{name}: {text}" for name, text in seen.items())

    def write(*more: str) -> "Config":
        told = [f"Data set: {summary}.", *more]
        with atomic_output("--out", out) as partial, reported("--out", out):
            text = recipe_text(advice, task, source, out, told, f"{found.noun}s")
            partial.write_text(text, encoding="utf-8")
        return load_config(out)

    config = write()
    show_table("data", seen)
    print(f"{out} is written; timing a few training steps")
    expected = estimate(config)
    rows = describe_time(expected)
    if "time" in rows:
        write(f"Estimated time: {rows['time']}.")
    show_table("estimate", rows)
    print("\n".join(next_commands(out, bool(own_references(config)))))


def describe(found: "Survey") -> dict[str, str]:
    """Return the rows of the table `data`: title -> text."""
    from jaxtrain.data.stores import describe_remarks

    counts, sizes, noun = found.class_counts, found.sizes, found.noun
    rows = {f"{noun}s": ", ".join(f"{n:,} {name}" for name, n in found.counts.items())}
    height, width = sizes.T
    if found.hears:
        seconds, rates = found.seconds, np.unique(height).tolist()
        rows["length"] = _range(f"{seconds.min():.2f}", f"{seconds.max():.2f}") + " s"
        rows["rate"] = ", ".join(f"{rate:,}" for rate in rates) + " Hz"
    else:
        least, most = f"{width.min()}x{height.min()}", f"{width.max()}x{height.max()}"
        rows["size"] = _range(least, most)
        rows["pixels"] = "colour" if found.colour else "grey"
    if found.pixel_classes:
        names = first_of(found.pixel_classes, NUM_NAMED)
        rows["masks"] = f"of {len(found.pixel_classes)} classes: {names}"
    elif found.numbers:
        rows["numbers"] = ", ".join(found.numbers)
    else:
        each = _range(f"{counts.min():,}", f"{counts.max():,}")
        rows[found.groups_are] = f"{found.num_groups}, of {each} training {noun}s"
    if bad := found.num_unreadable:
        rows["unreadable"] = f"{bad} of {bad + len(sizes)}"
    return rows | describe_remarks(found.remarks)


def _range(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"


def describe_time(expected: "Estimate | str") -> dict[str, str]:
    """Return the rows of the table `estimate`: run time, and options to reduce it."""
    from jaxtrain.plugins.plan.estimate import roughly

    if isinstance(expected, str):
        return {"not timed": expected}
    rows = {
        "time": f"about {roughly(expected.seconds)}, {expected.epochs:g} epochs of "
        f"{roughly(expected.epoch_seconds)} and {roughly(expected.compile_seconds)} to "
        f"compile, on {expected.device}"
    }
    if faster := expected.faster:
        lines = (f"{words}: about {roughly(time)}" for words, time in faster.items())
        rows["faster"] = "\n".join(lines)
    return rows


def next_commands(out: Path, custom_code: bool) -> list[str]:
    """Return lines with the next commands for a recipe.

    Args:
      out: Path of the recipe.
      custom_code: Whether the recipe uses custom code, which requires `--trust`.
    """
    trust = " --trust" if custom_code else ""
    recipe, workdir = shlex.quote(str(out)), shlex.quote(f"runs/{out.stem}")
    commands = {
        f"data --check --config {recipe}": "check all images",
        f"--config {recipe}": "train; Ctrl-C saves, and the same command resumes",
        f"evaluate --workdir {workdir}{trust}": "measure the trained model",
    }
    width = max(map(len, commands))
    lines = (f"  {program()} {c:<{width}}  # {why}" for c, why in commands.items())
    return ["next", *lines]
