"""Loading of trained models from runs, exports and files of other libraries."""

import os

from jaxtrain.errors import UserError
from jaxtrain.inference import ensemble
from jaxtrain.inference.model import TrainedModel
from jaxtrain.weights import trust as trust_lib
from jaxtrain.weights.resolve import load, with_checkpoint
from jaxtrain.weights.spec import find
from jaxtrain.weights.stored import Transfer, Weights, abstract_members


def load_model(
    path: str | os.PathLike[str],
    checkpoint: str | int = "best",
    *,
    trust: bool = False,
) -> TrainedModel:
    """Load a model from a run, an export, or another library's file.

    If the run averages weights, the averaged weights are loaded.

    Args:
      path: Path or name in one of the forms that `jaxtrain.weights.load` lists.
      checkpoint: Checkpoint of a run: `best` in validation, `latest`, or a step. If the
        run does not rank checkpoints by validation, `best` is the latest.
      trust: Whether to import the custom modules that the run or export refers to,
        after their files are printed and compared with the recorded digests.

    Raises:
      UserError: The path has no model of a supported version, or the run does not have
        the checkpoint.
      CheckpointError: The checkpoint is damaged.
    """
    text = os.fspath(path)
    spec = find(text)
    if trust:
        trust_lib.trust(text)
    if spec.is_run:
        return with_checkpoint(spec.path, checkpoint, _read)
    if checkpoint != "best":
        raise UserError(
            f"checkpoint = {checkpoint!r} has no effect on {text}, which has no "
            "checkpoints: leave checkpoint out, or give the directory of a run"
        )
    return _read(load(spec), check_finite=True)


def _read(weights: Weights, *, check_finite: bool = False) -> TrainedModel:
    """Build a model from weights.

    Raises:
      UserError: The weights do not fit the architecture, or are damaged.
    """
    about, origin = weights.about, weights.origin
    wanted, name = abstract_members(about), about.model.name
    weights.check_whole(wanted, f"{weights.where} does not fit model.name = {name!r}")
    params, model_state = Transfer(weights).fill(
        wanted, lambda array, _: array, check_finite=check_finite
    )
    if origin is None:
        origin = {"step": None, "run": None, "weights": weights.digest()}
    return ensemble.make(about, params, model_state, origin, weights.where)
