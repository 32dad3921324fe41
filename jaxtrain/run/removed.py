"""Files that are removed from a workdir while a run writes into it.

`rm -r` on the workdir of a live run may leave some files, as the run makes new ones
meanwhile. What is known is written again before each save; a checkpoint that is gone
once its state is no longer in memory ends the run.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from jaxtrain import atomic_file
from jaxtrain.errors import CheckpointError, MovedError
from jaxtrain.inference.description import MODEL
from jaxtrain.records import workdir as workdir_lib
from jaxtrain.regular_file import read_bytes
from jaxtrain.run.attempt import Attempt, Job

# Files that are written when a run starts, and never change.
KEPT = (
    *(workdir_lib.CONFIG, workdir_lib.DATA, workdir_lib.OWN_PARTS, workdir_lib.SKIPS),
    MODEL,
)


def read_kept(workdir: Path) -> Mapping[str, bytes]:
    """Return the content of the files that a run needs besides its checkpoints."""
    return {n: read_bytes(workdir / n) for n in KEPT if (workdir / n).is_file()}


def restore(attempt: Attempt) -> None:
    """Write again what is missing in the workdir, if that is still where it was.

    Raises:
      CheckpointError: It cannot be written.
      UserError: Another run has taken the workdir, whose lock was removed.
    """
    job = attempt.job
    if job.folder is None or job.folder.moved():
        return
    job.folder.keep_lock()
    for name, content in job.kept.items():
        path = job.workdir / name
        if os.path.lexists(path):
            continue
        try:
            atomic_file.write(path, content)
        except OSError as error:
            raise CheckpointError(
                f"{path} was removed while the run wrote into its folder, and cannot "
                f"be written again ({error.strerror or error})"
            ) from None
        attempt.tell(f"{path} was removed: it is written again")


def check_saved(job: Job, step: int) -> None:
    """Check that the checkpoint of the last step is still there.

    Raises:
      MovedError: It is not.
    """
    if job.folder is None or step in (steps := job.saved.listed()):
        return
    then = f"goes on from step {steps[-1]}" if steps else "begins anew"
    raise MovedError(
        f"{job.saved.directory}: checkpoint {step} was removed while the run wrote "
        "into its folder, and the run cannot end without it; the same command " + then
    )
