"""Conversion of system errors to user errors: memory, disks, limits, permissions."""

import contextlib
import errno
import math
import os
import resource
from collections.abc import Iterator

from jaxtrain.errors import UserError, is_out_of_memory
from jaxtrain.plugin import hints_on

MEMORY = "set a smaller data.batch_size (in predict --batch-size), or use more devices"
SPACE = "free disk space, or choose another directory"
PERMISSION = "change the permissions, or choose another directory"
PROCESSES = (
    "raise the limit of processes and threads (ulimit -u, or pids.max of the "
    "container), or set a smaller data.workers"
)
# Remedy by errno. Other system errors are treated as bugs.
FIXES = {
    errno.ENOSPC: SPACE,
    errno.EDQUOT: f"{SPACE} (the disk quota of the user is exceeded)",
    errno.EROFS: "choose a directory on a writable disk",
    errno.EACCES: PERMISSION,
    errno.EPERM: PERMISSION,
    errno.EIO: "the disk or its connection is damaged: choose another directory",
    errno.ESTALE: "the network file system was lost: mount the file system again",
    errno.ENFILE: "raise the limit of open files of the machine (fs.file-max)",
    errno.EAGAIN: PROCESSES,
}
# Error numbers for too many open files. Messages for these errors omit the path.
LIMITS = (errno.EMFILE, errno.ENFILE)
# Most systems have a soft limit of 1,024 open files, and a higher hard limit.
MAX_OPEN = 2**16
# Substrings that identify Python exceptions by their messages.
NO_THREAD = "can't start new thread"
NO_TEMPORARY = "No usable temporary directory"


def as_user_error(error: BaseException) -> UserError | None:
    """Convert a system error, such as a full disk, to a UserError with a remedy.

    Args:
      error: Caught exception, whose chained exceptions are inspected, too.

    Returns:
      The UserError; None for other exceptions, which are bugs.
    """
    if is_out_of_memory(error):
        reason = next(iter(str(error).splitlines()), "").strip()
        reason = reason or type(error).__name__
        fix = MEMORY + hints_on("memory")
        return UserError(f"out of memory ({reason}): {fix}")
    messages = map(_describe, _causes(error))
    message = next(filter(None, messages), None)
    return None if message is None else UserError(message)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or (
            None if error.__suppress_context__ else error.__context__
        )


def _describe(error: BaseException) -> str | None:
    if isinstance(error, RuntimeError) and NO_THREAD in str(error):
        return f"{NO_THREAD}: {PROCESSES}"
    if not isinstance(error, OSError):
        return None
    path, reason = error.filename, error.strerror or str(error)
    if error.errno in LIMITS:
        return f"too many open files: {remedy(error.errno)}"
    if error.errno == errno.ENOENT and path is None:
        if not _current_folder():
            return (
                "the current directory was removed: change to an existing directory "
                "(cd)"
            )
        if NO_TEMPORARY in reason:
            return f"{reason}: set TMPDIR to a writable directory"
    if error.errno not in FIXES:
        return None
    place = "" if path is None else f"{os.fsdecode(path)}: "
    return f"{place}{reason}: {remedy(error.errno)}"


def remedy(number: int | None, otherwise: str = SPACE) -> str:
    """Return the remedy for a system error, as an imperative.

    Args:
      number: Value of `errno`, or None.
      otherwise: Remedy for other values of `errno`.
    """
    if number == errno.EMFILE:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return (
            f"raise the limit of open files, {limit:,} for this process "
            "(ulimit -n 4096), or set a smaller data.workers"
        )
    return otherwise if number is None else FIXES.get(number, otherwise)


def _current_folder() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def raise_file_limit() -> float:
    """Raise the soft limit of open files, to at most 65,536; return the new limit.

    Child processes inherit the limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_OPEN if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):  # macOS has lower limits.
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    return math.inf if soft == resource.RLIM_INFINITY else soft
