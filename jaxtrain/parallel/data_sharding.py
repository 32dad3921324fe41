"""Sharding of batches over the devices."""

import math
from collections.abc import Iterator
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from jaxtrain.parallel.mesh import BATCH_AXES, SPATIAL_AXES
from jaxtrain.problems import Problem


def replicated(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, P())


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of arrays (steps, batch, ...) over the batch axes."""
    return NamedSharding(mesh, P(None, BATCH_AXES))


def num_batch_shards(mesh: Mesh) -> int:
    """Return the number of shards of a batch."""
    return math.prod(mesh.shape[axis] for axis in BATCH_AXES)


def num_image_parts(mesh: Mesh) -> int:
    """Return the number of shards of an image."""
    return math.prod(mesh.shape[axis] for axis in SPATIAL_AXES)


def check_divisible(
    name: str, value: int, divisor: int, reason: str, *fields: str
) -> Iterator[Problem]:
    """Check that `divisor` divides a size; otherwise, yield a problem.

    Args:
      name: Name of the size, for the message.
      value: Size to be sharded.
      divisor: Required divisor of the size.
      reason: Explanation of the divisor; the message shows it after the divisor.
      *fields: Paths of the config fields that determine the size.
    """
    if value % divisor:
        below = max(1, value // divisor) * divisor
        fits = sorted({below, -(-value // divisor) * divisor})
        yield Problem(
            f"{name} = {value} is not divisible by {divisor}, {reason}: use "
            f"{' or '.join(map(str, fits))}",
            fields,
        )


def local_rows(mesh: Mesh, batch_size: int) -> slice:
    """Return the slice of a global batch for the devices of this process.

    The slice is contiguous, so that the order of examples in the global batch does not
    depend on the number of processes.
    """
    indices = batch_sharding(mesh).addressable_devices_indices_map((1, batch_size))
    spans = [index[1].indices(batch_size) for index in indices.values() if index]
    start, stop = min(s[0] for s in spans), max(s[1] for s in spans)
    held = {row for s in spans for row in range(*s)}
    assert len(held) == stop - start, "the examples of a process must be consecutive"
    return slice(start, stop)


def put_batch(mesh: Mesh, local: Any, batch_size: int) -> Any:
    """Assemble global arrays (steps, batch, ...) on devices from each process's arrays.

    Args:
      mesh: Mesh of the devices.
      local: Pytree of this process's arrays, (steps, examples, ...); see `local_rows`.
      batch_size: Number of examples in the global batch.
    """
    sharding = batch_sharding(mesh)
    return jax.tree.map(
        lambda rows: jax.make_array_from_process_local_data(
            sharding, rows, (rows.shape[0], batch_size, *rows.shape[2:])
        ),
        local,
    )
