"""Worker process of a sweep, which trains trials until none are left."""

import math
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from jaxtrain import links
from jaxtrain.config import Config, allow_own
from jaxtrain.errors import (
    CheckpointError,
    Interrupted,
    StartAgainError,
    UserError,
)
from jaxtrain.plugins.report.pages.text import shown
from jaxtrain.plugins.report.sweep_file import trial_folder
from jaxtrain.plugins.sweep import study
from jaxtrain.plugins.sweep.parts import make_pruner, make_sampler
from jaxtrain.plugins.sweep.results import describe_end
from jaxtrain.plugins.sweep.space import SearchSpace
from jaxtrain.plugins.sweep.trials import Reporter, TrialFailed, carry_out
from jaxtrain.processes.signals import StopSignals
from jaxtrain.records.folder_lock import cannot_write
from jaxtrain.tasks.metrics import Goal
from jaxtrain.trainer.setup import build_setup

# Errors after which the trial can be resumed and is not counted as killed.
GRACEFUL = (Interrupted, CheckpointError, StartAgainError)


class SweepWorker:
    """Worker of a sweep: trains trials, and prints their results.

    Args:
      config: Base config of the trials.
      folder: Directory of the sweep; must exist.
      space: Python file that defines the search space, `space(trial)`.
      sampler: Name of a class in `optuna.samplers`, and its arguments.
      pruner: Name of a class in `optuna.pruners`, and its arguments.
      signals: Handler of signals, which stop a trial gracefully.

    Raises:
      UserError: The config, data, search space, sampler or pruner is invalid, or the
        directory contains a sweep of another config.
    """

    def __init__(
        self,
        config: Config,
        folder: Path,
        space: Path,
        sampler: tuple[str, dict[str, Any]],
        pruner: tuple[str, dict[str, Any]],
        signals: StopSignals,
    ):
        allow_own(config)
        self._config, self._folder, self._signals = config, folder, signals
        self._space, self._sampler = SearchSpace(space, config), sampler
        made = make_pruner(*pruner), make_sampler(*sampler, config.seed, 0)
        if not study.exists(folder):
            goal = find_goal(config)
            # Draw once, to report errors in the search space before the first trial.
            self._space.draw(optuna.create_study(sampler=made[1]).ask())
            study.create(folder, config, goal)
        self._trials = study.SweepStudy(folder)
        self._trials.check_same(config)
        self._trials.optuna.pruner = made[0]

    def work(self, num_trials: int) -> None:
        """Train until the sweep has `num_trials` trials, or the sampler is exhausted.

        Raises:
          Interrupted: A signal stopped the trial, whose state is saved.
          UserError: The search space is invalid.
          CheckpointError, StartAgainError: A run failed, but the sweep can be resumed.
        """
        self._num_trials, self._error = num_trials, None
        while self._trials.wait(num_trials):
            # Let signals interrupt only the training, not Optuna's code.
            self._signals.defer = True
            self._trials.optuna.optimize(
                self._objective, callbacks=[self._after_trial], gc_after_trial=True
            )
            self._signals.defer = False
            if self._error is not None:
                raise self._error
            if self._trials.left(num_trials):
                break
        self._trials.write()

    def _objective(self, trial: optuna.Trial) -> float:
        """Train a trial; return its validation metric, or NaN if the trial failed."""
        try:
            self._signals.defer = False
            return self._train(trial)
        except optuna.TrialPruned:
            raise
        except TrialFailed as error:
            trial.set_user_attr(study.REASON, str(error))
        except BaseException as error:
            self._error = error
            trial.study.stop()
            if isinstance(error, UserError):
                trial.set_user_attr(study.REASON, str(error))
            else:
                killed = not isinstance(error, GRACEFUL)
                self._trials.retry(trial.number, killed=killed)
        finally:
            self._signals.defer = True
        return math.nan

    def _train(self, trial: optuna.Trial) -> float:
        """Train or resume a trial; return its validation metric."""
        number = self._trials.number_of(trial.number)
        trial.study.sampler = make_sampler(*self._sampler, self._config.seed, number)
        overrides = self._space.draw(trial)
        trial.set_user_attr(study.OVERRIDES, overrides)
        self._trials.write()
        changes = [f"{path} = {shown(value)}" for path, value in overrides.items()]
        print(f"trial {number}: {', '.join(changes)}")
        workdir = self._folder / trial_folder(number)
        try:
            links.check_inside(workdir, self._folder)
        except OSError as error:
            raise cannot_write(self._folder, error) from None
        reporter = Reporter(trial)
        return carry_out(self._config, overrides, workdir, reporter, self._signals)

    def _after_trial(self, optuna_study: optuna.Study, trial: FrozenTrial) -> None:
        """Print the result of a trial; stop after the last trial or a signal."""
        record, number = self._trials.write(), self._trials.number_of(trial.number)
        if trial.state != TrialState.FAIL or study.REASON in trial.user_attrs:
            print(describe_end(record, number))
        if self._signals.signum is not None and self._error is None:
            message = f"trial {number} has ended; the same command resumes"
            self._error = Interrupted(self._signals.signum, message)
        if self._error is not None or not self._trials.left(self._num_trials):
            optuna_study.stop()


def find_goal(config: Config) -> Goal:
    """Check the config completely, and return the metric that ranks trials.

    Raises:
      UserError: The config is invalid, or has no evaluations.
    """
    setup = build_setup(config)
    if setup.timetable.eval_every_steps is None:
        raise UserError(
            "a sweep ranks trials by a validation metric, but the validation split is "
            "missing or not evaluated: set data.validation_fraction or "
            "data.validation_split"
        )
    return setup.best
