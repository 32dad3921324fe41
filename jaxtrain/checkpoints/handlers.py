"""Orbax handlers, which write and read the arrays of a tree.

A single process writes NumPy arrays. In a run of several processes, each process
writes its shards as chunks of shared Zarr arrays, with Orbax's `ArrayHandler`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint import options

from jaxtrain.checkpoints.joint import JointSave


def alone(primary: int | None = None) -> options.MultiprocessingOptions:
    """Orbax options that disable Orbax's barriers between processes.

    If the disk of a process fails, the other processes would wait at a barrier for 20
    minutes.

    Args:
      primary: Index of the process that writes the metadata. Defaults to this process.
    """
    if jax.process_count() == 1:
        return options.MultiprocessingOptions()
    index = jax.process_index()
    return options.MultiprocessingOptions(
        primary_host=index if primary is None else primary, active_processes={index}
    )


def of_arrays(
    function: Callable[[np.ndarray], Any] | None = None,
) -> ocp.PyTreeCheckpointHandler:
    """Create an Orbax handler for trees of NumPy arrays.

    Args:
      function: Function applied to each array when read, so that only one array is in
        memory at a time. Defaults to the identity.
    """
    arrays = _numpy_handler() if function is None else _ReducingHandler(function)
    return _tree_handler(alone(), (np.ndarray, arrays))


def of_shards(primary: int | None = None) -> ocp.PyTreeCheckpointHandler:
    """Create an Orbax handler for trees of NumPy arrays and sharded JAX arrays.

    Args:
      primary: Index of the process that writes the metadata. Defaults to this process.
    """
    return _tree_handler(
        alone(primary), (jax.Array, _ShardHandler()), (np.ndarray, _numpy_handler())
    )


def _tree_handler(
    processes: options.MultiprocessingOptions, *types: tuple[type, Any]
) -> ocp.PyTreeCheckpointHandler:
    # Zarr 3 without OCDBT is faster for the small states of CNNs (docs/decisions.md).
    return ocp.PyTreeCheckpointHandler(
        use_ocdbt=False,
        use_zarr3=True,
        type_handler_registry=ocp.type_handlers.create_type_handler_registry(*types),
        multiprocessing_options=processes,
    )


def _numpy_handler() -> ocp.type_handlers.NumpyHandler:
    # The arrays are already copies (`snapshot.take`), so Orbax need not copy them.
    return ocp.type_handlers.NumpyHandler(deepcopy_host_arrays=False)


class _ReducingHandler(ocp.type_handlers.NumpyHandler):
    """Applies a function to each restored array, with one array in memory at a time."""

    def __init__(self, function: Callable[[np.ndarray], Any]):
        super().__init__()
        self._function = function

    async def deserialize(self, infos: Any, args: Any = None) -> list[Any]:
        reduced = []
        for info, arg in zip(infos, args, strict=True):
            (array,) = await super().deserialize([info], [arg])
            reduced.append(self._function(array))
        return reduced


class _ShardHandler(ocp.type_handlers.ArrayHandler):
    """Writes the first replica of each shard of an array.

    Any number of processes can restore the array, as a NumPy array or with any
    sharding.
    """

    def __init__(self) -> None:
        super().__init__(use_replica_parallel=False, enable_write_sharding_file=False)

    def typestr(self) -> str:
        return "np.ndarray"


class LeadingHandler(ocp.CheckpointHandler):
    """Handler in process 0 that coordinates a save with the other processes."""

    def __init__(self, joint: JointSave):
        self._shards, self._joint = of_shards(), joint
        # A single process can restore checkpoints with this handler type.
        self.typestr = ocp.PyTreeCheckpointHandler.typestr

    def save(self, directory: epath.Path, args: "LeadingArgs") -> None:
        self._joint.start()
        self._shards.save(directory, args=ocp.args.PyTreeSave(args.tree))
        self._joint.join()

    def restore(self, directory: epath.Path, args: "LeadingArgs | None" = None) -> Any:
        raise NotImplementedError

    def finalize(self, directory: epath.Path) -> None:
        self._shards.finalize(directory)


@ocp.args.register_with_handler(LeadingHandler, for_save=True, for_restore=True)
@dataclasses.dataclass
class LeadingArgs(ocp.args.CheckpointArgs):
    """Arguments of `LeadingHandler.save`."""

    tree: Any
