"""Which trial comes next: one whose process has ended, or a new one."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import optuna
from optuna.trial import FrozenTrial, TrialState

from jaxtrain import links
from jaxtrain.checkpoints.folder import newest_step
from jaxtrain.config import Config
from jaxtrain.errors import UserError
from jaxtrain.records import sweep_file
from jaxtrain.records.held_folder import cannot_write
from jaxtrain.records.sweep_file import together_folder, trial_folder, write_sweep
from jaxtrain.records.workdir import CHECKPOINTS
from jaxtrain.run.setup import build_setup
from jaxtrain.tasks.metrics import Goal
from jaxtrain.tools.sweep import parts
from jaxtrain.tools.sweep.locks import TrialLocks
from jaxtrain.tools.sweep.options import SweepOptions
from jaxtrain.tools.sweep.space import Overrides, SearchSpace, check_overrides
from jaxtrain.tools.sweep.study import OVERRIDES, STARTS, TOGETHER, SweepStudy

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


@dataclass(frozen=True, kw_only=True)
class TakenGroup:
    """Trials that this process trains together; of one, by itself.

    Attributes:
      workdir: Folder of their common run; None: of one trial there is none.
      trials: The trials by number, the members of that run.
      left: Those of them that have not ended.
    """

    workdir: Path | None
    trials: tuple[TakenTrial, ...]
    left: tuple[TakenTrial, ...]

    @property
    def number(self) -> int:
        """Number of the first trial, whose lock stands for all."""
        return self.trials[0].number


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
        with self._locks.study():  # Optuna creates its tables.
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
                study = optuna.create_study(sampler=self._sampler(0))
                self._check_drawn(self._space.draw(study.ask()))
                self.study.create(self._options.config, goal)
            self._write()

    def take(self) -> TakenGroup | None:
        """Take the next trials; None: all there shall be are taken or have ended."""
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

    def forget_start(self, group: TakenGroup) -> None:
        """Do not count a start that ended in order, or by no fault of the trials."""
        for trial in group.left:
            # Optuna changes no trial that has ended.
            if self.study.trial(trial.number).state == TrialState.RUNNING:
                self.study.keep(trial.number, STARTS, None)

    def leave(self, group: TakenGroup) -> None:
        """Leave trials to whoever takes them next, or as they have ended."""
        self._locks.release(group.number)

    def should_prune(self, number: int) -> bool:
        """Whether the pruner gives a trial up after its last evaluation.

        Those that are trained together end together.
        """
        trial = self.study.trial(number)
        if TOGETHER in trial.user_attrs:
            return False
        return self._pruner.prune(self.study.load(pruner=self._pruner), trial)

    def close(self) -> None:
        self._locks.close()

    def _take_left(self, trials: Sequence[FrozenTrial]) -> TakenGroup | None:
        """Take trials that are not finished, and whose process has ended."""
        for number, group in _groups(trials).items():
            left = [t for t in group if t.state == TrialState.RUNNING]
            if not left or not self._locks.take(number):
                continue
            together = len(group) > 1 or TOGETHER in group[0].user_attrs
            workdir = self._together(number) if together else self._workdir(number)
            step, starts = newest_step(workdir / CHECKPOINTS), 1
            if (before := left[0].user_attrs.get(STARTS)) and before["step"] == step:
                starts += before["num"]
            if starts > MAX_STARTS:
                reason = f"its process was killed {MAX_STARTS} times after step {step}"
                for trial in left:
                    self.study.end(trial.number, "failed", reason=reason)
                    print(f"trial {trial.number} failed: {reason}")
                self._locks.release(number)
                continue
            self.study.keep(left[0].number, STARTS, {"step": step, "num": starts})
            # One for which the space raised has ended without values.
            drawn = [t for t in group if t in left or OVERRIDES in t.user_attrs]
            taken = [self._taken(trial) for trial in drawn]
            if together and not workdir.exists():
                # Its process was killed before all were drawn.
                taken += self._draw_more(number, len(taken), len(trials))
            ended = {t.number for t in group} - {t.number for t in left}
            return TakenGroup(
                workdir=workdir if len(taken) > 1 else None,
                trials=tuple(taken),
                left=tuple(t for t in taken if t.number not in ended),
            )
        return None

    def _take_new(self, number: int) -> TakenGroup:
        """Draw new trials, and take them."""
        first = self._ask()
        taken = self._locks.take(first.number)
        assert taken, "nobody takes a trial that is not there"
        self.study.keep(first.number, STARTS, {"step": 0, "num": 1})
        if min(self._options.together, self._options.num_trials - number) > 1:
            self.study.keep(first.number, TOGETHER, first.number)
        trials = [self._drawn(first)]
        trials += self._draw_more(first.number, 1, number + 1)
        workdir = self._together(first.number) if len(trials) > 1 else None
        return TakenGroup(workdir=workdir, trials=tuple(trials), left=tuple(trials))

    def _draw_more(self, first: int, num: int, num_trials: int) -> list[TakenTrial]:
        """Draw as many trials as are trained together with some that are there.

        Args:
          first: Number of the first of these.
          num: Number of these that are there.
          num_trials: Number of all trials that are there.
        """
        wanted = min(
            self._options.together - num, self._options.num_trials - num_trials
        )
        drawn = list[TakenTrial]()
        for _ in range(wanted):
            trial = self._ask()
            self.study.keep(trial.number, TOGETHER, first)
            drawn.append(self._drawn(trial))
        return drawn

    def _ask(self) -> optuna.Trial:
        """Begin a new trial, whose values are still to be drawn."""
        number = len(self.study.trials())
        try:
            return self.study.load(self._sampler(number)).ask()
        except ImportError as error:
            name = self._options.sampler
            raise UserError(f"--sampler {name} needs more: {error}") from None

    def _drawn(self, trial: optuna.Trial) -> TakenTrial:
        number = trial.number
        overrides = self._draw(trial, number)
        return TakenTrial(
            number=number, overrides=overrides, workdir=self._workdir(number)
        )

    def _taken(self, trial: FrozenTrial) -> TakenTrial:
        """Return a trial that was drawn before, or draw its values again."""
        number, overrides = trial.number, trial.user_attrs.get(OVERRIDES)
        if overrides is None:
            # Its process was killed while it drew the values: drawn again, they are the
            # same.
            study = self.study.load(self._sampler(number))
            again = optuna.trial.Trial(study, self.study.id_of(number))
            overrides = self._draw(again, number)
        self._space.draw_again(trial.params, number)
        return TakenTrial(
            number=number, overrides=overrides, workdir=self._workdir(number)
        )

    def _draw(self, trial: optuna.Trial, number: int) -> Overrides:
        try:
            overrides = self._space.draw(trial)
            self._check_drawn(overrides)
        except UserError as error:
            self.study.end(number, "failed", reason=str(error))
            raise
        self.study.keep(number, OVERRIDES, overrides)
        return overrides

    def _check_drawn(self, overrides: Overrides) -> None:
        if self._options.together > 1:
            check_overrides(overrides, self._options.together)

    def _sampler(self, number: int) -> optuna.samplers.BaseSampler:
        options = self._options
        return parts.make_sampler(
            options.sampler, options.sampler_options, options.config.seed, number
        )

    def _workdir(self, number: int) -> Path:
        return self._inside(trial_folder(number))

    def _together(self, number: int) -> Path:
        return self._inside(together_folder(number))

    def _inside(self, name: str) -> Path:
        """Return the folder of trials; raise UserError if it leads elsewhere."""
        try:
            links.check_inside(self._folder / name, self._folder)
        except OSError as error:
            raise cannot_write(self._folder, error) from None
        return self._folder / name

    def _write(self) -> None:
        write_sweep(self._folder, self.study.record())


def _groups(trials: Sequence[FrozenTrial]) -> dict[int, list[FrozenTrial]]:
    """Return the trials that are trained together, by the number of the first."""
    groups = dict[int, list[FrozenTrial]]()
    for trial in trials:
        first = trial.user_attrs.get(TOGETHER, trial.number)
        groups.setdefault(first, []).append(trial)
    return groups


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
