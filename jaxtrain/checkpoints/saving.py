"""The parts that processes have in a save, each in its background thread."""

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
    """Write the arrays of process 0, and commit when the others have written theirs.

    Args:
      folder: Folder of the checkpoint, by its step.
      state: Arrays; it is emptied when they are written.
      info: Values that JSON can hold.
      metrics: Metrics of the validation split, or None.
      run: Run that the checkpoint belongs to.
      joint: Agreement with the other processes.

    Raises:
      BadNumbersError: The state is not finite; nothing was written.
      PartError: Another process could not write.
      StartAgainError: Another process was lost.
      Exception: As `orbax.write` does.
    """
    try:
        reports = joint.collect([not_finite(state), shard_digests(state)])
        _check_finite(folder, sorted({path for bad, _ in reports for path in bad}))
        sums = combine([shards for _, shards in reports])
        made = manifest.make(state, sums, info, metrics, run)
        folder.parent.parent.stat()  # Orbax would make a folder that is gone.
        write(folder, state, made, joint)
        state.clear()  # Reading it back takes as much memory again.
    finally:
        joint.settle()


def contribute(folder: Path, state: dict[str, Any], joint: JointSave) -> None:
    """Write the shards of another process; process 0 is told of an error, and raises.

    Args:
      folder: Folder of the checkpoint, which process 0 makes.
      state: Shards that this process writes; None stands for other arrays.
      joint: Agreement with process 0.

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
            f"step {folder.name}: {bad[0]}{more} of the state is not finite; it is not "
            f"saved, and the last good checkpoint is {newest_name(folder.parent)}"
        )
