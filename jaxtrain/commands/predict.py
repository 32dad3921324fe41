"""`main.py predict`: predictions of a trained model for image files."""

import contextlib
import itertools
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from jaxtrain.config.command_options import platform_option, trust_option
from jaxtrain.config.metadata import field
from jaxtrain.console import printable, progress, require_output
from jaxtrain.errors import IncompleteError, UserError
from jaxtrain.inference import PREDICTIONS
from jaxtrain.processes import collector
from jaxtrain.processes.signals import StopSignals

if TYPE_CHECKING:
    from jaxtrain.data.image_files import FileNames
    from jaxtrain.inference.model import TrainedModel
    from jaxtrain.inference.sinks import PredictionFile, Sink
    from jaxtrain.tasks.decoder import OutputDecoder
    from jaxtrain.tasks.prediction import Prediction

    # Image; prediction or None; error or None.
    ShownRow = tuple[Any, Prediction | None, str | None]

EXAMPLE = "--workdir runs/digits --out predictions.csv photos more/*.png"

# Maximum number of rows in the printed table.
NUM_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class ImageArguments:
    """Options of `predict`, except the options of the parts in `PREDICTIONS`."""

    images: Annotated[tuple[str, ...], tyro.conf.Positional] = field(
        (),
        help="Files, directories (read recursively), patterns, or '-' for file "
        "names from standard input.",
    )
    workdir: Path = field(
        help="Directory of a run or of a model, a weight file, or hf:OWNER/REPO.",
    )
    checkpoint: str = field(
        "best",
        help="Checkpoint of a run: best (by validation), latest, or a step number.",
    )
    out: Path | None = field(
        None,
        help="Table of predictions to write, as .csv, .jsonl or .parquet file; None: "
        "print the first rows.",
    )
    topk: int = field(
        1,
        help="Number of most likely classes to report for each image.",
    )
    batch_size: int = field(
        64,
        help="Batch size in images, or in windows for sliding-window models.",
    )
    strict: bool = field(
        False,
        help="Exit with code 1 if an image cannot be predicted.",
    )
    explain: Path | None = field(
        None,
        help="New directory for Grad-CAM overlays of the most likely class.",
    )
    features: Path | None = field(
        None,
        help="New .npy file for the features of the images, which are the inputs of "
        "the last layer: float32, of shape (images, features).",
    )
    outputs: Path | None = field(
        None,
        help="New directory for the raw outputs, in float32: a .npy file for each "
        "image, or a .npz file if the model has several heads.",
    )
    pictures: Path | None = field(
        None,
        help="New directory for the images with drawn predictions, such as boxes.",
    )
    calibrated: bool = field(
        False,
        help="Divide the logits by the temperature fitted by evaluate --calibrate.",
    )
    trust: bool = trust_option()
    platform: Literal["auto", "cpu", "gpu", "tpu"] = platform_option()


@dataclass(frozen=True, kw_only=True)
class PredictArguments(*(p.Options for p in PREDICTIONS.values()), ImageArguments):
    """Predict images with a trained model; write a table, features or explanations."""


def run(arguments: PredictArguments, signals: StopSignals) -> None:
    """Predict all images or, without output files, only images of the printed table."""
    _check(arguments)
    require_output(not _output_paths(arguments))
    with collector.held_back():
        from jaxtrain.data import formats
        from jaxtrain.inference import predict, temperature
        from jaxtrain.inference.image_paths import expand_paths
        from jaxtrain.inference.load import load_model
        from jaxtrain.parallel import devices
        from jaxtrain.weights.trust import trust

    if arguments.trust:
        trust(arguments.workdir)
    devices.start(arguments.platform)
    model = load_model(arguments.workdir, arguments.checkpoint)
    unread = list[bytes]()
    images = expand_paths(arguments.images, kind=model.kind, unread=unread)
    fitted = None
    if arguments.calibrated:
        fitted = temperature.read_for(model, arguments.workdir)
    wanted = predict.Wanted(
        topk=arguments.topk,
        temperature=fitted,
        features=arguments.features is not None,
        maps=arguments.explain is not None,
        outputs=arguments.outputs is not None
        or any(p.needs_outputs(arguments) for p in PREDICTIONS.values()),
        pictures=arguments.pictures is not None,
    )
    predict.check(model, wanted)
    # Without output files only the images in the printed table are needed.
    every = arguments.strict or _output_paths(arguments)
    names = images if every else images.first(NUM_SHOWN)
    prepared = (p.prepare(arguments, model, names) for p in PREDICTIONS.values())
    part_files = list(itertools.chain(*prepared))
    has_table = bool(model.decoder.columns())
    start, errors = time.perf_counter(), Counter[str]()
    shown: list[ShownRow] = []
    program = predict.make_program(model, wanted)
    batches = predict.predict(model, program, names, arguments.batch_size)
    with (
        _sinks(arguments, model, names, part_files) as sinks,
        contextlib.closing(batches),
        progress("predicting", len(names)) as advance,
    ):
        for batch in batches:
            for write in sinks:
                write(batch)
            for i in range(min(NUM_SHOWN - len(shown), len(batch.errors))):
                found_there = predict.prediction(model, batch, i)
                shown.append((batch.images[i], found_there, batch.errors[i]))
            errors.update(error for error in batch.errors if error is not None)
            advance(len(batch.errors))
    seconds = time.perf_counter() - start
    if has_table and arguments.out is None:
        _show(shown, model.decoder)
    left = len(images) - len(shown) if has_table else 0
    problems = _problems(errors, len(names))
    passed_over = [f"{r.title}: {r.text}" for r in model.kind.passed_over(unread)]
    _print_summary(arguments, len(names), left, [*problems, *passed_over], seconds)
    for remark in (file.remark for file in part_files):
        if remark is not None:
            print(printable(remark))
    # Images that only an optional library can read are problems, too.
    if any(map(formats.lacks_plugin, unread)):
        problems += passed_over
    if arguments.strict and problems:
        raise IncompleteError(f"--strict: {'; '.join(problems)}")


def _check(arguments: PredictArguments) -> None:
    from jaxtrain.inference import tables

    for option in ("topk", "batch_size"):
        value = getattr(arguments, option)
        if value < 1:
            raise UserError(f"--{option.replace('_', '-')} {value}: give 1 or more")
    if arguments.out is not None:
        tables.check("--out", arguments.out)
    if arguments.features is not None and arguments.features.suffix != ".npy":
        raise UserError(
            f"--features {arguments.features}: expected a NumPy file, such as "
            "features.npy"
        )
    for part in PREDICTIONS.values():
        part.check(arguments)


def _output_paths(arguments: PredictArguments) -> list[Path]:
    options_of_predict = "out", "features", "explain", "outputs", "pictures"
    of_parts = (part.paths for part in PREDICTIONS.values())
    options = itertools.chain(options_of_predict, *of_parts)
    paths = (getattr(arguments, option) for option in options)
    return [path for path in paths if path is not None]


@contextlib.contextmanager
def _sinks(
    arguments: PredictArguments,
    model: "TrainedModel",
    names: "FileNames",
    part_files: "list[PredictionFile]",
) -> "Iterator[list[Sink]]":
    """Open all output files, under temporary names; rename them at the end."""
    from jaxtrain.inference import predict, sinks

    with contextlib.ExitStack() as renames, contextlib.ExitStack() as stack:
        opened = []
        if arguments.out is not None:
            opened.append(sinks.table(arguments.out, model, arguments.topk, renames))
        if arguments.features is not None:
            width = predict.num_features(model)
            path = arguments.features
            opened.append(sinks.features(path, len(names), width, renames))
        if arguments.explain is not None:
            opened.append(sinks.overlays(arguments.explain, names, model, renames))
        if arguments.outputs is not None:
            opened.append(sinks.outputs(arguments.outputs, names, renames))
        if arguments.pictures is not None:
            opened.append(sinks.pictures(arguments.pictures, names, model, renames))
        opened += [file.open(renames) for file in part_files]
        yield [stack.enter_context(one) for one in opened]


def _show(rows: "list[ShownRow]", decoder: "OutputDecoder") -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    from jaxtrain.data.image_files import shown
    from jaxtrain.evaluation.finite import NOT_FINITE

    table = Table("filename", *(escape(printable(head)) for head in decoder.heads()))
    for name, prediction, error in rows:
        if prediction is not None:
            cells = prediction.cells()
        else:
            cells = (error if error == NOT_FINITE else f"unreadable: {error}",)
        name = os.fsencode(name).decode("utf-8", "backslashreplace")
        # File and class names may contain rich markup, which Text does not interpret.
        table.add_row(*(Text(x) for x in (shown(name), *map(printable, cells))))
    Console().print(table)
    if more := decoder.num_hidden():
        print(f"{more:,} more values per image: --out predictions.csv writes all")


def _problems(errors: Counter[str], num: int) -> list[str]:
    """Return a line per reason for missing predictions, with the number of images."""
    from jaxtrain.evaluation.finite import NOT_FINITE

    bad = errors[NOT_FINITE]
    unreadable = errors.total() - bad
    problems = []
    if unreadable:
        problems.append(f"{unreadable:,} of {num:,} images could not be read")
    if bad:
        problems.append(f"{NOT_FINITE} for {bad:,} of {num:,} images")
    return problems


def _print_summary(
    arguments: PredictArguments,
    num: int,
    left: int,
    problems: list[str],
    seconds: float,
) -> None:
    if names := ", ".join(map(str, _output_paths(arguments))):
        print(f"{names}: {num:,} images in {seconds:.1f} s")
    for problem in problems:
        print(printable(problem))
    if arguments.out is None and left:
        state = "are not shown" if num > NUM_SHOWN else "were not predicted"
        print(f"{left:,} more images {state}: --out predictions.csv writes all")
