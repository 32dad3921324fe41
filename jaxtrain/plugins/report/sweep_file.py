"""`sweep.json`: the trials of a sweep, as its report and other programs read them."""

from pathlib import Path
from typing import Any, Literal, TypedDict

from jaxtrain.errors import UserError
from jaxtrain.json_files.run_id import read_of_run
from jaxtrain.json_files.write import write_digested

SWEEP = "sweep.json"

TrialState = Literal["running", "complete", "pruned", "failed"]


class TrialRecord(TypedDict):
    """A trial of a sweep.

    Attributes:
      number: Number of the trial, from 0; its folder is `trial_folder(number)`.
      state: How it ended, or that it has not.
      value: Its best value of the metric if it is complete, else its last one; None
        before the first evaluation, and of a value that is not finite.
      evaluations: Number of its last evaluation, from 1; 0 before the first.
      overrides: What it changes in the config, by field.
      reason: Why it was pruned or has failed; None otherwise.
    """

    number: int
    state: TrialState
    value: float | None
    evaluations: int
    overrides: dict[str, Any]
    reason: str | None


class SweepRecord(TypedDict):
    """What `sweep.json` holds.

    Attributes:
      metric: Metric of the validation split that ranks the trials.
      better: Which of two values is better.
      best: Number of the best complete trial; None without one.
      trials: Trials in the order of their numbers.
    """

    metric: str
    better: Literal["higher", "lower"]
    best: int | None
    trials: list[TrialRecord]


def trial_folder(number: int) -> str:
    """Return the name of a trial's workdir in the folder of the sweep."""
    return f"trial-{number:04d}"


def write_sweep(folder: Path, record: SweepRecord) -> None:
    """Write the trials into the folder of a sweep."""
    write_digested(folder / SWEEP, dict(record))


def read_sweep(folder: Path) -> SweepRecord | None:
    """Return the trials in the folder of a sweep; None if it is no such folder.

    Raises:
      UserError: The file is damaged.
    """
    advice = "run the command of the sweep again, which writes it"
    record = read_of_run(folder / SWEEP, SweepRecord, advice=advice)
    if record is not None and record["best"] is not None:
        known = {trial["number"] for trial in record["trials"]}
        if record["best"] not in known:
            raise UserError(
                f"{folder / SWEEP}: best is trial {record['best']}, which is not among "
                f"its trials: {advice}"
            )
    return record
