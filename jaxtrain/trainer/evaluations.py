"""The evaluations of a run: when, of which checkpoint, and what follows from them."""

from typing import Any

import jax

from jaxtrain.checkpoints.manifest import best_step
from jaxtrain.data.datasets import Dataset
from jaxtrain.engine.passes import evaluate
from jaxtrain.errors import CheckpointError, DamagedError
from jaxtrain.processes import peers
from jaxtrain.tasks.base import Task, Values
from jaxtrain.tasks.metrics import Goal
from jaxtrain.trainer import plateau
from jaxtrain.trainer.attempt import Attempt, Job
from jaxtrain.training.state import TrainState, as_dict


def due(attempt: Attempt) -> bool:
    """Whether the validation split is to be evaluated after this step."""
    step, timetable = attempt.step, attempt.job.setup.timetable
    every = timetable.eval_every_steps
    if every is None or attempt.progress.evaluated_step == step:
        return False
    return step % every == 0 or step == timetable.total_steps


def validate(attempt: Attempt) -> bool:
    """Evaluate on the validation split; a hook may end the run after it.

    Returns:
      Whether it is the best so far, and best checkpoints are kept.
    """
    setup, step, progress = attempt.job.setup, attempt.step, attempt.progress
    dataset = attempt.job.programs.validation_set
    assert dataset is not None
    attempt.renew_statistics()
    metrics = _pass_over(attempt, dataset, "validation", setup.task)
    if metrics is None:
        return False
    progress.chosen = setup.task.choose(metrics)
    attempt.log.write("eval", step, split="validation", **metrics)
    improved = progress.record(
        step,
        setup.timetable.epoch(step),
        metrics,
        best=setup.best,
        watched=setup.watched,
        patience=setup.config.train.early_stop_patience,
        ranked=step >= setup.timetable.ranked_from,
    )
    if setup.plateau is not None:
        _heed_plateau(attempt, setup.plateau, metrics)
    if progress.stopped_early:
        event = f"early stop on {setup.watched.metric}"
        attempt.log.write("event", step, event=event)
    reason = attempt.job.hooks.after_evaluation(step, metrics)
    attempt.end_reason = peers.gather(reason)[0]
    return improved and setup.config.checkpoint.keep_best > 0


def _heed_plateau(attempt: Attempt, goal: Goal, metrics: Values) -> None:
    """Have the next steps use the learning rate that the plateau schedule tells."""
    progress, config = attempt.progress, attempt.job.setup.config.optimizer
    before = progress.plateau
    progress.plateau = plateau.after_evaluation(
        config, before, goal, metrics[goal.metric]
    )
    factor = progress.plateau["factor"]
    if factor != before.get("factor", 1.0):
        event = f"plateau of {goal.metric}: learning rate times {factor:g}"
        attempt.log.write("event", attempt.step, event=event)
        attempt.state = plateau.with_factor(attempt.state, progress.plateau)


def test(attempt: Attempt) -> tuple[int, dict[str, Any] | None, Values] | None:
    """Evaluate the best checkpoint on the test split; its state becomes the attempt's.

    Returns:
      Its step, its metrics of the validation split, if it was evaluated, and those of
      the test split; None if a signal came.

    Raises:
      CheckpointError: No checkpoint can be read.
    """
    if attempt.job.signals.requested():
        return None
    step, validation, chosen = _load_best(attempt)
    task = attempt.job.setup.task.with_chosen(chosen)
    values = _pass_over(attempt, attempt.job.programs.test_set, "test", task)
    return None if values is None else (step, validation, values)


def _load_best(
    attempt: Attempt,
) -> tuple[int, dict[str, Any] | None, dict[str, Any]]:
    """Replace the last state by that of the best checkpoint.

    Returns:
      Its step, its metrics of the validation split, and what that has chosen.

    `evaluate`, `predict`, `export` and `serve` take the same checkpoint, so that a run
    has one model and one result. A checkpoint that turns out to be damaged is put
    aside, and the best of the others is taken.
    """
    job, loaded = attempt.job, attempt.step
    with attempt.clock.charging("checkpoint"), attempt.watchdog.saving():
        while (step := _choose(job)) != loaded:
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
        info = job.saved.info(step)
        return step, info["metrics"], info["progress"]["chosen"]


def _choose(job: Job) -> int:
    """Return the best step; process 0 chooses, as it alone writes checkpoints."""
    step = None
    if jax.process_index() == 0:
        steps = job.saved.listed()
        if not steps:
            raise CheckpointError(f"{job.saved.directory} holds no checkpoint any more")
        step = best_step(job.saved.info(steps[-1]), steps)
    return peers.gather(step)[0]


def _pass_over(
    attempt: Attempt, dataset: Dataset, split: str, task: Task
) -> Values | None:
    setup, programs = attempt.job.setup, attempt.job.programs

    def should_stop() -> bool:
        attempt.watchdog.beat()
        return attempt.job.signals.requested()

    clock, size = attempt.clock, setup.timetable.batch_size
    showing = attempt.log.screen.evaluating(
        split, len(dataset.source) / size, lambda: clock.seconds()["evaluation"]
    )
    with clock.charging("evaluation"), showing:
        values = evaluate(
            programs.eval,
            programs.zero_sums,
            attempt.state,
            dataset,
            setup.config.data,
            setup.mesh,
            task,
            should_stop,
        )
        attempt.tell_unreadable()
        peers.gather(None)
    # What the others reported before has come.
    attempt.tell_unreadable()
    return values
