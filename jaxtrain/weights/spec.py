"""Specs of trained weights: a run, an exported model, a file, or a hub name."""

import itertools
import os
from pathlib import Path
from typing import NamedTuple, get_args

from jaxtrain.config import Config
from jaxtrain.config.recipe import CONFIG, WEIGHTS, is_run
from jaxtrain.data import formats
from jaxtrain.data.image_files import listed, shown
from jaxtrain.errors import UserError
from jaxtrain.records.workdir import METRICS
from jaxtrain.training.methods import weights_options
from jaxtrain.weights import files, hub
from jaxtrain.weights.description import MODEL
from jaxtrain.weights.names import Library

FILES = (*files.SAFETENSORS, *files.TORCH)
# Name of the program file that `export --format saved` writes.
PROGRAM = "program.stablehlo"
# Maximum number of entries to inspect per directory.
MAX_ENTRIES = 1000

RUN = "give the directory of a run"
MODEL_OR_RUN = f"{RUN}, or of a model that was exported with --format safetensors"
_ELSEWHERE = f"(docs/exporting.md), or {MODEL_OR_RUN}"


class Reference(NamedTuple):
    """Weight file with a user-specified architecture: LIBRARY:ARCHITECTURE=FILE."""

    library: Library
    architecture: str
    file: Path


class Spec(NamedTuple):
    """Location of trained weights.

    Attributes:
      path: Weight file, or directory of a run or model.
      names: Names of weight files in a model's directory; the first existing one is
        used.
      reference: Architecture of the file, if the user specifies it.
    """

    path: Path
    names: tuple[str, ...] = WEIGHTS
    reference: Reference | None = None

    @property
    def is_run(self) -> bool:
        return is_run(self.path)

    @property
    def is_file(self) -> bool:
        """Whether the path is a weight file rather than a directory."""
        return not self.path.is_dir()


class PathDiagnosis(NamedTuple):
    """Description of a path that is not a run, model or weight file, with a fix."""

    what: str
    fix: str


def parse_reference(text: str) -> Reference | None:
    """Parse LIBRARY:ARCHITECTURE=FILE; return None for other forms.

    Raises:
      UserError: The architecture or the file is missing after a library.
    """
    library, colon, rest = text.partition(":")
    if not colon or library not in get_args(Library):
        return None
    architecture, _, file = rest.partition("=")
    if not architecture or not file:
        raise UserError(
            f"{text}: expected {library}:ARCHITECTURE=FILE, such as "
            f"{library}:resnet50=weights.safetensors, or hf:OWNER/REPO for a model of "
            "the Hugging Face Hub"
        )
    return Reference(library, architecture, Path(file))  # type: ignore[arg-type]


def path_of(text: str) -> Path:
    """Return the path of a spec, whether or not it exists."""
    reference = parse_reference(text)
    return Path(text) if reference is None else reference.file


def weights_in(config: Config) -> dict[str, str]:
    """Return the weight specs in a config, by field name."""
    options = config.method.arguments()
    specs = {"model.pretrained": config.model.pretrained}
    specs |= {f"method.{x}": options.get(x) for x in weights_options()}
    return {field: str(text) for field, text in specs.items() if text is not None}


def check_kept(config: Config, workdir: Path) -> None:
    """Check that no weights of a config are in the workdir, which --fresh moves aside.

    Raises:
      UserError: Weights that the config uses are inside the workdir.
    """
    for field, path in weights_in(config).items():
        if path_of(path).resolve().is_relative_to(workdir.resolve()):
            raise UserError(
                f"--fresh would move {workdir} aside, which contains {field} = "
                f"{path!r}: choose another --workdir"
            )


def find(text: str) -> Spec:
    """Resolve a spec to a local path; download weights from the Hugging Face Hub.

    Raises:
      UserError: The path does not exist, or is not a run, a model or a weight file.
    """
    check_is_model(text)
    if text.startswith(hub.PREFIX):
        return Spec(hub.fetch(text, WEIGHTS))
    reference, path = parse_reference(text), path_of(text)
    # A config.json next to the weight file has more information than the weight file.
    is_part = reference is None and path.name in WEIGHTS and not path.is_dir()
    if is_part and (path.parent / CONFIG).is_file():
        return Spec(path.parent, (path.name,))
    return Spec(path, reference=reference)


def check_is_model(text: str) -> None:
    """Check that a spec may be a run, a model or a weight file.

    Raises:
      UserError: The path does not exist, or is not a run, a model or a weight file.
    """
    if text.startswith(hub.PREFIX):
        return
    reference, path = parse_reference(text), path_of(text)
    text = str(path) if reference else text
    if not os.path.exists(text):
        raise UserError(
            f"{shown(text)} does not exist: give the directory of a run or of a model, "
            f"a weight file, or {hub.PREFIX}OWNER/REPO"
        )
    if reference is not None and path.is_dir():
        raise UserError(
            f"{shown(text)} is a directory: give a weight file of "
            f"{shown(reference.architecture)}, or the directory without the prefix"
        )
    diagnosis = diagnose_path(path)
    if diagnosis is not None:
        raise UserError(f"{shown(text)} is {diagnosis.what}: {diagnosis.fix}")


def diagnose_path(path: Path) -> PathDiagnosis | None:
    """Diagnose a path; return None if it may be a run, a model or a weight file."""
    if path.is_dir():
        return _diagnose_folder(path)
    if path.suffix in FILES or not path.exists():
        return None
    if formats.may_be_image(bytes(path)):
        return PathDiagnosis("an image", f"{MODEL_OR_RUN}; only predict takes images")
    kinds = {
        ".onnx": ("an ONNX file", f"run the file with ONNX Runtime {_ELSEWHERE}"),
        ".stablehlo": (
            "a StableHLO program",
            f"run the program with jax.export {_ELSEWHERE}",
        ),
        ".py": ("a recipe", f"{RUN} of this recipe, such as runs/{path.stem}"),
    }
    other = (
        "neither a directory nor a weight file",
        f"give a weight file, {', '.join(FILES)}; or {MODEL_OR_RUN}",
    )
    return PathDiagnosis(*kinds.get(path.suffix, other))


def _diagnose_folder(path: Path) -> PathDiagnosis | None:
    name = shown(str(path))
    if (path / PROGRAM).is_file():
        return PathDiagnosis(
            "a model exported with --format saved",
            f"run the program with python {name}/run.py, or {MODEL_OR_RUN}",
        )
    if any((path / file).exists() for file in (CONFIG, MODEL, METRICS, *WEIGHTS)):
        return None
    for run in (path.parent, path.parent.parent):
        if (run / CONFIG).is_file() and (run / METRICS).is_file():
            return PathDiagnosis("a subdirectory of a run", f"give {shown(str(run))}")
    entries = _entries(path)
    runs = [str(p) for p in entries if (p / CONFIG).is_file()]
    if runs:
        return PathDiagnosis(
            "a directory of several runs or models",
            f"give one of the directories {listed(runs)}",
        )
    weights = [str(p) for p in entries if p.suffix in FILES]
    if weights:
        return PathDiagnosis("not a run", f"give the weight file {listed(weights)}")
    inside = (file for p in entries if p.is_dir() for file in _entries(p))
    if any(formats.may_be_image(bytes(p)) for p in itertools.chain(entries, inside)):
        return PathDiagnosis(
            "a folder of images",
            f"{MODEL_OR_RUN}; give images to predict after the options, and to "
            f"evaluate as --data.source folder:{name}",
        )
    what = "a directory without a run (config.json) or a model (model.safetensors)"
    return PathDiagnosis(what if entries else "an empty directory", MODEL_OR_RUN)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(itertools.islice(folder.iterdir(), MAX_ENTRIES))
    except OSError as error:
        raise UserError(f"{shown(str(folder))}: {error.strerror}") from None
