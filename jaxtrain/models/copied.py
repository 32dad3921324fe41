"""Layers that a device can compute with a copy of its own of their weights."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
from flax import nnx
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from jaxtrain.parallel.mesh import BATCH_AXES


class Copied(nnx.Module):
    """A layer whose parameters may be copies, with a leading dim of devices.

    Each example's output is that of the example alone, so that a device computes the
    outputs of its part of a batch, and their gradients, by itself
    (`jaxtrain.parallel.copies` says what for).

    Attributes:
      mesh: of the devices, if the parameters are copies; None: they are not.
    """

    mesh: Mesh | None = None

    def with_own_copy(self, function: Callable[[Any, jax.Array], Any], x: Any) -> Any:
        """Return `function(self, x)`, computed on each device with its own copy."""
        if self.mesh is None:
            return function(self, x)
        graphdef, copies = nnx.split(self)

        def on_device(copies: Any, x: jax.Array) -> Any:
            own = jax.tree.map(lambda copy: copy[0], copies)
            return function(nnx.merge(graphdef, own), x)

        over_batch = P(BATCH_AXES)
        return jax.shard_map(
            on_device,
            mesh=self.mesh,
            in_specs=(over_batch, over_batch),
            out_specs=over_batch,
            axis_names=set(BATCH_AXES),
            check_vma=False,
        )(copies, x)


def copied_paths(model: nnx.Module) -> frozenset[str]:
    """Return the paths of the parameters that may be copies."""
    return frozenset(
        "/".join(map(str, (*path, *name)))
        for path, layer in _copied(model)
        for name, _ in nnx.to_flat_state(nnx.state(layer))
    )


def use_copies(model: nnx.Module, mesh: Mesh) -> None:
    """Make the layers of a model take their parameters as copies on `mesh`."""
    for _, layer in _copied(model):
        layer.mesh = mesh


def _copied(model: nnx.Module) -> Iterator[tuple[tuple[Any, ...], Copied]]:
    """Yield the layers whose arrays are all parameters, and their paths.

    Other state, such as that of a user's own quantiser, is one for all devices.
    """
    for path, layer in nnx.iter_modules(model):
        if isinstance(layer, Copied):
            _, other = nnx.state(layer, nnx.Param, ...)
            if not nnx.to_flat_state(other):
                yield path, layer
