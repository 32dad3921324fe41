"""The folder of a run: is it new, to be resumed, or finished."""

import contextlib
import errno
import fcntl
import json
import math
import os
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import jax

from jaxtrain import atomic_file
from jaxtrain import config as config_lib
from jaxtrain.checkpoints.place import check_name
from jaxtrain.config import Config
from jaxtrain.config.recipe import CONFIG
from jaxtrain.console import tell
from jaxtrain.errors import UserError
from jaxtrain.json_files.digest import with_digest
from jaxtrain.json_files.read import read_json
from jaxtrain.records import data_record
from jaxtrain.records.data_record import DataRecord
from jaxtrain.records.held_folder import HeldFolder

METRICS, SUMMARY = "metrics.jsonl", "summary.json"
EVALUATION = "evaluation.json"
REPORT = "report.html"
# What the run learns from: see `data_record`.
DATA = "data.json"
# Digests of the files with parts of the user's own, as the run was last begun.
OWN_PARTS = "own_parts.json"
# For a step gone back to by hand, the steps whose data are left out.
SKIPS = "skips.json"
CHECKPOINTS, TENSORBOARD = "checkpoints", "tensorboard"
# What to do about a damaged one.
WITHOUT_DATA = (
    "move it away to go on without comparing the data with those that the run began "
    "with"
)
# There while a run holds the folder, and after one that was killed.
LOCK = ".lock"
# Of file systems that lock no files.
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP}
# Fields whose old values a message gives as options.
MAX_OPTIONS = 3
# Tries to lock a folder whose lock others remove in the same moment.
MAX_TRIES = 100
# A list of plain values in indented JSON. A line break is never part of a text there.
_ROWS = re.compile(r'\[\n\s+([^\[\]{}"]*?)\n\s+\]')


class RunEnd(TypedDict):
    """What tells from summary.json whether a run has finished."""

    step: int
    stopped_early: bool
    evals_without_improvement: NotRequired[int]


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


@contextlib.contextmanager
def locked(workdir: Path) -> Iterator[HeldFolder | None]:
    """Hold the folder for one run at a time; process 0 does so for all.

    It is made if it is not there, and removed again if nothing is put into it.

    Returns:
      The folder; None in other processes than the first.

    Raises:
      UserError: another run holds it, or it cannot be written.
    """
    if jax.process_index() != 0:
        yield None
        return
    made = [p for p in (workdir, *workdir.parents) if not os.path.lexists(p)]
    path = workdir / LOCK
    descriptor = _lock(path)
    held = HeldFolder(workdir)
    try:
        yield held
    finally:
        with contextlib.suppress(OSError):
            # Also if the folder was moved.
            lock = os.stat(LOCK, dir_fd=held.descriptor)
            if os.path.samestat(lock, os.fstat(descriptor)):
                os.unlink(LOCK, dir_fd=held.descriptor)
        held.close()
        os.close(descriptor)
        with contextlib.suppress(OSError):
            for folder in made:
                folder.rmdir()


def _lock(path: Path) -> int:
    """Make and lock a file that the path still leads to then; return its descriptor.

    A file, as NFS locks no folders between machines.
    """
    gone = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for _ in range(MAX_TRIES):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError as error:
            gone = error  # A run that ended has removed the folder.
            continue
        except OSError as error:
            raise _cannot_write(path.parent, error) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise UserError(
                f"another process trains in {path.parent}: wait for it, or choose "
                "another --workdir"
            ) from None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                os.close(descriptor)
                raise _cannot_write(path.parent, error) from None
            tell(
                f"warning: {path.parent}: no file can be locked there "
                f"({error.strerror}), so nothing keeps a second run out"
            )
        if _leads_to(path, descriptor):
            return descriptor
        os.close(descriptor)  # A run that ended has removed the file.
    raise _cannot_write(path.parent, gone)


def _leads_to(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def open_workdir(
    workdir: Path,
    config: Config,
    data: dict[str, Any],
    *,
    fresh: bool,
    resume_step: int | None = None,
) -> None:
    """Check that what the folder holds is a run of this config, or nothing.

    The caller must hold the lock (see `locked`).

    Args:
      workdir: Folder of the run.
      config: Config of the run.
      data: Description of its data.
      fresh: Whether to move an old run aside first.
      resume_step: Step that there must be a run to go back to.

    Raises:
      UserError: the folder cannot be written, or holds a run of another config or of
        other data.
    """
    path, checkpoints = workdir / CONFIG, workdir / CHECKPOINTS
    if resume_step is not None and not path.exists():
        raise UserError(f"--resume-step {resume_step}: no run in {workdir}")
    if fresh and (path.exists() or checkpoints.exists()):
        print(f"moved the old run to {_move_aside(workdir)}")
    try:
        checkpoints.mkdir(exist_ok=True)
        # After a run without a checkpoint, one of any config may begin.
        if any(step.name.isdigit() for step in checkpoints.iterdir()):
            _check_same(workdir, _read_config(path), config, data)
        # Writable? A pipe would wait for somebody to read.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
        os.close(os.open(workdir / METRICS, flags, 0o666))
        atomic_file.write(path, config_lib.to_json(config))
        write_digested(workdir / DATA, data)
        _write_own_parts(workdir / OWN_PARTS, config)
    except OSError as error:
        raise _cannot_write(workdir, error) from None


def _write_own_parts(path: Path, config: Config) -> None:
    parts = config_lib.own_parts(config)
    if parts or path.exists():
        write_digested(path, parts)


def read_own_parts(workdir: Path) -> dict[str, str]:
    """Return the recorded digests of own parts, by file; older runs have none.

    Raises:
      UserError: the file is damaged.
    """
    advice = "run the training command again, which writes it"
    return read_json(workdir / OWN_PARTS, dict[str, str], advice=advice) or {}


def read_summary(
    workdir: Path, total_steps: int, patience: int | None
) -> dict[str, Any] | None:
    """Return the summary if the run is finished.

    Args:
      workdir: Folder of the run.
      total_steps: Steps of the run.
      patience: `train.early_stop_patience`; with more of it, or None, a run that
        stopped early may go on.
    """
    path = workdir / SUMMARY
    summary = read_json(path, RunEnd, advice="move it away to go on")
    if summary is None:
        return None
    stopped, waited = summary["stopped_early"], summary.get("evals_without_improvement")
    if stopped and waited is not None:
        stopped = patience is not None and waited >= patience
    finished = stopped or summary["step"] >= total_steps
    return dict(summary) if finished else None


def make_folder(out: Path) -> None:
    """Make the folder of the results, before hours are spent on them.

    Raises:
      UserError: nothing can be written there.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        writable = os.access(out, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        raise UserError(f"--out {out}: cannot write there; choose another folder")


def write_digested(path: Path, values: dict[str, Any]) -> None:
    """Write a JSON file with a digest, which `json_files.read` looks at."""
    write_json(path, with_digest(finite(values)))


def write_json(path: Path, values: dict[str, Any]) -> None:
    text = json.dumps(finite(values), indent=2, allow_nan=False)
    atomic_file.write(path, _ROWS.sub(_on_one_line, text) + "\n")


def _on_one_line(row: re.Match[str]) -> str:
    return "[" + " ".join(row[1].split()) + "]"


def finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None."""
    if isinstance(value, dict):
        return {key: finite(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _read_config(path: Path) -> Config:
    try:
        config = config_lib.read_config(path)
        reason = f"{path} is not there"
    except UserError as error:
        config, reason = None, str(error)
    if config is None:
        raise UserError(
            f"{reason}. Without it the checkpoints beside it cannot be continued: "
            "restore it, choose another --workdir, or give --fresh"
        )
    return config


def _check_same(workdir: Path, old: Config, new: Config, data: dict[str, Any]) -> None:
    """Check that a run goes on with its own config and data.

    Raises:
      UserError: it does not.
    """
    saved = read_json(workdir / DATA, DataRecord, advice=WITHOUT_DATA)
    moved = saved is not None and data_record.may_have_moved(saved, data)
    fields = config_lib.changed_paths(old, new, same_data=moved)
    other, own = "another config", "its own config" + _options(old, fields)
    changed = config_lib.differences(old, new, same_data=moved)
    if not changed and saved is not None:
        other, own = "other data", "the data that it began with"
        changed = data_record.describe_changes(saved, data)
    if changed:
        raise UserError(
            f"{workdir} holds a run of {other}:\n  "
            + "\n  ".join(changed)
            + f"\nGo on with {own}, give --fresh to move it aside and start anew, or "
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
    """Say how another run begins, with the weights of this one if they fit."""
    if any(path.startswith(("model.", "task")) for path in fields):
        return "choose another --workdir"
    weights = f"--model.pretrained {shlex.quote(str(workdir))}"
    return f"begin with its weights in another --workdir: {weights}"


def _move_aside(workdir: Path) -> Path:
    """Move what the folder holds, but not the lock, into a new one beside it.

    So that the folder stays where it is, locked. The checkpoints come last: without
    its config, a run that a kill left in parts is refused, and not begun anew.
    """
    aside = _aside(workdir.absolute())
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


def _aside(workdir: Path) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    names = [f"{workdir.name}.old-{stamp}"]
    names += [f"{names[0]}-{i}" for i in range(1, 100)]
    return next(p for n in names if not (p := workdir.with_name(n)).exists())


def _cannot_write(workdir: Path, error: OSError) -> UserError:
    return UserError(
        f"--workdir {workdir}: cannot write there ({error.strerror}): choose another"
    )
