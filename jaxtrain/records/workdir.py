"""The folder of a run: is it new, to be resumed, or finished."""

import contextlib
import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

from jaxtrain import atomic_file, links
from jaxtrain import config as config_lib
from jaxtrain.checkpoints import CHECKPOINTS
from jaxtrain.checkpoints.folder import check_name, unused
from jaxtrain.config import Config
from jaxtrain.config.recipe import CONFIG
from jaxtrain.errors import UserError
from jaxtrain.json_files.run_id import RunId, read_of_run
from jaxtrain.json_files.write import write_digested
from jaxtrain.records import data_record, whole
from jaxtrain.records.data_record import DataRecord
from jaxtrain.records.held_folder import LOCK, cannot_write

METRICS, SUMMARY = "metrics.jsonl", "summary.json"
EVALUATION = "evaluation.json"
REPORT = "report.html"
# The page on several runs, or on the trials of a sweep.
COMPARISON = "comparison.html"
# What the run learns from: see `data_record`.
DATA = "data.json"
# Digests of the files with parts of the user's own, as the run was last begun.
OWN_PARTS = "own_parts.json"
TENSORBOARD = "tensorboard"
# Folders that a run writes into: each must lie in the workdir, as must all checkpoints.
FOLDERS = (
    *(CHECKPOINTS, "wandb", TENSORBOARD),
    *(f"{TENSORBOARD}/plugins", f"{TENSORBOARD}/plugins/profile"),
)
# Key of `SUMMARY` in the folder of an ensemble: its runs, with their metrics.
MEMBERS = "members"
# What to do about a damaged one.
WITHOUT_DATA = (
    "move it away to go on without comparing the data with those that the run began "
    "with"
)
# Fields whose old values a message gives as options.
MAX_OPTIONS = 3


class RunEnd(TypedDict):
    """Fields of summary.json that show whether a run has finished."""

    step: int
    stopped_early: bool
    evals_without_improvement: int


def follow(workdir: Path) -> Path:
    """Return the folder that a link leads to: the link may change under a run.

    Raises:
      UserError: it leads nowhere, or its name is not UTF-8.
    """
    folder = Path(os.path.realpath(workdir))
    check_name(folder)
    for link in workdir.absolute().parents:
        if link.is_symlink() and not link.exists():
            raise UserError(
                f"--workdir {workdir}: {link} is a link to {os.path.realpath(link)}, "
                "which is not there: mount or make it, or choose another --workdir"
            )
    if os.path.islink(workdir) and not folder.parent.is_dir():
        raise UserError(
            f"--workdir {workdir} is a link to {folder}, and there is no "
            f"{folder.parent}: mount or make it, or choose another --workdir"
        )
    return workdir if str(folder) == os.path.abspath(workdir) else folder


def open_workdir(
    workdir: Path,
    config: Config,
    data: dict[str, Any],
    *,
    fresh: bool,
    resume_step: int | None = None,
) -> RunId:
    """Check that what the folder holds is a run of this config, or nothing.

    The caller must hold the lock (see `locked`).

    Args:
      fresh: Whether to move an old run aside first.
      resume_step: Step that there must be a run to go back to.

    Returns:
      The id of the run that goes on, or of the one that begins.

    Raises:
      UserError: the folder cannot be written, holds a run of another config or of
        other data, or a link that leads out of it.
    """
    path, checkpoints = workdir / CONFIG, workdir / CHECKPOINTS
    if resume_step is not None and not path.exists():
        raise UserError(f"--resume-step {resume_step}: no run in {workdir}")
    if fresh and (os.path.lexists(path) or os.path.lexists(checkpoints)):
        print(f"moved the old run to {_move_aside(workdir)}")
    try:
        for name in FOLDERS:
            links.check_inside(workdir / name, workdir)
        checkpoints.mkdir(exist_ok=True)
        for step in checkpoints.iterdir():
            links.check_inside(step, workdir)
        # After a run without a checkpoint, one of any config may begin.
        if any(step.name.isdigit() for step in checkpoints.iterdir()):
            old, run = _read_config(workdir)
            _check_no_ensemble(workdir, run)
            _check_same(workdir, old, config, data, run)
        else:
            run = RunId.new(workdir)
        write_start(workdir, config, data, run)
    except OSError as error:
        raise cannot_write(workdir, error) from None
    return run


def write_start(
    workdir: Path, config: Config, data: dict[str, Any], run: RunId
) -> None:
    """Write the records of the start of a run: its config, its data, its own parts."""
    (workdir / CHECKPOINTS).mkdir(exist_ok=True)
    # Writable? An attempt replaces it before it appends, so hard links may stay.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    os.close(links.open_in_place(workdir / METRICS, flags, only_name=False))
    atomic_file.write(workdir / CONFIG, config_lib.to_json(config, run))
    write_digested(workdir / DATA, run.stamp(data))
    parts = config_lib.own_parts(config)
    if parts or (workdir / OWN_PARTS).exists():
        write_digested(workdir / OWN_PARTS, run.stamp(parts))


def read_own_parts(workdir: Path) -> dict[str, str]:
    """Return the recorded digests of own parts, by file; {} without own parts.

    Raises:
      UserError: the file is damaged, or of another run.
    """
    path = workdir / OWN_PARTS
    if not path.exists():
        return {}
    advice = "run the training command again, which writes it"
    return read_of_run(path, dict[str, str], RunId.read(workdir), advice=advice) or {}


def read_summary(
    workdir: Path, total_steps: int, patience: int | None
) -> dict[str, Any] | None:
    """Return the summary if the run is finished.

    Args:
      patience: `train.early_stop_patience`; with more of it, or None, a run that
        stopped early may go on.
    """
    path, run = workdir / SUMMARY, RunId.read(workdir)
    summary = read_of_run(path, RunEnd, run, advice="move it away to go on")
    if summary is None:
        return None
    stopped, waited = summary["stopped_early"], summary["evals_without_improvement"]
    stopped = stopped and patience is not None and waited >= patience
    finished = stopped or summary["step"] >= total_steps
    return dict(summary) if finished else None


@contextlib.contextmanager
def folder_of_results(out: Path) -> Iterator[None]:
    """Make a folder before hours are spent on what it will hold.

    If the block fails, and has written nothing, the folder is removed.

    Raises:
      UserError: Nothing can be written there.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(whole.made(out))
            writable = os.access(out, os.W_OK)
        except OSError:
            writable = False
        if not writable:
            raise UserError(f"--out {out}: cannot write there; choose another folder")
        yield


def _read_config(workdir: Path) -> tuple[Config, RunId]:
    path = workdir / CONFIG
    try:
        config = config_lib.read_config(path)
        if config is None:
            raise UserError(f"{path} is not there")
        return config, RunId.read(workdir)
    except UserError as error:
        raise UserError(
            f"{error}. Without it the checkpoints beside it cannot be continued: "
            "restore it, choose another --workdir, or give --fresh"
        ) from None


def _check_no_ensemble(workdir: Path, run: RunId) -> None:
    """Check that a folder is not one that `main.py ensemble` wrote."""
    advice = "move it away to go on"
    end = read_of_run(workdir / SUMMARY, dict[str, Any], run, advice=advice)
    if end is not None and MEMBERS in end:
        raise UserError(
            f"{workdir} holds an ensemble, which cannot be trained further: choose "
            "another --workdir, or give --fresh to move it aside and start anew"
        )


def _check_same(
    workdir: Path, old: Config, new: Config, data: dict[str, Any], run: RunId
) -> None:
    saved = read_of_run(workdir / DATA, DataRecord, run, advice=WITHOUT_DATA)
    moved = saved is not None and data_record.may_have_moved(saved, data)
    fields = config_lib.changed_paths(old, new, same_data=moved)
    changed, others, own = [], [], []
    if fields:
        changed += config_lib.differences(old, new, same_data=moved)
        others.append("another config")
        own.append("its own config" + _options(old, fields))
    # Beside fields of the config that follow from the data, such as their mean.
    if saved is not None and (found := data_record.describe_changes(saved, data)):
        changed += found
        others.append("other data")
        own.append("the data that it began with")
    if changed:
        raise UserError(
            f"{workdir} holds a run of {' and '.join(others)}:\n  "
            + "\n  ".join(changed)
            + f"\nGo on with {' and '.join(own)}, give --fresh to move it aside and "
            + "start anew, or "
            + _elsewhere(workdir, fields)
        )


def _options(config: Config, fields: list[str]) -> str:
    """Return the options that set a few fields to what a config says."""
    options = []
    for path in fields:
        value = config_lib.get(config, path)
        if isinstance(value, dict) or value == ():
            return ""  # No single option says so.
        values = value if isinstance(value, tuple) else (value,)
        name = f"--{path.replace('_', '-')}"
        options += [name, *(shlex.quote(str(v)) for v in values)]
    return f" ({' '.join(options)})" if 0 < len(fields) <= MAX_OPTIONS else ""


def _elsewhere(workdir: Path, fields: list[str]) -> str:
    """Say where another run begins, and how with the weights of this one."""
    if any(path.startswith(("model.", "task")) for path in fields):
        return "choose another --workdir"
    weights = f"--model.pretrained {shlex.quote(str(workdir))}"
    return f"choose another --workdir (with its weights: {weights})"


def _move_aside(workdir: Path) -> Path:
    """Move what the folder holds, but not the lock, into a new one beside it.

    So that the folder stays where it is, locked. The checkpoints come last: without
    its config, a run that a kill left in parts is refused, and not begun anew.
    """
    place, stamp = workdir.absolute(), time.strftime("%Y%m%d-%H%M%S")
    aside = unused(place.with_name(f"{place.name}.old-{stamp}"))
    names = sorted(
        (p.name for p in workdir.iterdir() if p.name != LOCK),
        key=lambda name: (name == CHECKPOINTS, name),
    )
    try:
        aside.mkdir(mode=workdir.stat().st_mode & 0o777)
        for name in names:
            (workdir / name).rename(aside / name)
    except BaseException as error:  # A signal, too.
        for name in names:
            if os.path.lexists(aside / name):
                (aside / name).rename(workdir / name)
        with contextlib.suppress(OSError):
            aside.rmdir()
        if not isinstance(error, OSError):
            raise
        raise UserError(
            f"--fresh: cannot move the old run in {workdir} to {aside} "
            f"({error.strerror}): move it yourself, or choose another --workdir"
        ) from None
    return aside
