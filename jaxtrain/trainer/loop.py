"""Training loop: evaluations, checkpoints and steps."""

import contextlib

import jax

from jaxtrain.trainer import evaluations
from jaxtrain.trainer.run_state import RunState
from jaxtrain.trainer.saves import Saves


def take_steps(run: RunState) -> None:
    """Train until the run ends or a stop is requested; then save the state.

    Raises:
      BadNumbersError: Too many non-finite steps in a row.
      CheckpointError: The state could not be saved.
    """
    trainer, callbacks, clock, saves = run.trainer, run.callbacks, run.clock, Saves(run)
    with (
        contextlib.closing(trainer.batches(run.step)) as batches,
        clock.timing("step"),
    ):
        with clock.timing("other"):
            callbacks.on_start(run)
        if run.step:
            run.log.write("event", run.step, event="resumed")
        while True:
            if evaluations.due(run):
                evaluations.validate(run)
                saves.amend()
            if saves.due():
                saves.save()
            run.save_asked = False
            if run.ended():
                break
            with clock.timing("data_wait"):
                batch = next(batches)
            run.log_unreadable()
            callbacks.on_step_start(run, batch)
            with jax.transfer_guard("disallow"):
                state, metrics = trainer.step(run.state, batch)
            run.advance(batch, state, metrics)
            callbacks.on_step_end(run, metrics)
            run.throttle()
            run.watchdog.beat()
            saves.look()
        run.drain()
        with clock.timing("other"):
            callbacks.on_stop(run)
    saves.finish()
