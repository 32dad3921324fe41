"""The model of a finished run: the checkpoint that is tested and that others use."""

from dataclasses import dataclass
from typing import Any

import jax

from jaxtrain.checkpoints.manifest import best_step
from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.errors import DamagedError
from jaxtrain.processes import peers
from jaxtrain.run.attempt import Attempt
from jaxtrain.training.state import TrainState, as_dict


@dataclass(frozen=True, kw_only=True)
class Tested:
    """The checkpoint that the final test is of.

    Attributes:
      step: Completed steps.
      validation: Metrics of the validation split; None if it was not evaluated.
    """

    step: int
    validation: dict[str, Any] | None


def load_tested(attempt: Attempt) -> Tested:
    """Replace the last state of an attempt by that of its best checkpoint.

    `evaluate`, `predict`, `export` and `serve` take the same checkpoint, so that a run
    has one model and one result. A checkpoint that turns out to be damaged is put
    aside, and the best of the others is taken.

    Raises:
      CheckpointError: No checkpoint can be read.
    """
    job, loaded = attempt.job, attempt.step
    with attempt.clock.paused(), attempt.watchdog.saving():
        while True:
            step = _choose(job.saved)
            if step == loaded:
                return Tested(step=step, validation=job.saved.info(step)["metrics"])
            # The devices do not have to hold two states at a time.
            jax.tree.map(lambda array: array.delete(), attempt.state)
            loaded = None
            try:
                fields, _ = job.saved.restore(step, as_dict(job.setup.abstract_state))
            except DamagedError as error:
                attempt.tell(f"{error}; put aside")
                job.saved.put_aside(step)
                continue
            attempt.state, loaded = TrainState(**fields), step


def _choose(saved: Checkpoints) -> int:
    """Return the best step; process 0 chooses, as it alone writes checkpoints."""
    step = None
    if jax.process_index() == 0:
        steps = saved.listed()
        step = best_step(saved.info(steps[-1]), steps)
    return peers.gather(step)[0]
