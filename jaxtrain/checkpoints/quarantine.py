"""Steps put aside: renamed, so that they are neither read nor counted again."""

import json
import logging
from pathlib import Path

import jax

from jaxtrain.checkpoints.orbax import METADATA, committed_steps
from jaxtrain.errors import DamagedError
from jaxtrain.processes import peers

# What a damaged step is called then, and one that a run went back behind.
DAMAGED, REWOUND = "quarantine", "rewound"
# Of Orbax's own JSON in the folder of a step. One that it cannot read, or that has an
# unknown key, would keep it from opening the whole run.
_KEYS = {
    "item_handlers",
    "metrics",
    "performance_metrics",
    "init_timestamp_nsecs",
    "commit_timestamp_nsecs",
    "custom_metadata",
}

_log = logging.getLogger(__name__)


def put_aside(directory: Path, step: int, label: str = DAMAGED) -> None:
    """Rename a step to `LABEL-STEP`; all processes must call it."""
    if jax.process_index() == 0:
        rename(directory, step, label)
    peers.gather(None)


def put_unreadable_aside(directory: Path, *, read_only: bool) -> None:
    """Put the steps aside that Orbax could not open; all processes must call it.

    Raises:
      DamagedError: there is one, and it is to stay where it is.
    """
    if jax.process_index() == 0:
        for step in committed_steps(directory):
            reason = _unreadable(directory / str(step) / METADATA)
            if reason and read_only:
                raise DamagedError(f"step {step}: {reason}; resuming puts it aside")
            if reason:
                _log.warning("step %s: %s; put aside", step, reason)
                rename(directory, step)
    peers.gather(None)


def _unreadable(path: Path) -> str | None:
    """Tell why Orbax could not read a file; None: it can, or does without it."""
    try:
        content = json.loads(path.read_bytes())
    except OSError:
        return None
    except ValueError as error:
        return f"{path.name} cannot be read ({error})"
    unknown = sorted(content.keys() - _KEYS)
    return f"{path.name} has an unknown key {unknown[0]!r}" if unknown else None


def rename(directory: Path, step: int, label: str = DAMAGED) -> None:
    """Rename a step to `LABEL-STEP`."""
    number, target = 0, directory / f"{label}-{step}"
    while target.exists():
        number += 1
        target = directory / f"{label}-{step}-{number}"
    (directory / str(step)).rename(target)
