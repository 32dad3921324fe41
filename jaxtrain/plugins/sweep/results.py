"""Results of a sweep: recipe of the best config, summary table, and report."""

from pathlib import Path

from jaxtrain import atomic_file
from jaxtrain.config import Config
from jaxtrain.console import print_stderr, printable
from jaxtrain.errors import UserError, counted
from jaxtrain.invocation import command
from jaxtrain.plugins.report.again import write_recipe
from jaxtrain.plugins.report.pages.text import shown
from jaxtrain.plugins.report.sweep import make_sweep_page
from jaxtrain.plugins.report.sweep_file import SweepRecord, read_sweep, trial_folder
from jaxtrain.plugins.sweep.space import apply
from jaxtrain.records.run_log import show_table
from jaxtrain.records.workdir import COMPARISON

BEST = "best.py"


def finish(folder: Path, config: Config, num_trials: int) -> None:
    """Write the best config and the report, and print a summary table.

    Args:
      folder: Directory of the sweep.
      config: Base config of the trials.
      num_trials: Requested number of trials.

    Raises:
      UserError: All trials have failed.
    """
    record = read_sweep(folder)
    assert record is not None, "it is written before the first trial"
    trials = record["trials"]
    states = [trial["state"] for trial in trials]
    if len(trials) >= num_trials and set(states) == {"failed"}:
        raise UserError(
            f"all {counted(len(trials), 'trial')} failed; trial 0: "
            f"{trials[0]['reason']}"
        )
    if (best := record["best"]) is not None:
        _write_best(folder, config, record, best)
    _write_page(folder, record)
    rows = {
        "trials": ", ".join(
            f"{states.count(state)} {state}" for state in dict.fromkeys(states)
        )
    }
    if best is not None:
        one = trials[best]
        rows["best trial"] = str(folder / trial_folder(best))
        rows[f"validation {record['metric']}"] = shown(one["value"])
        rows |= {path: repr(value) for path, value in one["overrides"].items()}
    rows["compared in"] = str(folder / COMPARISON)
    show_table("sweep", rows)
    # Print the command outside of the table, which would wrap a long line.
    if best is not None:
        train = command("--config", folder / BEST)
        print(f"train with the best config:\n  {printable(train)}")


def describe_end(record: SweepRecord, number: int) -> str:
    """Line that describes the outcome of a trial, and the best trial so far."""
    trial, metric = record["trials"][number], record["metric"]
    if trial["state"] == "failed":
        return f"trial {number} failed: {trial['reason']}"
    if trial["state"] == "pruned":
        reason = f"was {trial['reason']}"
        return f"trial {number} {reason}, validation {metric} {shown(trial['value'])}"
    assert record["best"] is not None, "a complete trial has a value"
    best = record["trials"][record["best"]]
    return (
        f"trial {number} is complete, validation {metric} {shown(trial['value'])} "
        f"(best: trial {best['number']}, {shown(best['value'])})"
    )


def _write_best(folder: Path, config: Config, record: SweepRecord, best: int) -> None:
    """Write the config of the best trial as a Python recipe."""
    trial = record["trials"][best]
    changes = "".join(f"#   {k} = {v!r}\n" for k, v in trial["overrides"].items())
    head = (
        f'"""Trial {best} of {len(record["trials"])}: validation {record["metric"]} '
        f'{trial["value"]!r}."""\n\n# The sweep changed:\n{changes}\n'
    )
    recipe = write_recipe(apply(config, trial["overrides"]))
    atomic_file.write(folder / BEST, head + recipe)


def _write_page(folder: Path, record: SweepRecord) -> None:
    """Write the report; on failure, only print a warning."""
    try:
        atomic_file.write(folder / COMPARISON, make_sweep_page(folder, record))
    except (OSError, UserError) as error:
        print_stderr(f"warning: {folder / COMPARISON} could not be written ({error})")
