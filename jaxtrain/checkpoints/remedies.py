"""Advice for failed saves of checkpoints."""

import errno
import importlib.metadata

from jaxtrain.checkpoints.orbax import LIBRARY, system_error
from jaxtrain.errors import CheckpointError, DamagedError
from jaxtrain.system_errors import remedy

DISK = "repair the disk, or choose another --workdir"
SPACE = (errno.ENOSPC, errno.EDQUOT)


def remedy_of(error: CheckpointError) -> str:
    """Return advice for a failed save or verification, as an imperative."""
    cause, number = error.__cause__, _number(error)
    if number is not None:
        return remedy(number, DISK)
    if cause is None or isinstance(cause, DamagedError):
        return DISK
    if isinstance(cause, MemoryError):
        return "free some memory of this machine"
    version = importlib.metadata.version(LIBRARY)
    return (
        f"install a version of {LIBRARY} that jaxtrain was tested with "
        f"(constraints.txt): {version} raised this error, which the disk did not cause"
    )


def is_of_space(error: CheckpointError) -> bool:
    """Whether the cause of an error is a full disk or an exceeded quota."""
    return _number(error) in SPACE


def _number(error: CheckpointError) -> int | None:
    return None if error.__cause__ is None else system_error(error.__cause__)
