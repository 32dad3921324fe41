"""Orbax: its files, how it writes and reads, by `handlers`, and how it fails.

Of several processes each gives Orbax the shards that it holds, which become files of
their own in the same Zarr arrays; process 0 alone makes folders, metadata and the
commit file. Where they wait for each other is in `joint`.

Steps, their order and which of them are kept is our own work (`folder`, `store`,
`retention`): Orbax writes and reads the arrays of one folder. Used is its public
interface of version 0: that of version 1 waits for all processes when one saves, and
refuses to read a folder if its JSON has a key that it does not know.
"""

import contextlib
import functools
import inspect
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint import options

from jaxtrain import atomic_file, links
from jaxtrain.checkpoints import handlers
from jaxtrain.checkpoints.folder import remove_failed
from jaxtrain.checkpoints.joint import JointSave, PartError
from jaxtrain.errors import DamagedError
from jaxtrain.json_files.parse import parse
from jaxtrain.regular_file import check_folder, read_bytes
from jaxtrain.system_errors import LIMITS

# The package, as pip knows it.
LIBRARY = "orbax-checkpoint"
# Orbax's JSON in a checkpoint, and the key of ours in it.
METADATA, _INFO = "_CHECKPOINT_METADATA", "custom_metadata"
# The folder of the arrays in a checkpoint.
_STATE = "state"

# Orbax reports routine steps, and the use of the faster non-OCDBT format, as warnings.
# What is wrong with a checkpoint `Checkpoints` says itself, once.
logging.getLogger("absl").setLevel(logging.CRITICAL)
logging.getLogger("asyncio").setLevel(logging.CRITICAL)


def write(
    folder: Path, state: Any, info: dict[str, Any], joint: JointSave | None = None
) -> None:
    """Write a state, and commit it; if that fails, nothing is left.

    Args:
      folder: Folder of the checkpoint, which must not be there.
      state: NumPy arrays; of several processes also JAX arrays, of which the shards
        that this process holds are written.
      info: Values that JSON can hold, which `read_info` reads back.
      joint: Save that other processes take part in. None writes alone.

    Raises:
      OSError: It could not be written for a reason of the system, such as a full disk.
      PartError: Another process could not write its shards.
      Exception: Orbax's own, if it could not be written for another reason.
    """
    try:
        _write(folder, state, info, joint)
    except Exception as error:
        if joint is not None:
            joint.settle()
        remove_failed(folder)
        number = system_error(error)
        if number is None or isinstance(error, PartError):
            raise
        raise OSError(number, os.strerror(number)) from error


def write_shards(folder: Path, state: Any) -> None:
    """Write the shards of a process that is not the first, into a folder that is there.

    Raises:
      Exception: As `write` does.
    """
    _silence_abandoned_work()
    if jax.tree.leaves(state):
        path = epath.Path(folder.absolute() / _STATE)
        handlers.of_shards(primary=0).save(path, args=ocp.args.PyTreeSave(state))


def _write(
    folder: Path, state: Any, info: dict[str, Any], joint: JointSave | None
) -> None:
    _silence_abandoned_work()
    processes = handlers.alone()
    atomicity = options.AtomicityOptions(mode=options.AtomicityMode.COMMIT_FILE)
    # Else, where a folder cannot be made, threads would wait five minutes for it, and
    # Python for them at its end.
    background = options.AsyncOptions(create_directories_asynchronously=False)
    handler, arguments = handlers.of_arrays(), ocp.args.PyTreeSave(state)
    if joint is not None and not joint.alone:
        handler = handlers.LeadingHandler(joint)
        arguments = handlers.LeadingArgs(state)
    together: dict[str, Any] = {
        "multiprocessing_options": processes,
        "atomicity_options": atomicity,
    }
    composite = ocp.CompositeCheckpointHandler(
        composite_options=ocp.CompositeOptions(async_options=background, **together),
        state=handler,
    )
    items = ocp.args.Composite(state=arguments)
    # One for each save: one that has failed is not used again.
    with contextlib.closing(ocp.Checkpointer(composite, **together)) as checkpointer:
        checkpointer.save(
            folder.absolute(),
            args=items,
            custom_metadata=info,
        )


def load(folder: Path, function: Callable[[np.ndarray], Any] | None = None) -> Any:
    """Read a state, in each process by itself.

    Args:
      folder: Folder of the checkpoint.
      function: Function that makes a value of each array: only one array is in memory
        at a time. Defaults to the array.

    Returns:
      NumPy arrays, or values, in nested dicts and lists.

    Raises:
      Exception: Orbax's own, if the state cannot be read.
    """
    return _restore(folder, handlers.of_arrays(function), ocp.args.PyTreeRestore())


def load_shards(folder: Path, abstract_state: Any) -> Any:
    """Read what the devices of this process need of a state.

    Args:
      folder: Folder of the checkpoint.
      abstract_state: Shapes, dtypes and shardings, those of the checkpoint but for the
        shardings.

    Returns:
      JAX arrays like those of `abstract_state`.

    Raises:
      Exception: Orbax's own, if the state cannot be read.
    """

    def arguments(x: Any) -> ocp.ArrayRestoreArgs:
        # In the order in memory that the array has, if it has one.
        ordered = x.format.layout is not None
        sharding = x.format if ordered else x.sharding
        return ocp.ArrayRestoreArgs(
            sharding=sharding, global_shape=x.shape, dtype=x.dtype
        )

    restore_args = jax.tree.map(arguments, abstract_state)
    tree = ocp.args.PyTreeRestore(abstract_state, restore_args=restore_args)
    return _restore(folder, handlers.of_shards(), tree)


def _restore(folder: Path, handler: ocp.PyTreeCheckpointHandler, arguments: Any) -> Any:
    _silence_abandoned_work()
    check_folder(folder)
    path = epath.Path(folder.absolute() / _STATE)
    return handler.restore(path, args=arguments)


def read_info(folder: Path) -> dict[str, Any]:
    """Return the JSON that was saved with a state."""
    return dict(_metadata(folder)[_INFO])


def replace_info(folder: Path, info: dict[str, Any]) -> None:
    """Replace the JSON of a committed checkpoint; a kill leaves the old or the new."""
    path = folder / METADATA
    links.check_inside(folder, folder.parent.parent)
    content = {**_metadata(folder), _INFO: info}
    atomic_file.write(path, json.dumps(content))


def _metadata(folder: Path) -> dict[str, Any]:
    # Orbax writes a metric that is not finite as Python does.
    return parse(read_bytes(folder / METADATA), nan=True)


@functools.cache  # Once for a process.
def _silence_abandoned_work() -> None:
    """Drop the tracebacks of reads and writes that Orbax abandons when one fails."""
    previous = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        late = str(unraisable.exc_value) == "Event loop is closed"
        if not (late or inspect.iscoroutine(unraisable.object)):
            previous(unraisable)

    sys.unraisablehook = hook


@contextlib.contextmanager
def reading(step: int) -> Iterator[None]:
    """Turn whatever goes wrong while a step is read into DamagedError.

    Raises:
      OSError: Too many files are open.
      MemoryError: The memory is used up. Neither says anything of the step.
    """
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        number = system_error(error)
        if number in LIMITS:
            raise OSError(number, os.strerror(number)) from error
        raise DamagedError(
            f"could not read step {step}: {root_cause(error)}"
        ) from error


def root_cause(error: BaseException) -> str:
    """Return the message of the first cause: Orbax wraps it in its own."""
    number = system_error(error)
    error = _first_cause(error)
    if isinstance(error, PartError):
        return str(error)
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
