"""Trials: runs that report their evaluations to Optuna, which may prune them."""

import math
import warnings
from pathlib import Path

import jax
import optuna

from jaxtrain import own
from jaxtrain.checkpoints import CHECKPOINTS
from jaxtrain.checkpoints.folder import newest_step
from jaxtrain.config import Config
from jaxtrain.errors import (
    BadNumbersError,
    UserError,
    is_out_of_memory,
)
from jaxtrain.plugins.sweep.space import Overrides, apply
from jaxtrain.processes.signals import StopSignals
from jaxtrain.trainer import train as run_lib
from jaxtrain.trainer.callback import Callback, Evaluation, make_callbacks
from jaxtrain.trainer.run_state import RunState


class TrialFailed(Exception):
    """Failure of a trial due to its config; the message is the reason."""


class Reporter(Callback):
    """Callback that reports validation metrics to Optuna, and stops a pruned trial.

    The step reported to Optuna is the index of the evaluation, from 1, instead of the
    training step, so that trials with different batch sizes are comparable.

    Args:
      trial: Trial of Optuna.

    Attributes:
      pruned: Message that the trial was pruned; None if it was not.
    """

    def __init__(self, trial: optuna.Trial):
        self._trial, self.pruned = trial, None

    def on_eval(self, run: RunState, evaluation: Evaluation) -> None:
        if evaluation.split == "test":
            return
        every = run.trainer.timetable.eval_every_steps
        assert every is not None, "an evaluation has a period"
        number = math.ceil(evaluation.step / every)
        value = evaluation.metrics[run.trainer.best.metric]
        value = float(value) if isinstance(value, int | float) else math.nan
        with warnings.catch_warnings():
            # Silence the warning that Optuna ignores a repeated value: a resumed trial
            # may repeat an evaluation.
            warnings.simplefilter("ignore")
            self._trial.report(value, number)
        if self._trial.should_prune():
            self.pruned = f"pruned after evaluation {number}"
            run.request_stop(self.pruned)


def carry_out(
    config: Config,
    overrides: Overrides,
    workdir: Path,
    reporter: Reporter,
    signals: StopSignals,
) -> float:
    """Train or resume a trial; return the validation metric of its saved model.

    Args:
      config: Base config of the trials.
      overrides: Config overrides of the trial.
      workdir: Workdir of the trial's run.
      reporter: Callback that reports evaluations to Optuna.
      signals: Handler of signals, which stop the run gracefully.

    Raises:
      TrialFailed: The trial failed due to its config.
      optuna.TrialPruned: The pruner stopped the trial.
      Interrupted: A signal stopped the run, whose state is saved.
      CheckpointError, StartAgainError: The run failed, but can be resumed.
    """
    checkpoints = workdir / CHECKPOINTS
    signals.grace.step, signals.grace.call_seconds = 0, 0.0
    signals.grace.limit(
        config.checkpoint.grace_seconds, lambda: newest_step(checkpoints)
    )
    try:
        with own.no_exit():
            changed = apply(config, overrides)
            summary = run_lib.train(
                changed,
                workdir,
                callbacks=[make_callbacks(changed), reporter],
                signals=signals,
            )
    except (UserError, BadNumbersError) as error:
        raise TrialFailed(str(error)) from None
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise TrialFailed(f"out of memory: {str(error).splitlines()[0]}") from None
    if reporter.pruned is not None and "eval" not in summary:
        raise optuna.TrialPruned
    if summary["best"] is None:
        raise TrialFailed("the validation metric was never finite")
    # Use the metric of the saved model, because the checkpoint of the best evaluation
    # may have been deleted.
    validation, metric = summary["model"]["validation"], summary["best"]["metric"]
    value = None if validation is None else validation.get(metric)
    if value is None or not math.isfinite(value):
        raise TrialFailed(f"validation {metric} of the saved model is not finite")
    return value
