"""Rewinding of a run to an earlier checkpoint (`--resume-step`)."""

import shutil
from pathlib import Path
from typing import Any

import jax

from jaxtrain import atomic_file
from jaxtrain.checkpoints.folder import unused
from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.errors import UserError
from jaxtrain.processes import cluster
from jaxtrain.records import workdir as workdir_lib


def go_back(workdir: Path, saved: Checkpoints, step: int) -> dict[str, Any]:
    """Rewind a run: rename newer checkpoints and the summary, copy the metrics file.

    Args:
      workdir: Workdir of the run.
      saved: Checkpoints of the run.
      step: Step of the checkpoint to return to.

    Returns:
      Event for the run log.

    Raises:
      UserError: There is no checkpoint of this step.
    """
    steps = saved.steps()
    if step not in steps:
        known = ", ".join(map(str, steps)) or "none"
        raise UserError(
            f"--resume-step {step}: {saved.directory} has no checkpoint of this step; "
            f"choose from {known}"
        )
    newest = steps[-1]
    if jax.process_index() == 0:
        lines = workdir / workdir_lib.METRICS
        if lines.exists():
            with atomic_file.replacing(_aside(lines, newest)) as copy:
                shutil.copyfile(lines, copy)
        summary = workdir / workdir_lib.SUMMARY
        if summary.exists():
            summary.rename(_aside(summary, newest))
    saved.put_aside_after(step)
    cluster.current().barrier()
    return {"event": "rewound (--resume-step)", "from_step": newest}


def _aside(path: Path, step: int) -> Path:
    """Unused path next to `path`, such as `metrics.rewound-30.jsonl`."""
    return unused(path.with_name(f"{path.stem}.rewound-{step}"), path.suffix)
