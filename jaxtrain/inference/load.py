"""Load a trained model: of the folder of a run, of an exported one, or of others."""

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from jaxtrain import own
from jaxtrain.checkpoints.manifest import best_step
from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.config import CheckpointConfig, ModelConfig, own_references
from jaxtrain.config.recipe import WEIGHTS, is_run
from jaxtrain.errors import DamagedError, UserError
from jaxtrain.inference import (
    description,
    ensemble,
    folder,
    foreign,
    mistaken,
    trained,
)
from jaxtrain.inference import trust as trust_lib
from jaxtrain.inference.description import Description
from jaxtrain.inference.model import TrainedModel
from jaxtrain.inference.trained import Trained, ours, shapes_of
from jaxtrain.json_files.run_id import RunId
from jaxtrain.models.weights import hub
from jaxtrain.models.weights.identify import parse_reference
from jaxtrain.models.weights.names import OWN
from jaxtrain.records.workdir import CHECKPOINTS
from jaxtrain.training.state import eval_weights
from jaxtrain.trees import by_path

T = TypeVar("T")


def load_model(
    path: str | os.PathLike[str],
    checkpoint: str | int = "best",
    *,
    trust: bool = False,
) -> TrainedModel:
    """Load the model that a run has trained, that was exported, or of other libraries.

    Of a run with averaged weights it has those, as the run's own evaluations.

    Args:
      path: folder of a run, or of a model exported as safetensors; one in timm's form;
        a file of weights of timm or torchvision, .safetensors or .pth, whose name
        begins with its architecture; LIBRARY:ARCHITECTURE=FILE; hf:OWNER/REPO.
      checkpoint: of a run: the `best` by its validation, the `latest`, or that of a
        step. Of a run that ranks none, the best is the latest.
      trust: Whether to run the code of parts of your own that the folder names, after
        their files were shown and compared with the recorded digests.

    Raises:
      UserError: there is no model that this version reads, or no such checkpoint.
      CheckpointError: the checkpoint is damaged.
    """
    text = os.fspath(path)
    mistaken.check_is_model(text)
    if trust:
        trust_lib.trust(text)
    if is_run(Path(text)):
        return _newest(Path(text), checkpoint, _load_step)
    if checkpoint != "best":
        raise UserError(
            f"checkpoint = {checkpoint!r} has no effect on {text}, which holds one "
            "model: leave it out, or give the folder of the run"
        )
    return trained.load(find(text))


def find(text: str, models: Sequence[ModelConfig] = ()) -> Trained:
    """Find trained weights without reading them: see `load_model`.

    Args:
      text: a path, LIBRARY:ARCHITECTURE=FILE, or hf:OWNER/REPO.
      models: Models of the recipe, for a file whose name begins with none.

    Raises:
      UserError: there is no model that this version reads.
      CheckpointError: of a run, its checkpoint is damaged.
    """
    if text.startswith(hub.PREFIX):
        return _find_folder(hub.fetch(text, WEIGHTS))
    mistaken.check_is_model(text)
    reference = parse_reference(text)
    if reference is not None:
        return foreign.open_file(reference.file, reference)
    place = Path(text)
    if is_run(place):
        return _newest(place, "best", _find_step)
    if place.is_dir():
        return _find_folder(place)
    # It tells more than the file alone.
    beside = place.parent / foreign.CONFIG
    if place.name in WEIGHTS and beside.is_file():
        return _find_folder(place.parent, (place.name,))
    return foreign.open_file(place, models=models)


def _find_folder(place: Path, weights: tuple[str, ...] = WEIGHTS) -> Trained:
    config = foreign.read_config(place / foreign.CONFIG)
    if folder.OURS in config:
        return folder.open_folder(place, config)
    return foreign.open_folder(place, config, weights)


@contextlib.contextmanager
def _opened(workdir: Path) -> Iterator[tuple[Description, Checkpoints]]:
    about = description.read(workdir)
    for field, name in own_references(about.model, "model."):
        own.check_allowed(field, name)
    run = RunId.read(workdir)
    saved = Checkpoints(
        workdir / CHECKPOINTS, CheckpointConfig(), run=run, read_only=True
    )
    with contextlib.closing(saved):
        yield about, saved


def _newest(
    workdir: Path,
    checkpoint: str | int,
    load: Callable[[Description, Checkpoints, int], T],
) -> T:
    """Do something with a checkpoint that a run may remove meanwhile."""
    with _opened(workdir) as (about, saved):
        while True:
            steps = saved.steps()
            try:
                return load(about, saved, _choose_step(saved, steps, checkpoint))
            except DamagedError:
                # A run that is under way removes old ones for new ones.
                if saved.steps() == steps:
                    raise


def _find_step(about: Description, saved: Checkpoints, step: int) -> Trained:
    workdir, info = saved.directory.parent, saved.info(step)
    arrays = json.dumps(info["arrays"], sort_keys=True).encode()

    def read() -> Mapping[str, np.ndarray]:
        model = load_step(workdir, step)
        found = by_path((model.params, model.model_state))
        return {OWN.name(ours(path)): np.asarray(x) for path, x in found.items()}

    return Trained(
        where=f"{workdir}, step {step}",
        about=about.with_chosen(
            info["progress"]["chosen"], f"{saved.directory / str(step)}"
        ),
        shapes={
            OWN.name(path): shape
            for path, shape in shapes_of(ensemble.abstract(about)).items()
        },
        digest=functools.cache(lambda: hashlib.sha256(arrays).hexdigest()),
        read=read,
        origin=_origin(saved, step),
    )


def load_step(workdir: Path, step: int) -> TrainedModel:
    """Load the model of a checkpoint; a process of a run may do so alone.

    Raises:
      UserError: it is none that this version reads.
      CheckpointError: the checkpoint is damaged.
    """
    with _opened(workdir) as (about, saved):
        return _load_step(about, saved, step)


def _load_step(about: Description, saved: Checkpoints, step: int) -> TrainedModel:
    state, info = saved.read(step)
    params, model_state = eval_weights(state)
    origin, where = _origin(saved, step), f"{saved.directory / str(step)}"
    about = about.with_chosen(info["progress"]["chosen"], where)
    return ensemble.make(about, params, model_state, origin, where)


def _origin(saved: Checkpoints, step: int) -> dict[str, Any]:
    return {"step": step, "run": saved.run.value}


def _choose_step(saved: Checkpoints, steps: list[int], checkpoint: str | int) -> int:
    workdir = saved.directory.parent
    if not steps:
        raise UserError(
            f"{workdir} holds no checkpoint: it was stopped before its first; run "
            "train on it again"
        )
    if checkpoint == "best":
        return best_step(saved.info(steps[-1]), steps)
    if checkpoint == "latest":
        return steps[-1]
    for step in steps:
        if str(checkpoint) == str(step):
            return step
    raise UserError(
        f"checkpoint = {checkpoint!r}: {workdir} has best, latest and the steps "
        f"{', '.join(map(str, steps))}"
    )
