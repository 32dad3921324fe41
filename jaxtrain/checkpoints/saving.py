"""Saving of a checkpoint by process 0 (`lead`) and other processes (`contribute`).

Both functions run in background threads.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxtrain.checkpoints import manifest
from jaxtrain.checkpoints.digest import combine, not_finite, shard_digests
from jaxtrain.checkpoints.folder import newest_name
from jaxtrain.checkpoints.joint import JointSave
from jaxtrain.checkpoints.orbax import (
    root_cause,
    system_error,
    write,
    write_shards,
)
from jaxtrain.errors import BadNumbersError
from jaxtrain.json_files.run_id import RunId


def lead(
    folder: Path,
    state: dict[str, Any],
    info: dict[str, Any],
    metrics: dict[str, Any] | None,
    run: RunId,
    joint: JointSave,
) -> None:
    """Write the arrays of process 0, and commit after all processes have written.

    Args:
      folder: Directory of the checkpoint, named by its step.
      state: Arrays to write. The dict is cleared after the save.
      info: JSON values of the run: config, versions, progress.
      metrics: Validation metrics; None if the step was not evaluated.
      run: Run that saves the checkpoint.
      joint: Coordinator of the save.

    Raises:
      BadNumbersError: The state is not finite; nothing was written.
      PartError: Another process could not write.
      StartAgainError: Another process was lost.
      Exception: Orbax raised another error.
    """
    try:
        reports = joint.collect([not_finite(state), shard_digests(state)])
        _check_finite(folder, sorted({path for bad, _ in reports for path in bad}))
        sums = combine([shards for _, shards in reports])
        made = manifest.make(state, sums, info, metrics, run)
        # Raises if the workdir is missing, which Orbax would create.
        folder.parent.parent.stat()
        write(folder, state, made, joint)
        state.clear()  # Free memory for the verification that follows.
    finally:
        joint.settle()


def contribute(folder: Path, state: dict[str, Any], joint: JointSave) -> None:
    """Write the shards of a process other than 0, and report errors to process 0.

    Args:
      folder: Directory of the checkpoint, created by process 0.
      state: Arrays of which this process writes shards; None for all other arrays.
      joint: Coordinator of the save.

    Raises:
      StartAgainError: Process 0 was lost.
    """
    report: list[Any] = []
    error = _error_of(lambda: report.extend((not_finite(state), shard_digests(state))))
    if joint.report(report, error):
        joint.written(_error_of(lambda: write_shards(folder, state)))


def _error_of(function: Callable[[], None]) -> dict[str, Any] | None:
    try:
        function()
    except Exception as error:
        return {"errno": system_error(error), "reason": root_cause(error)}
    return None


def _check_finite(folder: Path, bad: list[str]) -> None:
    if bad:
        more = f" and {len(bad) - 1} more arrays" if len(bad) > 1 else ""
        raise BadNumbersError(
            f"step {folder.name}: {bad[0]}{more} in the train state is not finite, so "
            "the step is not saved; the last good checkpoint is "
            f"{newest_name(folder.parent)}"
        )
