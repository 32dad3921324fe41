"""Orbax's checkpointer: how we set it up, and what went wrong inside it."""

import contextlib
import functools
import inspect
import logging
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
from orbax.checkpoint import checkpoint_manager
from orbax.checkpoint import v1 as ocp

from jaxtrain.errors import DamagedError

# What Orbax writes last into a checkpoint, and its JSON there, with ours in it.
COMMITTED, METADATA = "commit_success.txt", "_CHECKPOINT_METADATA"

# Orbax reports routine steps, and the use of the faster non-OCDBT format, as warnings.
# What is wrong with a checkpoint `Checkpoints` says itself, once.
logging.getLogger("absl").setLevel(logging.CRITICAL)
logging.getLogger("asyncio").setLevel(logging.CRITICAL)


def committed_steps(directory: Path) -> list[int]:
    """List the steps of a folder that are whole, rising."""
    names = (path.parent.name for path in directory.glob(f"*/{COMMITTED}"))
    return sorted(int(name) for name in names if name.isdigit())


def newest_step(directory: Path) -> int:
    """Return the last step of a folder that is whole; 0: none."""
    return max(committed_steps(directory), default=0)


def remove_uncommitted(directory: Path) -> None:
    """Remove what saves that were cut off have left.

    Orbax does so, too, but in a thread that it does not wait for when it is closed.
    """
    committed = set(committed_steps(directory))
    for path in directory.iterdir():
        if path.name.isdigit() and int(path.name) not in committed:
            shutil.rmtree(path, ignore_errors=True)


def opener(directory: Path) -> Callable[[], Any]:
    """Return what opens the folder, which must exist.

    Of several processes each has a checkpointer of its own, which waits for no other:
    one that waits for a process whose disk has failed waits for 20 minutes.
    """
    context = ocp.Context()
    # A step counts once its commit file is written: an empty or half-deleted folder
    # never does.
    context.atomicity.mode = type(context.atomicity.mode).COMMIT_FILE
    # The faster format for the small states of CNNs (docs/decisions.md).
    context.array_options.saving.use_ocdbt = False
    index = jax.process_index()
    if jax.process_count() > 1:
        context.multiprocessing_options.primary_host = index
        context.multiprocessing_options.active_processes = {index}
        # It would refuse to make the folder, which is there, for some processes alone.
        setattr(checkpoint_manager, "_create_root_directory", lambda *_: None)  # noqa: B010
    # The type of the policy is not that which Orbax's Checkpointer names.
    decisions: Any = ocp.training.save_decision_policies
    return functools.partial(
        ocp.training.Checkpointer,
        str(directory.absolute()),
        context=context,
        # The loop decides when to save.
        save_decision_policy=decisions.FixedIntervalPolicy(1),
    )


@functools.cache  # Once for a process.
def silence_abandoned_work() -> None:
    """Drop the tracebacks of reads and writes that Orbax abandons when one fails."""
    previous = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        late = str(unraisable.exc_value) == "Event loop is closed"
        if not (late or inspect.iscoroutine(unraisable.object)):
            previous(unraisable)

    sys.unraisablehook = hook


@contextlib.contextmanager
def reading(step: int) -> Iterator[None]:
    """Turn whatever goes wrong while a step is read into DamagedError."""
    try:
        yield
    except Exception as error:
        raise DamagedError(
            f"could not read step {step}: {root_cause(error)}"
        ) from error


def root_cause(error: BaseException) -> str:
    """Return the message of the first cause: Orbax wraps it in its own."""
    number = system_error(error)
    error = _first_cause(error)
    return os.strerror(number) if number else f"{type(error).__name__}: {error}"


def system_error(error: BaseException) -> int | None:
    """Return the system's error number of the first cause, if it has one."""
    error = _first_cause(error)
    # TensorStore hides it in a long text.
    code = re.search(r"os_error_code='(\d+)'", str(error))
    return int(code[1]) if code else getattr(error, "errno", None)


def _first_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error
