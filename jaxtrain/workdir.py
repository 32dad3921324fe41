"""The folder of a run: is it new, to be resumed, or finished."""

import json
import math
import os
import time
from pathlib import Path
from typing import Any

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
    try:
        if fresh and workdir.exists() and any(workdir.iterdir()):
            aside = _aside(workdir)
            workdir.rename(aside)
            print(f"moved the old run to {aside}")
        workdir.mkdir(parents=True, exist_ok=True)
        path = workdir / CONFIG
        if path.exists():
            _check_same(workdir, config_lib.from_json(path.read_text()), config)
        elif (workdir / CHECKPOINTS).exists():
            raise UserError(
                f"{workdir} holds checkpoints but no {CONFIG}: choose another "
                "--workdir, or give --fresh to move it aside"
            )
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
    summary = json.loads(path.read_text())
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
