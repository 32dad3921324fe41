"""What is left of a sweep: the best config as a recipe, a table, and the page."""

from pathlib import Path

from jaxtrain import atomic_file
from jaxtrain.console import printable, tell
from jaxtrain.errors import UserError, counted
from jaxtrain.invocation import command
from jaxtrain.pages.text import shown
from jaxtrain.plugins.report.again import write_recipe
from jaxtrain.plugins.report.sweep import make_sweep_page
from jaxtrain.records.run_log import show_table
from jaxtrain.records.sweep_file import SweepRecord, read_sweep, trial_folder
from jaxtrain.records.workdir import COMPARISON
from jaxtrain.tools.sweep.options import SweepOptions
from jaxtrain.tools.sweep.space import apply

BEST = "best.py"


def finish(options: SweepOptions) -> None:
    """Write the best config and the page, and show what there is.

    Raises:
      UserError: All trials have failed.
    """
    record = read_sweep(options.folder)
    assert record is not None, "it is written before the first trial"
    trials = record["trials"]
    states = [trial["state"] for trial in trials]
    if len(trials) >= options.num_trials and set(states) == {"failed"}:
        raise UserError(
            f"all {counted(len(trials), 'trial')} failed; trial 0: "
            f"{trials[0]['reason']}"
        )
    if (best := record["best"]) is not None:
        text = write_best(options, record, best)
        atomic_file.write(options.folder / BEST, text)
    _write_page(options.folder, record)
    rows = {
        "trials": ", ".join(
            f"{states.count(state)} {state}" for state in dict.fromkeys(states)
        )
    }
    if best is not None:
        one = trials[best]
        rows["best trial"] = str(options.folder / trial_folder(best))
        rows[f"validation {record['metric']}"] = shown(one["value"])
        rows |= {path: repr(value) for path, value in one["overrides"].items()}
    rows["compared in"] = str(options.folder / COMPARISON)
    show_table("sweep", rows)
    if best is not None:  # A table would break it into lines.
        told = command("--config", options.folder / BEST)
        print(f"train the best again:\n  {printable(told)}")


def write_best(options: SweepOptions, record: SweepRecord, best: int) -> str:
    """Return the recipe of a trial: a config file that can be run."""
    trial = record["trials"][best]
    changes = "".join(f"#   {k} = {v!r}\n" for k, v in trial["overrides"].items())
    head = (
        f'"""Trial {best} of {len(record["trials"])}: validation {record["metric"]} '
        f'{trial["value"]!r}."""\n\n# The sweep changed:\n{changes}\n'
    )
    return head + write_recipe(apply(options.config, trial["overrides"]))


def _write_page(folder: Path, record: SweepRecord) -> None:
    """Write the page; what is wrong with a trial's folder is one warning."""
    try:
        atomic_file.write(folder / COMPARISON, make_sweep_page(folder, record))
    except (OSError, UserError) as error:
        tell(f"warning: no {folder / COMPARISON} ({error})")
