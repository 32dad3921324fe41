"""The folder of a run: is it new, to be resumed, or finished."""

import contextlib
import fcntl
import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from jaxtrain import config as config_lib
from jaxtrain.config import Config
from jaxtrain.errors import UserError

CONFIG, METRICS, SUMMARY = "config.json", "metrics.jsonl", "summary.json"
CHECKPOINTS, TENSORBOARD = "checkpoints", "tensorboard"


def open_workdir(workdir: Path, config: Config, *, fresh: bool) -> None:
    """Make the folder, or check that what it holds is a run of this config.

    Args:
      fresh: move an old run aside first.

    Raises:
      UserError: the folder cannot be written, or holds a run of another config.
    """
    workdir = workdir.absolute()
    path, checkpoints = workdir / CONFIG, workdir / CHECKPOINTS
    try:
        if fresh and (path.exists() or checkpoints.exists()):
            aside = _aside(workdir)
            workdir.rename(aside)
            print(f"moved the old run to {aside}")
        checkpoints.mkdir(parents=True, exist_ok=True)
        # A run that ended before its first checkpoint binds nobody.
        if any(step.name.isdigit() for step in checkpoints.iterdir()):
            _check_same(workdir, _read_config(path), config)
        with (workdir / METRICS).open("a"):
            pass  # Writable?
        write_text(path, config_lib.to_json(config))
    except OSError as error:
        raise UserError(
            f"--workdir {workdir}: cannot write there ({error.strerror}): choose "
            "another"
        ) from None


def read_summary(workdir: Path, total_steps: int) -> dict[str, Any] | None:
    """Return the summary if the run has reached `total_steps` or stopped early."""
    path = workdir / SUMMARY
    if not path.exists():
        return None
    try:
        summary = json.loads(path.read_text())
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}): move it away to go on") from None
    finished = summary["stopped_early"] or summary["step"] >= total_steps
    return summary if finished else None


def write_json(path: Path, values: dict[str, Any]) -> None:
    write_text(path, json.dumps(finite(values), indent=2, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Replace a file in one move, so that a kill leaves the old or the new one."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text)
    os.replace(temporary, path)


def finite(value: Any) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None."""
    if isinstance(value, dict):
        return {key: finite(v) for key, v in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@contextlib.contextmanager
def locked(workdir: Path) -> Iterator[None]:
    """Hold the folder for one run at a time; process 0 does so for all.

    Raises:
      UserError: another run holds it.
    """
    if jax.process_index() != 0:
        yield
        return
    descriptor = os.open(workdir, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise UserError(
            f"another process trains in {workdir}: wait for it, or choose another "
            "--workdir"
        ) from None
    finally:
        os.close(descriptor)


def _read_config(path: Path) -> Config:
    try:
        return config_lib.from_json(path.read_text())
    except (UserError, ValueError, FileNotFoundError) as error:
        raise UserError(
            f"{path}: cannot be read ({error}), so the checkpoints beside it cannot be "
            "continued: restore it, choose another --workdir, or give --fresh"
        ) from None


def _check_same(workdir: Path, old: Config, new: Config) -> None:
    changed = config_lib.differences(old, new)
    if changed:
        raise UserError(
            f"{workdir} holds a run of another config:\n  "
            + "\n  ".join(changed)
            + "\nResume it with its own config, choose another --workdir, or give "
            "--fresh to move it aside and start anew"
        )


def _aside(workdir: Path) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    names = [f"{workdir.name}.old-{stamp}"]
    names += [f"{names[0]}-{i}" for i in range(1, 100)]
    return next(p for n in names if not (p := workdir.with_name(n)).exists())
