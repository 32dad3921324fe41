"""Evaluations of a run: validation during training, test at the end."""

from collections.abc import Mapping
from typing import Any

import jax

from jaxtrain.checkpoints.manifest import best_step
from jaxtrain.errors import CheckpointError, DamagedError
from jaxtrain.processes import cluster
from jaxtrain.tasks.base import Values
from jaxtrain.tasks.metrics import scalars
from jaxtrain.trainer.callback import Evaluation
from jaxtrain.trainer.run_state import RunState
from jaxtrain.training.state import TrainState, as_dict


def due(run: RunState) -> bool:
    """Whether validation is due at the current step of the run."""
    step, timetable = run.step, run.trainer.timetable
    every = timetable.eval_every_steps
    if every is None or run.progress.evaluated_step == step:
        return False
    return step % every == 0 or step == timetable.total_steps


def validate(run: RunState) -> None:
    """Evaluate on the validation split and call the callbacks.

    A signal cancels the evaluation.
    """
    run.drain()
    run.callbacks.on_eval_start(run, "validation")
    run.renew_statistics()
    trainer, progress = run.trainer, run.progress
    metrics = _evaluate(run, "validation")
    if metrics is None:
        return
    progress.chosen = trainer.task.choose(metrics)
    progress.evaluated_step, progress.eval_metrics = run.step, scalars(metrics)
    run.callbacks.on_eval(run, Evaluation("validation", run.step, metrics))
    run.end_reason = cluster.current().gather(run.stop_asked)[0]


def test(run: RunState) -> tuple[Evaluation, dict[str, Any] | None] | None:
    """Restore the best checkpoint, and evaluate its weights on the test split.

    Returns:
      The test evaluation, and the validation metrics of the same weights (None if not
      validated). None instead of the pair if a signal cancelled the evaluation.

    Raises:
      CheckpointError: No checkpoint can be read.
    """
    if run.signals.requested():
        return None
    step, validation, chosen = _load_best(run)
    run.callbacks.on_eval_start(run, "test")
    values = _evaluate(run, "test", chosen)
    if values is None:
        return None
    evaluation = Evaluation("test", step, values)
    run.callbacks.on_eval(run, evaluation)
    return evaluation, validation


def _load_best(run: RunState) -> tuple[int, dict[str, Any] | None, dict[str, Any]]:
    """Load the best checkpoint into the state of the run.

    `evaluate`, `predict`, `export` and `serve` also use the best checkpoint. A damaged
    checkpoint is moved aside, and the best remaining checkpoint is loaded.

    Returns:
      Step, validation metrics and fitted values (`Task.chosen`) of the checkpoint.
    """
    saved, loaded = run.saved, run.step
    abstract = as_dict(run.trainer.abstract_state)
    with run.clock.timing("checkpoint"), run.watchdog.saving():
        while (step := _best_step(run)) != loaded:
            # Free the current state first: device memory may not hold two states.
            jax.tree.map(lambda array: array.delete(), run.state)
            loaded = None
            try:
                fields, _ = saved.restore(step, abstract)
            except DamagedError as error:
                run.warn(f"{error}; moved aside")
                saved.put_aside(step)
                continue
            run.state, loaded = TrainState(**fields), step
        info = saved.info(step)
        return step, info["metrics"], info["progress"]["chosen"]


def _best_step(run: RunState) -> int:
    """Return the step of the best checkpoint, as selected by process 0."""
    step = None
    if jax.process_index() == 0:
        steps = run.saved.listed()
        if not steps:
            raise CheckpointError(
                f"{run.saved.directory} has no checkpoint any more: all were damaged "
                "or removed"
            )
        step = best_step(run.saved.info(steps[-1]), steps)
    return cluster.current().gather(step)[0]


def _evaluate(
    run: RunState, split: str, chosen: Mapping[str, Any] | None = None
) -> Values | None:
    def should_stop() -> bool:
        run.watchdog.beat()
        return run.signals.requested()

    clock, trainer = run.clock, run.trainer
    num_batches = len(trainer.dataset(split).source) / trainer.timetable.batch_size
    showing = run.log.screen.evaluating(
        split, num_batches, lambda: clock.seconds()["evaluation"]
    )
    with clock.timing("evaluation"), showing:
        values = trainer.evaluate(
            run.state, split, chosen=chosen, renew=False, should_stop=should_stop
        )
        run.meet()
    return values
