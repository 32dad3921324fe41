"""HTML page of a sweep: table of all trials, and comparison of the best trials."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from jaxtrain.errors import UserError, counted
from jaxtrain.plugins.report.compare import MAX_RUNS, make_comparison
from jaxtrain.plugins.report.curves import title
from jaxtrain.plugins.report.history import History, read_history
from jaxtrain.plugins.report.pages.text import shown
from jaxtrain.plugins.report.sweep_file import (
    SweepRecord,
    TrialRecord,
    trial_folder,
)
from jaxtrain.records.workdir import METRICS


class TrialTable(NamedTuple):
    """Table of all trials of a sweep.

    Attributes:
      heading: Heading of the page.
      columns: Headings of the table columns.
      rows: Table cells of each trial, best trial first.
      best: Whether the first row is the best trial; False if no trial is complete.
      note: Sentence below the table, on the number of runs compared.
    """

    heading: str
    columns: list[str]
    rows: list[list[str]]
    best: bool
    note: str


def make_sweep_page(folder: Path, record: SweepRecord) -> bytes:
    """Render the page: a table of all trials, then a comparison of the best trials.

    Raises:
      UserError: No trial has started.
    """
    ranked = rank(record)
    histories = _histories(folder, ranked)
    if not histories:
        raise UserError(
            f"--workdir {folder}: no trial of the sweep has started; run the sweep "
            "first"
        )
    note = f"The runs of {counted(len(histories), 'trial')} are compared below."
    if len(histories) < len(ranked):
        note = f"The runs of the first {len(histories)} are compared below."
    fields = list(dict.fromkeys(p for trial in ranked for p in trial["overrides"]))
    columns = ["trial", "ended", f"validation {title(record['metric'])}"]
    table = TrialTable(
        f"Sweep of {counted(len(ranked), 'trial')}",
        [*columns, "evaluations", *fields],
        [_cells(trial, fields) for trial in ranked],
        record["best"] is not None,
        note,
    )
    return make_comparison(histories, table)


def rank(record: SweepRecord) -> list[TrialRecord]:
    """Sort the trials of a sweep, best trial first.

    Complete trials are sorted by value; the other trials follow, sorted by number of
    evaluations, largest first.
    """
    sign = -1 if record["better"] == "higher" else 1

    def key(trial: TrialRecord) -> tuple[bool, int, bool, float, int]:
        complete, value = trial["state"] == "complete", trial["value"]
        reached = 0 if complete else -trial["evaluations"]
        known = value is not None
        return not complete, reached, not known, sign * (value or 0), trial["number"]

    return sorted(record["trials"], key=key)


def _histories(folder: Path, ranked: Sequence[TrialRecord]) -> list[History]:
    """Read the runs of the first `MAX_RUNS` trials that have started."""
    found = list[History]()
    for trial in ranked:
        workdir = folder / trial_folder(trial["number"])
        if len(found) < MAX_RUNS and (workdir / METRICS).is_file():
            found.append(read_history(workdir))
    return found


def _cells(trial: TrialRecord, fields: Sequence[str]) -> list[str]:
    state = trial["state"]
    if state == "failed":
        state = f"failed: {trial['reason']}"
    values = [trial["overrides"].get(path, "") for path in fields]
    numbers = [shown(trial["value"]), shown(trial["evaluations"])]
    return [str(trial["number"]), state, *numbers, *map(shown, values)]
