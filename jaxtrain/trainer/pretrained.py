"""The first weights of a run that begins with trained ones."""

from typing import Any

from jaxtrain import keys
from jaxtrain.trainer.fitted import fit_kernels
from jaxtrain.trainer.programs import Programs
from jaxtrain.trainer.settle import open_weights
from jaxtrain.trainer.setup import Setup
from jaxtrain.weights.adapt import compare
from jaxtrain.weights.stored import Transfer, Weights


def plan_start(setup: Setup, trained: Weights | None = None) -> Transfer | None:
    """Compare trained weights with the model of a run.

    Args:
      setup: Setup of the run.
      trained: Weights to begin with. None means those that its config was settled by;
        without these, None is returned.

    Raises:
      UserError: They do not fit.
    """
    trained = trained or setup.trained
    if trained is None:
        return None
    state, task = setup.abstract_state, setup.task
    return compare(
        trained,
        setup.create.blueprint,
        (state.params, state.model_state),
        class_names=task.class_names,
        column_names=task.column_names,
        settled=task.settled,
    )


def first_weights(
    setup: Setup, programs: Programs, start: Transfer | None
) -> tuple[tuple[Any, Any], str | None]:
    """Return the weights that a run begins with, and the event that tells of them.

    Args:
      setup: Setup of the run.
      programs: Programs that make new weights.
      start: Trained weights that it begins with; None: those that its config names, if
        it does.

    Raises:
      UserError: `model.pretrained` names no model that fits, or it is damaged.
    """
    config = setup.config
    weights = programs.weights(keys.root_key(config.seed))
    if config.model.pretrained is None:
        return fit_kernels(setup, programs, weights), None
    start = start or plan_start(setup, open_weights(config.model))
    assert start is not None
    text = f"begins with the weights of {start.weights.where}"
    if "new" in start.rows:
        text += ", but for " + start.rows["new"].partition(":")[0]
    return start.fill(weights), text
