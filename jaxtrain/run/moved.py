"""A workdir that is moved while a run writes into it.

Files that are open, such as `metrics.jsonl`, go with the folder; checkpoints and the
summary are written by their path, which leads elsewhere then, or nowhere. So the path
is looked at before each of them: the state is saved once more, where the folder is now,
and the run ends.
"""

import contextlib
import shlex
import shutil
from pathlib import Path

import jax

from jaxtrain.checkpoints.folder import DAMAGED, committed_steps
from jaxtrain.errors import CheckpointError, MovedError
from jaxtrain.records.workdir import CHECKPOINTS
from jaxtrain.run.attempt import Job


def check(job: Job) -> None:
    """Check that the workdir is where it was.

    Raises:
      MovedError: It is not.
    """
    if job.folder is not None and job.folder.moved():
        raise _error(job)


def follow(job: Job, step: int) -> bool:
    """Let checkpoints be saved where the workdir is now; return whether it was moved.

    Args:
      step: Step of the last save, which may be on its way to the old place.

    Raises:
      MovedError: It was moved, and nobody knows where.
    """
    if job.folder is None or not job.folder.moved():
        return False
    with contextlib.suppress(CheckpointError):
        job.saved.wait()
    _remove_strays(job.folder.path, step)
    place = job.folder.place()
    if place is None:
        raise _error(job)
    job.saved.move_to(place / CHECKPOINTS)
    return True


def lacks(job: Job, step: int) -> bool:
    """Whether the workdir was moved while this step was saved, which it lacks now.

    Of several processes, process 0 cannot save it without the others, which do not
    know: it is not saved again.
    """
    if job.folder is None or not job.folder.moved() or jax.process_count() > 1:
        return False
    with contextlib.suppress(CheckpointError):
        job.saved.wait()
    place = job.folder.place()
    return place is not None and step not in committed_steps(place / CHECKPOINTS)


def end(job: Job) -> None:
    """Wait for the save that `follow` allowed, and end the run.

    Raises:
      MovedError: Always in process 0, which alone knows.
    """
    with contextlib.suppress(CheckpointError):
        job.saved.wait()
    raise _error(job)


def _error(job: Job) -> MovedError:
    assert job.folder is not None
    old, new = job.folder.path, job.folder.place()
    if new is None:
        return MovedError(
            f"{old} was removed, or moved to another disk, while the run wrote into "
            "it: nothing more is written. If it is elsewhere, the same command goes on "
            "from its last checkpoint with --workdir there"
        )
    steps = committed_steps(new / CHECKPOINTS)
    return MovedError(
        f"{old} was moved to {new} while the run wrote into it: the run has ended, and "
        f"its last checkpoint there is step {steps[-1] if steps else 'none'}. The same "
        f"command goes on from it with --workdir {shlex.quote(str(new))}"
    )


def _remove_strays(workdir: Path, step: int) -> None:
    """Remove what a save that was under way has written to the old place.

    It is that alone if there is nothing else: another run has a config and a lock.
    """
    folder = workdir / CHECKPOINTS
    with contextlib.suppress(OSError):
        written = {str(step), f"{DAMAGED}-{step}"}
        strays = {path.name for path in folder.iterdir()} <= written
        if strays and [path.name for path in workdir.iterdir()] == [CHECKPOINTS]:
            shutil.rmtree(workdir)
