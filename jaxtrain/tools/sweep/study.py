"""The study of a sweep in Optuna's storage, which several processes share."""

import contextlib
import json
import math
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy.exc
import sqlalchemy.pool
from optuna.trial import FrozenTrial, TrialState

from jaxtrain import atomic_file, links
from jaxtrain import config as config_lib
from jaxtrain.config import Config
from jaxtrain.errors import UserError
from jaxtrain.records import sweep_file
from jaxtrain.records.sweep_file import SweepRecord, TrialRecord
from jaxtrain.system_errors import remedy
from jaxtrain.tasks.metrics import Goal

STUDY, NAME = "study.db", "sweep"
# How long to wait for another process that writes.
WAIT_SECONDS = 60.0
# What to do, by the kind of SQLite's error.
DAMAGED = "restore it from a copy, or choose another --workdir"
LOST = (
    "the values of its trials are lost; restore it from a copy, or choose another "
    "--workdir"
)
HELD = (
    "another program holds it, such as a viewer or a copy: end that, and the same "
    "command goes on"
)
READ_ONLY = "change its permissions and those of its folder, or choose another"
READ_ONLY += " --workdir"
FIXES = {
    sqlite3.SQLITE_BUSY: HELD,
    sqlite3.SQLITE_LOCKED: HELD,
    sqlite3.SQLITE_READONLY: READ_ONLY,
    sqlite3.SQLITE_PERM: READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: READ_ONLY,
    sqlite3.SQLITE_FULL: "free some space, and the same command goes on",
}
# What is kept with the study and its trials.
CONFIG, METRIC = "config", "metric"
OVERRIDES, REASON, STARTS = "overrides", "reason", "starts"
# Of trials that are trained together, the number of the first of them.
TOGETHER = "together"
STATES: dict[TrialState, sweep_file.TrialState] = {
    TrialState.RUNNING: "running",
    TrialState.WAITING: "running",
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}
ENDED = {state: known for known, state in STATES.items()}
# Fields that change the values of trials, though a run may go on with others.
COMPARED = (
    *("train.epochs", "train.steps"),
    *("train.eval_every_epochs", "train.eval_every_steps"),
    *("train.early_stop_patience", "train.early_stop_metric"),
    "checkpoint.best_metric",
)


@contextlib.contextmanager
def reported(folder: Path) -> Iterator[None]:
    """Make a mistake of the user out of an error of the storage.

    Args:
      folder: Folder of the sweep.

    Raises:
      UserError: The file is damaged, or cannot be read or written.
    """
    try:
        yield
    except (
        *(optuna.exceptions.StorageInternalError, sqlalchemy.exc.SQLAlchemyError),
        *(sqlite3.Error, json.JSONDecodeError),
    ) as error:
        cause = getattr(error, "orig", None) or error.__cause__ or error
        cause = getattr(cause, "orig", None) or cause
        code = getattr(cause, "sqlite_errorcode", None)
        # The low byte is the kind, the others say more of it.
        fix = FIXES.get(-1 if code is None else code & 0xFF, DAMAGED)
        shown = " ".join(str(cause).split())
        raise unusable(folder / STUDY, shown, fix) from None


def unusable(path: Path, reason: str, fix: str) -> UserError:
    """Return the error of a study that cannot be read or written."""
    return UserError(f"{path} cannot be read and written ({reason}): {fix}")


class SweepStudy:
    """The trials of a sweep. What is written there outlives a kill.

    Args:
      folder: Folder of the sweep, which is there.

    Raises:
      UserError: The file cannot be read or written.
    """

    def __init__(self, folder: Path):
        self._path = folder / STUDY
        self._check_files()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with reported(folder):
            if not self._path.exists():
                # With its tables at once: a kill leaves no file that is empty.
                with atomic_file.replacing(self._path) as new:
                    _open(new)
            self.storage = _open(self._path)

    def exists(self) -> bool:
        """Whether the study was created, and not in part only."""
        return any(
            study.study_name == NAME and METRIC in study.user_attrs
            for study in self.storage.get_all_studies()
        )

    def create(self, config: Config, goal: Goal) -> None:
        """Create the study of a config, whose trials are ranked by a metric."""
        # A kill may have left a part of it.
        if any(s.study_name == NAME for s in self.storage.get_all_studies()):
            optuna.delete_study(study_name=NAME, storage=self.storage)
        study = optuna.create_study(
            storage=self.storage,
            study_name=NAME,
            direction="maximize" if goal.higher else "minimize",
        )
        study.set_user_attr(CONFIG, config_lib.to_json(config))
        study.set_user_attr(METRIC, goal.metric)

    def load(
        self,
        sampler: optuna.samplers.BaseSampler | None = None,
        pruner: optuna.pruners.BasePruner | None = None,
    ) -> optuna.Study:
        """Return the study as Optuna has it."""
        return optuna.load_study(
            storage=self.storage, study_name=NAME, sampler=sampler, pruner=pruner
        )

    def check_same(self, config: Config) -> None:
        """Check that a sweep goes on with its own config.

        Raises:
          UserError: A field differs that changes the values of trials.
        """
        text = self.load().user_attrs[CONFIG]
        old = config_lib.from_json(text, f"the config in {self._path}")
        changed = config_lib.changed_paths(old, config)
        changed += [
            path
            for path in COMPARED
            if config_lib.get(old, path) != config_lib.get(config, path)
        ]
        if changed:
            shown = "\n  ".join(
                f"{path}: {config_lib.get(old, path)!r} -> "
                f"{config_lib.get(config, path)!r}"
                for path in changed
            )
            raise UserError(
                f"{self._path.parent} holds a sweep of another config, whose trials "
                f"cannot be compared with new ones:\n  {shown}\nGo on with its own "
                "config, or choose another --workdir"
            )

    def trials(self) -> Sequence[FrozenTrial]:
        """Return the trials by number, as they are now."""
        return self.load().get_trials(deepcopy=False)

    def trial(self, number: int) -> FrozenTrial:
        return self.storage.get_trial(self.id_of(number))

    def keep(self, number: int, name: str, value: Any) -> None:
        """Keep something with a trial."""
        self.storage.set_trial_user_attr(self.id_of(number), name, value)

    def report(self, number: int, evaluation: int, value: float) -> None:
        """Keep the value of an evaluation, which may come again after a kill."""
        self.storage.set_trial_intermediate_value(self.id_of(number), evaluation, value)

    def end(
        self,
        number: int,
        state: sweep_file.TrialState,
        value: float | None = None,
        reason: str | None = None,
    ) -> None:
        """Write how a trial has ended."""
        if reason is not None:
            self.keep(number, REASON, reason)
        self.load().tell(number, value, ENDED[state])

    def record(self) -> SweepRecord:
        """Return the trials as the report reads them."""
        study = self.load()
        higher = study.direction == optuna.study.StudyDirection.MAXIMIZE
        trials = [_describe(trial) for trial in study.get_trials(deepcopy=False)]
        complete = [t for t in trials if t["state"] == "complete"]
        values = [t["value"] for t in complete if t["value"] is not None]
        best = (max if higher else min)(values, default=None)
        return {
            "metric": study.user_attrs[METRIC],
            "better": "higher" if higher else "lower",
            "best": next((t["number"] for t in complete if t["value"] == best), None),
            "trials": trials,
        }

    def id_of(self, number: int) -> int:
        """Return what Optuna's storage calls a trial."""
        study = self.storage.get_study_id_from_name(NAME)
        return self.storage.get_trial_id_from_study_id_trial_number(study, number)

    def _check_files(self) -> None:
        """Raise UserError if a file is a link, which SQLite would follow, or lost."""
        try:
            if not self._path.exists():
                if self._path.with_name(sweep_file.SWEEP).exists():
                    raise unusable(self._path, "it is gone, and its sweep is not", LOST)
            elif not self._path.stat().st_size:
                raise unusable(self._path, "it is empty, 0 bytes", LOST)
            for suffix in ("", "-journal", "-wal", "-shm"):
                links.check_in_place(self._path.with_name(STUDY + suffix))
        except FileNotFoundError:
            pass  # Another process has removed its journal meanwhile.
        except OSError as error:
            fix = remedy(error.errno, DAMAGED)
            raise unusable(self._path, str(error.strerror), fix) from None


def _open(path: Path) -> optuna.storages.RDBStorage:
    """Open a file of Optuna's, and create its tables if they are not there."""

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(path, timeout=WAIT_SECONDS)

    # The folder may have any name, which an address could not hold. Connections are
    # closed after use: none is open when the process ends.
    engine = {"creator": connect, "poolclass": sqlalchemy.pool.NullPool}
    return optuna.storages.RDBStorage("sqlite://", engine)


def _describe(trial: FrozenTrial) -> TrialRecord:
    last, kept = trial.last_step, trial.user_attrs
    value = None if last is None else trial.intermediate_values[last]
    if trial.state == TrialState.COMPLETE:
        value = trial.value
    return {
        "number": trial.number,
        "state": STATES[trial.state],
        "value": value if value is not None and math.isfinite(value) else None,
        "evaluations": last or 0,
        "overrides": kept.get(OVERRIDES, {}),
        "reason": kept.get(REASON),
    }
