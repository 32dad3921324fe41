"""Writing and reading of a checkpoint with Orbax, and Orbax's errors.

In a run of several processes, each process passes its shards to Orbax, which writes
them as chunks of shared Zarr arrays. Process 0 creates the directories, the metadata
and the commit file. Module `joint` synchronizes the processes.

Orbax does not list or delete checkpoints: see `folder`, `store` and `retention`.
The API is Orbax's version 0, because a save with version 1 waits for all processes, and
version 1 rejects directories with unknown keys in their JSON.
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

# Package name for `pip install`.
LIBRARY = "orbax-checkpoint"
# Orbax's JSON file in a checkpoint, and the key of the manifest in the JSON.
METADATA, _INFO = "_CHECKPOINT_METADATA", "custom_metadata"
# Name of a checkpoint's subdirectory with the arrays.
_STATE = "state"

# Orbax warns about routine events and about the non-OCDBT format, which is faster.
# `Checkpoints` reports errors.
logging.getLogger("absl").setLevel(logging.CRITICAL)
logging.getLogger("asyncio").setLevel(logging.CRITICAL)


def write(
    folder: Path, state: Any, info: dict[str, Any], joint: JointSave | None = None
) -> None:
    """Write and commit a checkpoint; remove its directory after a failure.

    Args:
      folder: New directory of the checkpoint.
      state: Tree of NumPy arrays; with several processes also JAX arrays, of which this
        process writes its shards.
      info: Manifest of the checkpoint.
      joint: Coordinator of the save by several processes. None for a single process.

    Raises:
      OSError: A system error, such as a full disk.
      PartError: Another process could not write its shards.
      Exception: Orbax raised another error.
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
    """Write the shards of a process other than 0 into an existing directory.

    Raises:
      Exception: Errors as in `write`.
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
    # With asynchronous creation, threads would wait five minutes for a directory that
    # cannot be created, and Python joins these threads at exit.
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
    # A new checkpointer per save: after a failure a checkpointer cannot be reused.
    with contextlib.closing(ocp.Checkpointer(composite, **together)) as checkpointer:
        checkpointer.save(
            folder.absolute(),
            args=items,
            custom_metadata=info,
        )


def load(folder: Path, function: Callable[[np.ndarray], Any] | None = None) -> Any:
    """Read a full state in this process.

    Args:
      folder: Directory of the checkpoint.
      function: Function applied to each array when read, so that only one array is in
        memory at a time. Defaults to the identity.

    Returns:
      NumPy arrays, or results of `function`, in nested dicts and lists.

    Raises:
      Exception: Orbax cannot read the checkpoint.
    """
    return _restore(folder, handlers.of_arrays(function), ocp.args.PyTreeRestore())


def load_shards(folder: Path, abstract_state: Any) -> Any:
    """Read the shards of a state for the devices of this process.

    Args:
      folder: Directory of the checkpoint.
      abstract_state: Tree of `jax.ShapeDtypeStruct` with the shapes and dtypes of the
        checkpoint and the shardings of the result.

    Returns:
      JAX arrays in the structure of `abstract_state`.

    Raises:
      Exception: Orbax cannot read the checkpoint.
    """

    def arguments(x: Any) -> ocp.ArrayRestoreArgs:
        # A JAX `Format` specifies the memory layout in addition to the sharding.
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
    """Read the manifest of a checkpoint, without verification."""
    return dict(_metadata(folder)[_INFO])


def replace_info(folder: Path, info: dict[str, Any]) -> None:
    """Replace the manifest of a committed checkpoint atomically."""
    path = folder / METADATA
    links.check_inside(folder, folder.parent.parent)
    content = {**_metadata(folder), _INFO: info}
    atomic_file.write(path, json.dumps(content))


def _metadata(folder: Path) -> dict[str, Any]:
    # Orbax, like Python's json, writes non-finite metrics as NaN and Infinity.
    return parse(read_bytes(folder / METADATA), nan=True)


@functools.cache  # Wrap the hook only once.
def _silence_abandoned_work() -> None:
    """Silence tracebacks of reads and writes that Orbax abandons after a failure."""
    previous = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        late = str(unraisable.exc_value) == "Event loop is closed"
        if not (late or inspect.iscoroutine(unraisable.object)):
            previous(unraisable)

    sys.unraisablehook = hook


@contextlib.contextmanager
def reading(step: int) -> Iterator[None]:
    """Context manager: convert errors of reading a checkpoint to DamagedError.

    Raises:
      OSError: Too many open files, which does not mean damage.
      MemoryError: Out of memory, which does not mean damage.
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
    """Message of the original error, from which Orbax raised `error`."""
    number = system_error(error)
    error = _first_cause(error)
    if isinstance(error, PartError):
        return str(error)
    return os.strerror(number) if number else f"{type(error).__name__}: {error}"


def system_error(error: BaseException) -> int | None:
    """Return the errno of the original error, or None if it is not a system error."""
    error = _first_cause(error)
    # TensorStore reports the errno only in the text of its exception.
    code = re.search(r"os_error_code='(\d+)'", str(error))
    return int(code[1]) if code else getattr(error, "errno", None)


def _first_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error
