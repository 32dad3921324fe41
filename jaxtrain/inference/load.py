"""Load a trained model: of the folder of a run, of an exported one, or of others."""

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
    """Load the model that a run has trained, that was exported, or of other libraries.

    Of a run with averaged weights it has those, as the run's own evaluations.

    Args:
      path: A path or a name: see `jaxtrain.weights.load`.
      checkpoint: of a run: the `best` by its validation, the `latest`, or that of a
        step. Of a run that ranks none, the best is the latest.
      trust: Whether to run the code of parts of your own that the folder names, after
        their files were shown and compared with the recorded digests.

    Raises:
      UserError: there is no model that this version reads, or no such checkpoint.
      CheckpointError: the checkpoint is damaged.
    """
    text = os.fspath(path)
    found = find(text)
    if trust:
        trust_lib.trust(text)
    if found.is_run:
        return with_checkpoint(found.path, checkpoint, _read)
    if checkpoint != "best":
        raise UserError(
            f"checkpoint = {checkpoint!r} has no effect on {text}, which holds one "
            "model: leave it out, or give the folder of the run"
        )
    return _read(load(found), check_finite=True)


def _read(weights: Weights, *, check_finite: bool = False) -> TrainedModel:
    """Read the weights of a model.

    Raises:
      UserError: They are others than the model has, or damaged.
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
