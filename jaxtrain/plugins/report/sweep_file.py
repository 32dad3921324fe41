"""`sweep.json`: trials of a sweep, written for the report and other programs."""

from pathlib import Path
from typing import Any, Literal, TypedDict

from jaxtrain.errors import UserError
from jaxtrain.json_files.run_id import read_of_run
from jaxtrain.json_files.write import write_digested

SWEEP = "sweep.json"

TrialState = Literal["running", "complete", "pruned", "failed"]


class TrialRecord(TypedDict):
    """Trial of a sweep.

    Attributes:
      number: Index of the trial, from 0; its workdir is `trial_folder(number)`.
      state: Outcome of the trial, or "running".
      value: Best value of the metric for complete trials, else the last value. None
        before the first evaluation, or if the value is not finite.
      evaluations: Number of evaluations so far.
      overrides: Config values that the trial sets, by field path.
      reason: Reason for pruning or failure; None in other states.
    """

    number: int
    state: TrialState
    value: float | None
    evaluations: int
    overrides: dict[str, Any]
    reason: str | None


class SweepRecord(TypedDict):
    """Schema of `sweep.json`.

    Attributes:
      metric: Validation metric that ranks the trials.
      better: Whether "higher" or "lower" values are better.
      best: `number` of the best complete trial; None if no trial is complete.
      trials: Trials, sorted by `number`.
    """

    metric: str
    better: Literal["higher", "lower"]
    best: int | None
    trials: list[TrialRecord]


def trial_folder(number: int) -> str:
    """Name of a trial's workdir, a subdirectory of the sweep's directory."""
    return f"trial-{number:04d}"


def write_sweep(folder: Path, record: SweepRecord) -> None:
    """Write `sweep.json` to the directory of a sweep."""
    write_digested(folder / SWEEP, dict(record))


def read_sweep(folder: Path) -> SweepRecord | None:
    """Read `sweep.json` from a directory; None if there is no such file.

    Raises:
      UserError: The file is damaged.
    """
    advice = "run the sweep again, which rewrites the file"
    record = read_of_run(folder / SWEEP, SweepRecord, advice=advice)
    if record is not None and record["best"] is not None:
        known = {trial["number"] for trial in record["trials"]}
        if record["best"] not in known:
            raise UserError(
                f"{folder / SWEEP}: the best trial {record['best']} is not in the list "
                f"of trials: {advice}"
            )
    return record
