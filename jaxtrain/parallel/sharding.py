"""Where arrays lie: rules from a path in the state to mesh axes, and batch sharding."""

import re
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxtrain.errors import UserError

# The first rule whose pattern is found in the path of an array gives its spec. A path
# is that of the state's tree, such as `params/conv1/kernel`; a rule for a parameter
# also catches its optimizer moments, whose paths end in the same way.
Rules = Sequence[tuple[str, P]]
RULES: Rules = ((r".*", P()),)


def infer(tree: Any, mesh: Mesh, rules: Rules = RULES) -> Any:
    """Return the tree of NamedShardings that `rules` give to `tree`."""

    def sharding(path: Any, _: Any) -> NamedSharding:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        for pattern, spec in rules:
            if re.search(pattern, name):
                return NamedSharding(mesh, spec)
        raise AssertionError(f"no sharding rule matches {name}")

    return jax.tree_util.tree_map_with_path(sharding, tree)


def replicated(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, P())


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of (steps, batch, ...) arrays: the batch over `data`."""
    return NamedSharding(mesh, P(None, "data"))


def check_batch_size(name: str, batch_size: int, mesh: Mesh) -> None:
    """Raise UserError if the devices cannot share a batch evenly."""
    data = mesh.shape["data"]
    if batch_size % data:
        fits = sorted(
            {max(1, batch_size // data) * data, (batch_size // data + 1) * data}
        )
        raise UserError(
            f"{name} = {batch_size} is not divisible by the {data} devices of the data "
            f"axis: {' or '.join(map(str, fits))} would fit"
        )


def local_rows(mesh: Mesh, batch_size: int) -> slice:
    """Return the rows of a global batch that this process's devices hold.

    They are consecutive, so that the global array is the same whatever the number of
    processes.
    """
    indices = batch_sharding(mesh).addressable_devices_indices_map((1, batch_size))
    spans = [index[1].indices(batch_size) for index in indices.values() if index]
    start, stop = min(s[0] for s in spans), max(s[1] for s in spans)
    held = {row for s in spans for row in range(*s)}
    assert len(held) == stop - start, "a process's devices must hold consecutive rows"
    return slice(start, stop)


def put_batch(mesh: Mesh, local: dict[str, np.ndarray], batch_size: int) -> Any:
    """Place this process's rows, shaped (steps, rows, ...), into global arrays."""
    sharding = batch_sharding(mesh)
    return {
        name: jax.make_array_from_process_local_data(
            sharding, rows, (rows.shape[0], batch_size, *rows.shape[2:])
        )
        for name, rows in local.items()
    }
