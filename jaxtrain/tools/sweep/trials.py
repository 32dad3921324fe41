"""One trial: a run that reports its evaluations, and may be pruned after each."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxtrain import own
from jaxtrain.checkpoints.folder import newest_step
from jaxtrain.config import Config
from jaxtrain.errors import (
    BadNumbersError,
    UserError,
    is_out_of_memory,
)
from jaxtrain.processes.hooks import Hooks
from jaxtrain.processes.signals import StopSignals
from jaxtrain.records.sweep_file import TrialState
from jaxtrain.records.workdir import CHECKPOINTS
from jaxtrain.run import train as run
from jaxtrain.tasks.members import OF_MEMBERS
from jaxtrain.tools.sweep.queue import TakenGroup, TakenTrial, TrialQueue
from jaxtrain.tools.sweep.space import apply
from jaxtrain.tools.sweep.together import join, part


class Outcome(NamedTuple):
    """How a trial has ended: its state, its value if complete, else the reason."""

    state: TrialState
    value: float | None = None
    reason: str | None = None


class Reporter(Hooks):
    """Reports the evaluations of a trial, and ends it where the pruner says so.

    Evaluations count from 1, so that trials whose epochs have other numbers of steps
    are compared after as many epochs. Trials that are trained together are not pruned.

    Args:
      queue: Queue that they were taken from.
      numbers: Number of the trial; of several the members of an ensemble have them.

    Attributes:
      reason: Why the trial is to end; None: it was not pruned.
    """

    def __init__(self, queue: TrialQueue, numbers: Sequence[int]):
        self._queue, self._numbers = queue, numbers
        self.reason: str | None = None

    def during(self, attempt: Any) -> AbstractContextManager[Any]:
        setup = attempt.job.setup
        self._metric, self._every = setup.best.metric, setup.timetable.eval_every_steps
        return super().during(attempt)

    def after_evaluation(self, step: int, metrics: Mapping[str, Any]) -> str | None:
        evaluation, values = math.ceil(step / self._every), [metrics[self._metric]]
        if len(self._numbers) > 1:
            # Of other metrics than these an ensemble tells the mean alone.
            values = metrics.get(f"{OF_MEMBERS}{self._metric}", ())
        for number, value in zip(self._numbers, values, strict=False):
            value = float(value) if isinstance(value, int | float) else math.nan
            self._queue.study.report(number, evaluation, value)
        return self.prune()

    def prune(self) -> str | None:
        """Ask the pruner about the evaluations so far; return why to end, or None."""
        number = self._numbers[0]
        last = self._queue.study.trial(number).last_step
        if last is not None and self._queue.should_prune(number):
            self.reason = f"pruned after evaluation {last}"
        return self.reason


def carry_out_together(
    queue: TrialQueue,
    group: TakenGroup,
    config: Config,
    signals: StopSignals,
) -> Outcome | None:
    """Train trials together, or go on where their run stopped; `carry_out` ends each.

    Args:
      queue: Queue that they were taken from.
      group: Trials that this process holds, with the folder of their run.
      config: Config that they change.
      signals: Signals that stop the run in order.

    Returns:
      How all of them have ended; None if their run has, and each is left to itself.

    Raises:
      Interrupted, CheckpointError, StartAgainError: As `carry_out`.
    """
    assert group.workdir is not None, "it is of one trial"
    numbers = [trial.number for trial in group.trials]
    workdir, reporter = group.workdir, Reporter(queue, numbers)

    def train() -> None:
        run.train(join(config, group.trials), workdir, hooks=reporter, signals=signals)
        part(workdir, group.trials, config)

    return _failing(train, workdir, config, signals)


def carry_out(
    queue: TrialQueue,
    trial: TakenTrial,
    config: Config,
    signals: StopSignals,
) -> Outcome:
    """Train a trial, or go on where its workdir stopped; return how it has ended.

    Args:
      queue: Queue that it was taken from.
      trial: Trial that this process holds.
      config: Config that it changes.
      signals: Signals that stop the run in order.

    Raises:
      Interrupted: A signal came; the state is saved.
      CheckpointError, StartAgainError: It is no fault of the trial, which can go on.
    """
    reporter, summary = Reporter(queue, [trial.number]), dict[str, Any]()
    # A kill may have come between the evaluation and the end.
    if (reason := reporter.prune()) is not None:
        return Outcome("pruned", reason=reason)

    def train() -> None:
        changed = apply(config, trial.overrides)
        done = run.train(changed, trial.workdir, hooks=reporter, signals=signals)
        summary.update(done)

    failed = _failing(train, trial.workdir, config, signals)
    if failed is not None:
        return failed
    if reporter.reason is not None and "eval" not in summary:
        return Outcome("pruned", reason=reporter.reason)
    if summary["best"] is None:
        return Outcome("failed", reason="its metric was never a number")
    # Of the weights that are kept; the best evaluation may have been of others.
    validation, metric = summary["model"]["validation"], summary["best"]["metric"]
    if validation is None or validation.get(metric) is None:
        return Outcome("failed", reason=f"its model has no validation {metric}")
    return Outcome("complete", value=validation[metric])


def _failing(
    train: Callable[[], None], workdir: Path, config: Config, signals: StopSignals
) -> Outcome | None:
    """Train in a folder; return how it has failed, or None."""
    checkpoints = workdir / CHECKPOINTS
    signals.grace.step, signals.grace.call_seconds = 0, 0.0
    signals.grace.limit(
        config.checkpoint.grace_seconds, lambda: newest_step(checkpoints)
    )
    try:
        with own.no_exit():
            train()
    except (UserError, BadNumbersError) as error:
        return Outcome("failed", reason=str(error))
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return Outcome("failed", reason=f"out of memory: {str(error).splitlines()[0]}")
    return None
