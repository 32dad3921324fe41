"""Optuna study of a sweep, in a database that several processes share.

A killed process leaves its trial in the state RUNNING, without heartbeats. Another
process then enqueues a copy of the trial, which resumes in the same workdir.
"""

import contextlib
import itertools
import json
import math
import os
import sqlite3
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy
import sqlalchemy.event
import sqlalchemy.exc
from optuna.trial import FrozenTrial, TrialState

from jaxtrain import atomic_file, config as config_lib, links
from jaxtrain.checkpoints import CHECKPOINTS
from jaxtrain.checkpoints.folder import newest_step
from jaxtrain.config import Config
from jaxtrain.errors import UserError
from jaxtrain.plugins.report import sweep_file
from jaxtrain.plugins.report.sweep_file import SweepRecord, TrialRecord, trial_folder
from jaxtrain.tasks.metrics import Goal

STUDY, NAME = "study.db", "sweep"
# Timeout in seconds for waiting for the database, which another process may lock.
WAIT_SECONDS = 60.0
# In seconds: interval of heartbeats, and time without heartbeat after which a running
# trial is enqueued again.
HEARTBEAT_SECONDS, GRACE_SECONDS = 5, 30
# A trial has failed after this number of kills without a new checkpoint.
MAX_KILLS = 3
FIX = (
    "stop other programs that lock the file, and check its permissions and the free "
    "disk space; if the file is damaged, restore the file from a backup, or choose "
    "another --workdir"
)
# Optuna user attributes of the study (CONFIG, METRIC) and of its trials. Only copies,
# which resume a trial, have TRIAL: the index of the trial in the sweep.
CONFIG, METRIC = "config", "metric"
TRIAL, OVERRIDES, REASON, KILLS = "trial", "overrides", "reason", "kills"
STATES: dict[TrialState, sweep_file.TrialState] = {
    TrialState.RUNNING: "running",
    TrialState.WAITING: "running",
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}
# Config fields that may change when a single run resumes, but not when a sweep resumes:
# the trials of a sweep must be comparable.
COMPARED = (
    *("train.epochs", "train.steps"),
    *("train.eval_every_epochs", "train.eval_every_steps"),
    *("train.early_stop_patience", "train.early_stop_metric"),
    "checkpoint.best_metric",
)


@contextlib.contextmanager
def reported(folder: Path) -> Iterator[None]:
    """Context manager: convert database errors to UserError."""
    try:
        yield
    except (
        *(optuna.exceptions.StorageInternalError, sqlalchemy.exc.SQLAlchemyError),
        *(sqlite3.Error, json.JSONDecodeError),
    ) as error:
        cause = getattr(error, "orig", None) or error.__cause__ or error
        cause = getattr(cause, "orig", None) or cause
        raise _unusable(folder / STUDY, " ".join(str(cause).split())) from None


def exists(folder: Path) -> bool:
    """Whether the directory contains the database of a study.

    Raises:
      UserError: The database is empty or a symbolic link, or is missing although there
        is a sweep.json.
    """
    path = folder / STUDY
    try:
        for suffix in ("", "-journal", "-wal", "-shm"):
            links.check_in_place(path.with_name(STUDY + suffix))
    except FileNotFoundError:
        pass  # Another process ended its transaction, and so removed the journal.
    except OSError as error:
        raise _unusable(path, str(error.strerror)) from None
    if not path.exists():
        if (folder / sweep_file.SWEEP).exists():
            raise _unusable(path, f"the file is missing, but {sweep_file.SWEEP} exists")
        return False
    if not path.stat().st_size:
        time.sleep(1)  # Another process may be creating the study.
        if not path.stat().st_size:
            raise _unusable(path, "the file is empty, 0 bytes")
    return True


def create(folder: Path, config: Config, goal: Goal) -> None:
    """Create the study of a sweep, which ranks trials by the metric `goal`.

    If several processes start together, only the first process creates the database.
    """
    path = folder / STUDY
    with contextlib.suppress(FileExistsError), atomic_file.replacing(path) as new:
        direction = "maximize" if goal.higher else "minimize"
        study = optuna.create_study(
            storage=_open(new), study_name=NAME, direction=direction
        )
        study.set_user_attr(CONFIG, config_lib.to_json(config))
        study.set_user_attr(METRIC, goal.metric)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))


class SweepStudy:
    """Trials of a sweep; each attempt to train or resume a trial is an Optuna trial.

    Args:
      folder: Directory of the sweep, with an existing database.

    Attributes:
      optuna: Study object of Optuna.

    Raises:
      UserError: The database contains no study of a sweep.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        storage = _open(folder / STUDY, lambda _, trial: self.retry(trial.number))
        try:
            self.optuna = optuna.load_study(storage=storage, study_name=NAME)
        except KeyError:
            raise _unusable(folder / STUDY, "the file contains no sweep") from None

    def check_same(self, config: Config) -> None:
        """Check a config against the config of the existing sweep.

        Raises:
          UserError: A field that affects results differs.
        """
        text = self.optuna.user_attrs[CONFIG]
        old = config_lib.from_json(text, f"the config in {self._folder / STUDY}")
        changed = config_lib.differences(old, config)
        for path in COMPARED:
            values = config_lib.get(old, path), config_lib.get(config, path)
            if values[0] != values[1]:
                changed.append(f"{path}: {values[0]!r} -> {values[1]!r}")
        if changed:
            shown = "\n  ".join(changed)
            raise UserError(
                f"{self._folder} contains a sweep of another config, so new trials "
                f"would not be comparable:\n  {shown}\nUse the config of the sweep, or "
                "choose another --workdir"
            )

    def number_of(self, attempt: int) -> int:
        """Index of a trial in the sweep, given the number of an Optuna trial."""
        return next(n for n, trial in self._attempts() if trial.number == attempt)

    def left(self, num_trials: int) -> bool:
        """Whether a trial must be started or resumed to reach `num_trials` trials."""
        states = self._states()
        return len(states) < num_trials or TrialState.WAITING in states

    def retry(self, attempt: int, *, killed: bool = True) -> None:
        """Enqueue a copy of a trial to resume it, unless it was killed too often.

        Args:
          attempt: Number of the Optuna trial.
          killed: Whether the process was killed instead of stopped gracefully.
        """
        number = self.number_of(attempt)
        trial = self.optuna.get_trials(deepcopy=False)[attempt]
        step = newest_step(self._folder / trial_folder(number) / CHECKPOINTS)
        at_step, kills = trial.user_attrs.get(KILLS, (step, 0))
        kills = 0 if not killed else kills + 1 if at_step == step else 1
        if kills < MAX_KILLS:
            new = {TRIAL: number, KILLS: (step, kills)}
            self.optuna.add_trial(
                optuna.create_trial(
                    state=TrialState.WAITING,
                    params=trial.params,
                    distributions=trial.distributions,
                    user_attrs={**trial.user_attrs, **new},
                    system_attrs=trial.system_attrs,
                    intermediate_values=trial.intermediate_values,
                )
            )

    def wait(self, num_trials: int) -> bool:
        """Wait, at most for the grace period, until a trial can be started or resumed.

        Returns:
          Whether a trial must be started or resumed, as in `left`.
        """
        until = time.monotonic() + GRACE_SECONDS + 1

        def waiting() -> bool:
            running = TrialState.RUNNING in self._states()
            return running and not self.left(num_trials) and time.monotonic() < until

        if waiting():
            print(
                "trials are running in other processes, or were killed: waiting for "
                f"their heartbeat, up to {GRACE_SECONDS} s"
            )
        while waiting():
            time.sleep(1)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                optuna.storages.fail_stale_trials(self.optuna)
        return self.left(num_trials)

    def write(self) -> SweepRecord:
        """Write `sweep.json`, and return its contents."""
        higher = self.optuna.direction == optuna.study.StudyDirection.MAXIMIZE
        trials = [_describe(*one) for one in dict(self._attempts()).items()]
        complete = [t for t in trials if t["state"] == "complete"]
        values = [t["value"] for t in complete if t["value"] is not None]
        best = (max if higher else min)(values, default=None)
        record: SweepRecord = {
            "metric": self.optuna.user_attrs[METRIC],
            "better": "higher" if higher else "lower",
            "best": next((t["number"] for t in complete if t["value"] == best), None),
            "trials": trials,
        }
        sweep_file.write_sweep(self._folder, record)
        return record

    def _states(self) -> list[TrialState]:
        return [attempt.state for attempt in dict(self._attempts()).values()]

    def _attempts(self) -> Iterator[tuple[int, FrozenTrial]]:
        """Yield (index of the trial in the sweep, Optuna trial), oldest first."""
        new = itertools.count()
        for trial in self.optuna.get_trials(deepcopy=False):
            first = trial.user_attrs.get(TRIAL)
            yield next(new) if first is None else first, trial


def _unusable(path: Path, reason: str) -> UserError:
    return UserError(f"{path} cannot be read or written ({reason}): {FIX}")


def _open(path: Path, on_stale: Any = None) -> optuna.storages.RDBStorage:
    """Open an Optuna database; call `on_stale(study, trial)` for killed trials."""

    def connect() -> sqlite3.Connection:
        # A path instead of a database URL, which cannot represent every path.
        return sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        # With NullPool, connections are closed after use, so that none is open at exit.
        storage = optuna.storages.RDBStorage(
            "sqlite://",
            {"creator": connect, "poolclass": sqlalchemy.NullPool},
            heartbeat_interval=HEARTBEAT_SECONDS,
            grace_period=GRACE_SECONDS,
            heartbeat_stale_trial_callback=on_stale,
        )
    # Lock the database when a transaction begins: without row locks in SQLite, two
    # processes could claim the same trial.
    begin = "BEGIN IMMEDIATE"
    sqlalchemy.event.listen(
        storage.engine, "begin", lambda connection: connection.exec_driver_sql(begin)
    )
    return storage


def _describe(number: int, trial: FrozenTrial) -> TrialRecord:
    state, last, reason = STATES[trial.state], trial.last_step, None
    value = None if last is None else trial.intermediate_values[last]
    if state == "complete":
        value = trial.value
    if state == "pruned":
        reason = f"pruned after evaluation {last}"
    if state == "failed":
        lost = f"its process was killed {MAX_KILLS} times without a new checkpoint"
        reason = trial.user_attrs.get(REASON, lost)
    return {
        "number": number,
        "state": state,
        "value": value if value is not None and math.isfinite(value) else None,
        "evaluations": last or 0,
        "overrides": trial.user_attrs.get(OVERRIDES, {}),
        "reason": reason,
    }
