"""What a path is that was given for a trained model and is none."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from jaxtrain.config.recipe import CONFIG, WEIGHTS
from jaxtrain.data import formats
from jaxtrain.data.image_files import listed, shown
from jaxtrain.errors import UserError
from jaxtrain.inference.description import MODEL
from jaxtrain.models.weights import files, hub
from jaxtrain.models.weights.identify import parse_reference
from jaxtrain.records.workdir import METRICS

# Of `export --format saved`.
PROGRAM = "program.stablehlo"
# Entries of a folder that are looked at, and of each folder in it.
MAX_ENTRIES = 1000

RUN = "give the folder of a run"
MODEL_OR_RUN = f"{RUN}, or of a model that was exported with --format safetensors"


class Mistaken(NamedTuple):
    """What else than a run, a model or a file of weights it is, and what to do."""

    what: str
    fix: str


def check_is_model(text: str) -> None:
    """Check that what was given may be a run, a model or a file of weights.

    Raises:
      UserError: Nothing is there, or something else.
    """
    if text.startswith(hub.PREFIX):
        return
    reference = parse_reference(text)
    text = text if reference is None else str(reference.file)
    if not os.path.exists(text):
        raise UserError(
            f"{shown(text)} is not there: give the folder of a run or of a model, a "
            f"file of weights, or {hub.PREFIX}OWNER/REPO"
        )
    if reference is not None and os.path.isdir(text):
        raise UserError(
            f"{shown(text)} is a folder: give a file of weights of "
            f"{shown(reference.architecture)}, or the folder alone"
        )
    found = what_is(Path(text))
    if found is not None:
        raise UserError(f"{shown(text)} is {found.what}: {found.fix}")


def what_is(place: Path) -> Mistaken | None:
    """Return what a path is; None if it may be a run or a model, or is not there."""
    if place.is_dir():
        return _of_folder(place)
    return _of_file(place) if place.exists() else None


def _of_file(place: Path) -> Mistaken | None:
    known = (*files.SAFETENSORS, *files.TORCH)
    if place.suffix in known:
        return None
    if formats.may_be_image(bytes(place)):
        return Mistaken("an image", f"{MODEL_OR_RUN}, and images to predict alone")
    elsewhere = f"(see docs/exporting.md), jaxtrain does not; {MODEL_OR_RUN}"
    kinds = {
        ".onnx": ("an ONNX file", f"ONNX Runtime runs it {elsewhere}"),
        ".stablehlo": ("a StableHLO program", f"jax.export runs it {elsewhere}"),
        ".py": ("a recipe", f"{RUN} that has trained it, runs/{place.stem}"),
    }
    other = (
        "no folder and no file of weights",
        f"expected a file of weights, {', '.join(known)}; or {MODEL_OR_RUN}",
    )
    return Mistaken(*kinds.get(place.suffix, other))


def _of_folder(place: Path) -> Mistaken | None:
    name = shown(str(place))
    if (place / PROGRAM).is_file():
        return Mistaken(
            "a model exported with --format saved",
            f"its own script runs it, python {name}/run.py; {MODEL_OR_RUN}",
        )
    if any((place / file).exists() for file in (CONFIG, MODEL, METRICS, *WEIGHTS)):
        return None
    for run in (place.parent, place.parent.parent):
        if (run / CONFIG).is_file() and (run / METRICS).is_file():
            return Mistaken("a part of a run", f"give {shown(str(run))}")
    entries = list(_entries(place))
    runs = [str(p) for p in entries if (p / CONFIG).is_file()]
    if runs:
        return Mistaken(
            "a folder of runs or models", f"give one of them: {listed(runs)}"
        )
    weights = [str(p) for p in entries if p.suffix in files.SAFETENSORS + files.TORCH]
    if weights:
        return Mistaken("no run", f"give the file of weights: {listed(weights)}")
    if _has_images(entries):
        return Mistaken(
            "a folder of images",
            f"{MODEL_OR_RUN}; images go to predict behind its options, and to evaluate "
            f"as --data.source folder:{name}",
        )
    what = "a folder without a run (config.json) or a model (model.safetensors)"
    return Mistaken(what if entries else "an empty folder", MODEL_OR_RUN)


def _entries(folder: Path) -> Iterator[Path]:
    """Yield the first entries of a folder in the order of their names."""
    try:
        names = itertools.islice(folder.iterdir(), MAX_ENTRIES)
        yield from sorted(names)
    except OSError as error:
        raise UserError(f"{shown(str(folder))}: {error.strerror}") from None


def _has_images(entries: list[Path]) -> bool:
    """Whether a folder or one in it has an image."""
    if any(formats.may_be_image(bytes(path)) for path in entries):
        return True
    folders = [path for path in entries if path.is_dir()]
    return any(
        formats.may_be_image(bytes(path)) for one in folders for path in _entries(one)
    )
