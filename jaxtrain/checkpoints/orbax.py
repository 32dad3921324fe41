"""All that is known of Orbax: its files, how it writes and reads, and how it fails.

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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint import options

from jaxtrain import atomic_file, links
from jaxtrain.checkpoints.folder import remove_failed
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


def write(folder: Path, state: Any, info: dict[str, Any]) -> None:
    """Write a state, and commit it; if that fails, nothing is left.

    Args:
      folder: Folder of the checkpoint, which must not be there.
      info: Values that JSON can hold, which `read_info` reads back.

    Raises:
      OSError: It could not be written for a reason of the system, such as a full disk.
      Exception: Orbax's own, if it could not be written for another reason.
    """
    try:
        _write(folder, state, info)
    except Exception as error:
        remove_failed(folder)
        number = system_error(error)
        if number is None:
            raise
        raise OSError(number, os.strerror(number)) from error


def _write(folder: Path, state: Any, info: dict[str, Any]) -> None:
    _silence_abandoned_work()
    processes = _alone()
    atomicity = options.AtomicityOptions(mode=options.AtomicityMode.COMMIT_FILE)
    # Else, where a folder cannot be made, threads would wait five minutes for it, and
    # Python for them at its end.
    background = options.AsyncOptions(create_directories_asynchronously=False)
    together: dict[str, Any] = {
        "multiprocessing_options": processes,
        "atomicity_options": atomicity,
    }
    composite = ocp.CompositeCheckpointHandler(
        composite_options=ocp.CompositeOptions(async_options=background, **together),
        state=_handler(processes),
    )
    arguments = ocp.args.Composite(state=ocp.args.PyTreeSave(state))
    # One for each save: one that has failed is not used again.
    with contextlib.closing(ocp.Checkpointer(composite, **together)) as checkpointer:
        checkpointer.save(folder.absolute(), args=arguments, custom_metadata=info)


def load(folder: Path) -> Any:
    """Read a state, in each process by itself.

    Returns:
      NumPy arrays, in nested dicts and lists.

    Raises:
      Exception: Orbax's own, if the state cannot be read.
    """
    _silence_abandoned_work()
    check_folder(folder)
    path = epath.Path(folder.absolute() / _STATE)
    return _handler(_alone()).restore(path, args=ocp.args.PyTreeRestore())


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


def _handler(processes: options.MultiprocessingOptions) -> ocp.PyTreeCheckpointHandler:
    # Nobody writes to the arrays meanwhile: Orbax need not copy them once more.
    arrays = ocp.type_handlers.NumpyHandler(deepcopy_host_arrays=False)
    # The faster format for the small states of CNNs (docs/decisions.md).
    return ocp.PyTreeCheckpointHandler(
        use_ocdbt=False,
        use_zarr3=True,
        type_handler_registry=ocp.type_handlers.create_type_handler_registry(
            (np.ndarray, arrays)
        ),
        multiprocessing_options=processes,
    )


def _alone() -> options.MultiprocessingOptions:
    """Let a process of several work by itself.

    One that waits for a process whose disk has failed waits for 20 minutes.
    """
    if jax.process_count() == 1:
        return options.MultiprocessingOptions()
    index = jax.process_index()
    return options.MultiprocessingOptions(primary_host=index, active_processes={index})


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
