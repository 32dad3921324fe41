"""Which trial comes next: one whose process has ended, or a new one."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import optuna
from optuna.trial import FrozenTrial, TrialState

from jaxtrain.checkpoints.folder import newest_step
from jaxtrain.config import Config
from jaxtrain.errors import UserError
from jaxtrain.records import sweep_file
from jaxtrain.records.sweep_file import trial_folder, write_sweep
from jaxtrain.records.workdir import CHECKPOINTS
from jaxtrain.run.setup import build_setup
from jaxtrain.tasks.metrics import Goal
from jaxtrain.tools.sweep import parts
from jaxtrain.tools.sweep.locks import TrialLocks
from jaxtrain.tools.sweep.options import SweepOptions
from jaxtrain.tools.sweep.space import Overrides, SearchSpace
from jaxtrain.tools.sweep.study import OVERRIDES, STARTS, SweepStudy

# Starts of a trial in a row, each of which was killed before the next checkpoint.
MAX_STARTS = 3


@dataclass(frozen=True, kw_only=True)
class TakenTrial:
    """A trial that this process works on.

    Attributes:
      number: Number of the trial.
      overrides: What it changes in the config.
      workdir: Folder of its run.
    """

    number: int
    overrides: Overrides
    workdir: Path


class TrialQueue:
    """Hands out the trials of a sweep to processes that share its folder.

    A trial is held by a lock, which the system frees if its process ends.

    Args:
      options: The sweep; its folder is there.

    Raises:
      UserError: The space, the sampler, the pruner or the folder cannot be used.
    """

    def __init__(self, options: SweepOptions):
        self._options, self._folder = options, options.folder
        self._space = SearchSpace(options.space, options.config)
        self._pruner = parts.make_pruner(options.pruner, options.pruner_options)
        self._sampler(0)
        self._locks = TrialLocks(options.folder)
        self.study = SweepStudy(options.folder)

    def open(self) -> None:
        """Create the study, or check that it is one of this config.

        Raises:
          UserError: It is not; or the config, its data or the space cannot be used.
        """
        with self._locks.study():
            if self.study.exists():
                self.study.check_same(self._options.config)
            else:
                goal = find_goal(self._options.config)
                # What is wrong with the space is told before a trial counts.
                self._space.draw(optuna.create_study(sampler=self._sampler(0)).ask())
                self.study.create(self._options.config, goal)
            self._write()

    def take(self) -> TakenTrial | None:
        """Take the next trial; None: all there shall be are taken or have ended."""
        with self._locks.study():
            trials = self.study.trials()
            taken = self._take_left(trials)
            if taken is None and len(trials) < self._options.num_trials:
                taken = self._take_new(len(trials))
            self._write()
            return taken

    def end(
        self,
        trial: TakenTrial,
        state: sweep_file.TrialState,
        value: float | None = None,
        reason: str | None = None,
    ) -> None:
        """Write how a trial has ended."""
        with self._locks.study():
            self.study.end(trial.number, state, value, reason)
            self._write()

    def forget_start(self, trial: TakenTrial) -> None:
        """Do not count a start that ended in order, or by no fault of the trial."""
        self.study.keep(trial.number, STARTS, None)

    def leave(self, trial: TakenTrial) -> None:
        """Leave a trial to whoever takes it next, or as it has ended."""
        self._locks.release(trial.number)

    def should_prune(self, number: int) -> bool:
        """Whether the pruner gives a trial up after its last evaluation."""
        study = self.study.load(pruner=self._pruner)
        return self._pruner.prune(study, self.study.trial(number))

    def close(self) -> None:
        self._locks.close()

    def _take_left(self, trials: Sequence[FrozenTrial]) -> TakenTrial | None:
        """Take a trial that is not finished, and whose process has ended."""
        for trial in trials:
            number = trial.number
            if trial.state != TrialState.RUNNING or not self._locks.take(number):
                continue
            workdir = self._workdir(number)
            step, starts = newest_step(workdir / CHECKPOINTS), 1
            if (before := trial.user_attrs.get(STARTS)) and before["step"] == step:
                starts += before["num"]
            if starts > MAX_STARTS:
                reason = f"its process was killed {MAX_STARTS} times after step {step}"
                self.study.end(number, "failed", reason=reason)
                print(f"trial {number} failed: {reason}")
                self._locks.release(number)
                continue
            self.study.keep(number, STARTS, {"step": step, "num": starts})
            overrides = trial.user_attrs.get(OVERRIDES)
            if overrides is None:
                # Its process was killed while it drew the values: drawn again, they
                # are the same.
                study = self.study.load(self._sampler(number))
                again = optuna.trial.Trial(study, self.study.id_of(number))
                overrides = self._draw(again, number)
            self._space.draw_again(trial.params, number)
            return TakenTrial(number=number, overrides=overrides, workdir=workdir)
        return None

    def _take_new(self, number: int) -> TakenTrial:
        """Draw a new trial, and take it."""
        try:
            trial = self.study.load(self._sampler(number)).ask()
        except ImportError as error:
            name = self._options.sampler
            raise UserError(f"--sampler {name} needs more: {error}") from None
        taken = self._locks.take(trial.number)
        assert taken, "nobody takes a trial that is not there"
        self.study.keep(trial.number, STARTS, {"step": 0, "num": 1})
        overrides = self._draw(trial, trial.number)
        workdir = self._workdir(trial.number)
        return TakenTrial(number=trial.number, overrides=overrides, workdir=workdir)

    def _draw(self, trial: optuna.Trial, number: int) -> Overrides:
        try:
            overrides = self._space.draw(trial)
        except UserError as error:
            self.study.end(number, "failed", reason=str(error))
            raise
        self.study.keep(number, OVERRIDES, overrides)
        return overrides

    def _sampler(self, number: int) -> optuna.samplers.BaseSampler:
        options = self._options
        return parts.make_sampler(
            options.sampler, options.sampler_options, options.config.seed, number
        )

    def _workdir(self, number: int) -> Path:
        return self._folder / trial_folder(number)

    def _write(self) -> None:
        write_sweep(self._folder, self.study.record())


def find_goal(config: Config) -> Goal:
    """Return the goal that ranks the trials, after a look at the whole config.

    Raises:
      UserError: The config cannot be trained, or is never evaluated.
    """
    setup = build_setup(config)
    if setup.timetable.eval_every_steps is None:
        raise UserError(
            "a sweep compares trials by the validation split, and there is none, or it "
            "is not evaluated: set data.validation_fraction or data.validation_split"
        )
    return setup.best
