"""Load a trained model: of the folder of a run, or of an exported one."""

import contextlib
import hashlib
import os
from pathlib import Path

from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.config import CheckpointConfig
from jaxtrain.errors import DamagedError, UserError
from jaxtrain.inference import description, folder
from jaxtrain.inference.model import TrainedModel, make_model
from jaxtrain.records.workdir import CHECKPOINTS, CONFIG


def load_model(
    path: str | os.PathLike[str], checkpoint: str | int = "best"
) -> TrainedModel:
    """Load the model that a run has trained, or that was exported.

    Of a run with averaged weights it has those, as the run's own evaluations.

    Args:
      path: folder of a run, or of a model exported as safetensors.
      checkpoint: of a run: the `best` by its validation, the `latest`, or that of a
        step. Of a run that ranks none, the best is the latest.

    Raises:
      UserError: there is no model that this version reads, or no such checkpoint.
      CheckpointError: the checkpoint is damaged.
    """
    place = Path(path)
    if not place.is_dir():
        raise UserError(
            f"{place} is no folder: give that of a run, or of a model exported with "
            "--format safetensors"
        )
    if folder.is_model(place):
        if checkpoint != "best":
            raise UserError(
                f"checkpoint = {checkpoint!r} has no effect on {place}, which holds "
                "one exported model: leave it out, or give the folder of the run"
            )
        return folder.load(place)
    return _load_run(place, checkpoint)


def _load_run(workdir: Path, checkpoint: str | int) -> TrainedModel:
    # For its message, first.
    description.read(workdir)
    saved = Checkpoints(workdir / CHECKPOINTS, CheckpointConfig(), read_only=True)
    with contextlib.closing(saved):
        while True:
            steps = saved.steps()
            try:
                step = _choose_step(saved, steps, checkpoint, workdir)
                return load_step(workdir, step)
            except DamagedError:
                # A run that is under way removes old ones for new ones.
                if saved.steps() == steps:
                    raise


def load_step(workdir: Path, step: int) -> TrainedModel:
    """Load the model of a checkpoint; a process of a run may do so alone.

    Raises:
      UserError: it is none that this version reads.
      CheckpointError: the checkpoint is damaged.
    """
    about, checkpoints = description.read(workdir), workdir / CHECKPOINTS
    saved = Checkpoints(checkpoints, CheckpointConfig(), read_only=True)
    with contextlib.closing(saved):
        state, _ = saved.read(step)
    params = state["ema_params"] or state["params"]
    model_state = state.get("ema_model_state") or state["model_state"]
    origin = {
        "step": step,
        "run": hashlib.sha256((workdir / CONFIG).read_bytes()).hexdigest(),
    }
    return make_model(about, params, model_state, origin, f"{checkpoints / str(step)}")


def _choose_step(
    saved: Checkpoints, steps: list[int], checkpoint: str | int, workdir: Path
) -> int:
    if not steps:
        raise UserError(
            f"{workdir} holds no checkpoint: it was stopped before its first; run "
            "train on it again"
        )
    if checkpoint == "best":
        best = (saved.info(steps[-1])["progress"]["best"] or {}).get("step")
        return best if best in steps else steps[-1]
    if checkpoint == "latest":
        return steps[-1]
    for step in steps:
        if str(checkpoint) == str(step):
            return step
    raise UserError(
        f"checkpoint = {checkpoint!r}: {workdir} has best, latest and the steps "
        f"{', '.join(map(str, steps))}"
    )
