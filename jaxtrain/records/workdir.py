"""The directory of a run: creation, resumption, and its files."""

import contextlib
import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

from jaxtrain import atomic_file, config as config_lib, links
from jaxtrain.checkpoints import CHECKPOINTS
from jaxtrain.checkpoints.folder import check_name, unused
from jaxtrain.config import Config
from jaxtrain.config.recipe import CONFIG
from jaxtrain.errors import UserError
from jaxtrain.json_files.run_id import RunId, read_of_run
from jaxtrain.json_files.write import write_digested
from jaxtrain.records import atomic_output, data_record
from jaxtrain.records.data_record import DataRecord
from jaxtrain.records.folder_lock import LOCK, cannot_write

METRICS, SUMMARY = "metrics.jsonl", "summary.json"
EVALUATION = "evaluation.json"
REPORT = "report.html"
# Report that compares several runs, or the trials of a sweep.
COMPARISON = "comparison.html"
# Record of the data: see `data_record`.
DATA = "data.json"
# Digests of custom modules, written whenever the run starts or resumes.
OWN_PARTS = "own_parts.json"
TENSORBOARD = "tensorboard"
# Directories that a run writes, which must not be links to outside the workdir.
FOLDERS = (
    *(CHECKPOINTS, "wandb", TENSORBOARD),
    *(f"{TENSORBOARD}/plugins", f"{TENSORBOARD}/plugins/profile"),
)
# Key in the `SUMMARY` of an ensemble: list of member runs with their metrics.
MEMBERS = "members"
# Remedy for a damaged data record.
WITHOUT_DATA = "move the file away to continue without a check for changed data"
# Maximum number of changed fields for which a message lists options.
MAX_OPTIONS = 3


class RunEnd(TypedDict):
    """Fields of summary.json that determine whether a run has finished."""

    step: int
    stopped_early: bool
    evals_without_improvement: int


def resolve_link(workdir: Path) -> Path:
    """Resolve a workdir that is a symbolic link, which may change during the run.

    Raises:
      UserError: The link is broken, or the target's name is not UTF-8.
    """
    folder = Path(os.path.realpath(workdir))
    check_name(folder)
    for link in workdir.absolute().parents:
        if link.is_symlink() and not link.exists():
            raise UserError(
                f"--workdir {workdir}: {link} is a link to {os.path.realpath(link)}, "
                "which does not exist: create the target, or choose another --workdir"
            )
    if os.path.islink(workdir) and not folder.parent.is_dir():
        raise UserError(
            f"--workdir {workdir} is a link to {folder}, but {folder.parent} does not "
            f"exist: mount or create {folder.parent}, or choose another --workdir"
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
    """Prepare the directory of a new run, or check that it contains the run to resume.

    Also writes the config and the data record. The caller must hold the lock of the
    directory (`folder_lock.locked`).

    Args:
      workdir: Directory of the run.
      config: Config of the run.
      data: Data record (see `data_record`).
      fresh: Whether to move an old run to another directory first.
      resume_step: Step of the checkpoint to resume from; requires an existing run.

    Returns:
      Id of the new run, or of the run to resume.

    Raises:
      UserError: The directory is not writable, contains a run with another config or
        with other data, or contains links to other directories.
    """
    path, checkpoints = workdir / CONFIG, workdir / CHECKPOINTS
    if resume_step is not None and not path.exists():
        raise UserError(f"--resume-step {resume_step}: {workdir} contains no run")
    if fresh and (os.path.lexists(path) or os.path.lexists(checkpoints)):
        print(f"moved the old run to {_move_aside(workdir)}")
    try:
        for name in FOLDERS:
            links.check_inside(workdir / name, workdir)
        checkpoints.mkdir(exist_ok=True)
        for step in checkpoints.iterdir():
            links.check_inside(step, workdir)
        # A run without checkpoints is replaced, even with another config.
        if any(step.name.isdigit() for step in checkpoints.iterdir()):
            old, run = _read_config(workdir)
            _check_no_ensemble(workdir, run)
            _check_unchanged(workdir, old, config, data, run)
        else:
            run = RunId.new(workdir)
        write_start(workdir, config, data, run)
    except OSError as error:
        raise cannot_write(workdir, error) from None
    return run


def write_start(
    workdir: Path, config: Config, data: dict[str, Any], run: RunId
) -> None:
    """Write config, data record and digests of custom modules when a run starts."""
    (workdir / CHECKPOINTS).mkdir(exist_ok=True)
    # Check that the metrics file is writable. Hard links are allowed, because the file
    # is replaced before lines are appended.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    os.close(links.open_in_place(workdir / METRICS, flags, refuse_hard_links=False))
    atomic_file.write(workdir / CONFIG, config_lib.to_json(config, run))
    write_digested(workdir / DATA, run.stamp(data))
    parts = config_lib.own_parts(config)
    if parts or (workdir / OWN_PARTS).exists():
        write_digested(workdir / OWN_PARTS, run.stamp(parts))


def read_own_parts(workdir: Path) -> dict[str, str]:
    """Return the recorded digests of custom modules by file name, {} if there are none.

    Raises:
      UserError: The file is damaged, or belongs to another run.
    """
    path = workdir / OWN_PARTS
    if not path.exists():
        return {}
    advice = "run the training command again, which writes the file"
    return read_of_run(path, dict[str, str], RunId.read(workdir), advice=advice) or {}


def read_summary(
    workdir: Path, total_steps: int, patience: int | None
) -> dict[str, Any] | None:
    """Return the summary if the run is finished, else None.

    Args:
      workdir: Directory of the run.
      total_steps: Number of steps of the run.
      patience: `train.early_stop_patience`. A run that stopped early is not finished
        if the patience is now larger, or None.
    """
    path, run = workdir / SUMMARY, RunId.read(workdir)
    summary = read_of_run(path, RunEnd, run, advice="move the file away to continue")
    if summary is None:
        return None
    stopped, waited = summary["stopped_early"], summary["evals_without_improvement"]
    stopped = stopped and patience is not None and waited >= patience
    finished = stopped or summary["step"] >= total_steps
    return dict(summary) if finished else None


@contextlib.contextmanager
def folder_of_results(out: Path) -> Iterator[None]:
    """Context manager: create an output directory before the results are computed.

    Errors are raised early, because the results may take hours. The directory is
    removed if the block fails and leaves the directory empty.

    Raises:
      UserError: The directory is not writable.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(atomic_output.created(out))
            writable = os.access(out, os.W_OK)
        except OSError:
            writable = False
        if not writable:
            raise UserError(f"--out {out}: not writable; choose another directory")
        yield


def _read_config(workdir: Path) -> tuple[Config, RunId]:
    path = workdir / CONFIG
    try:
        config = config_lib.read_config(path)
        if config is None:
            raise UserError(f"{path} does not exist")
        return config, RunId.read(workdir)
    except UserError as error:
        raise UserError(
            f"{error}. A run cannot be resumed without this file: restore the file, "
            "choose another --workdir, or give --fresh"
        ) from None


def _check_no_ensemble(workdir: Path, run: RunId) -> None:
    """Check that a directory is not the output of `main.py ensemble`."""
    advice = "move the file away to continue"
    end = read_of_run(workdir / SUMMARY, dict[str, Any], run, advice=advice)
    if end is not None and MEMBERS in end:
        raise UserError(
            f"{workdir} contains an ensemble, which cannot be trained: choose another "
            "--workdir, or give --fresh to move the ensemble aside"
        )


def _check_unchanged(
    workdir: Path, old: Config, new: Config, data: dict[str, Any], run: RunId
) -> None:
    saved = read_of_run(workdir / DATA, DataRecord, run, advice=WITHOUT_DATA)
    moved = saved is not None and data_record.are_known_equal(saved, data)
    fields = config_lib.changed_paths(old, new, same_data=moved)
    changed, others, remedies = [], [], []
    if fields:
        changed += config_lib.differences(old, new, same_data=moved)
        others.append("another config")
        remedies.append("the config of the run" + _options(old, fields))
    # Report changed data even if config fields that depend on the data, such as
    # data.mean, are already reported.
    if saved is not None and (diff := data_record.describe_changes(saved, data)):
        changed += diff
        others.append("other data")
        remedies.append("the data of the run")
    if changed:
        raise UserError(
            f"{workdir} contains a run of {' and '.join(others)}:\n  "
            + "\n  ".join(changed)
            + f"\nResume with {' and '.join(remedies)}, give --fresh to move the run "
            + "aside and start a new run, or "
            + _other_workdir(workdir, fields)
        )


def _options(config: Config, fields: list[str]) -> str:
    """Return command-line options that restore `fields`; "" if there are too many."""
    options = []
    for path in fields:
        value = config_lib.get(config, path)
        if isinstance(value, dict) or value == ():
            return ""  # Options cannot set a dict or an empty tuple.
        values = value if isinstance(value, tuple) else (value,)
        name = f"--{path.replace('_', '-')}"
        options += [name, *(shlex.quote(str(v)) for v in values)]
    return f" ({' '.join(options)})" if 0 < len(fields) <= MAX_OPTIONS else ""


def _other_workdir(workdir: Path, fields: list[str]) -> str:
    """Return advice to choose another workdir, if possible with the run's weights."""
    if any(path.startswith(("model.", "task")) for path in fields):
        return "choose another --workdir"
    weights = f"--model.pretrained {shlex.quote(str(workdir))}"
    return f"choose another --workdir (to start from the weights of the run: {weights})"


def _move_aside(workdir: Path) -> Path:
    """Move the contents of a workdir, except the lock, to a new sibling directory.

    Checkpoints are moved last: if the process is killed during the move, the next
    start raises an error, because checkpoints remain without a config.
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
    except BaseException as error:  # Includes exceptions raised by signal handlers.
        for name in names:
            if os.path.lexists(aside / name):
                (aside / name).rename(workdir / name)
        with contextlib.suppress(OSError):
            aside.rmdir()
        if not isinstance(error, OSError):
            raise
        raise UserError(
            f"--fresh: cannot move the old run in {workdir} to {aside} "
            f"({error.strerror}): move the run yourself, or choose another --workdir"
        ) from None
    return aside
