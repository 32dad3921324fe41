"""Layers with per-device copies of their weights."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
from flax import nnx
from jax.sharding import Mesh, PartitionSpec as P

from jaxtrain.parallel.mesh import BATCH_AXES


class Copied(nnx.Module):
    """A layer whose parameters may be per-device copies, stacked along a leading dim.

    The layer must compute outputs for each example independently of the others, so that
    each device computes outputs and gradients for its shard of the batch without
    communication (see `jaxtrain.parallel.copies`).

    Attributes:
      mesh: Mesh of the devices with copies. None if parameters are not copied.
    """

    mesh: Mesh | None = None

    def with_own_copy(self, function: Callable[[Any, jax.Array], Any], x: Any) -> Any:
        """Compute `function(self, x)`; each device uses its copy of the weights."""
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
    """Paths of the parameters for which `use_copies` enables per-device copies."""
    return frozenset(
        "/".join(map(str, (*path, *name)))
        for path, layer in _copied(model)
        for name, _ in nnx.to_flat_state(nnx.state(layer))
    )


def use_copies(model: nnx.Module, mesh: Mesh) -> None:
    """Enable per-device copies of parameters in the `Copied` layers of a model."""
    for _, layer in _copied(model):
        layer.mesh = mesh


def _copied(model: nnx.Module) -> Iterator[tuple[tuple[Any, ...], Copied]]:
    """Yield (path, layer) for each `Copied` layer that has only parameters as state."""
    for path, layer in nnx.iter_modules(model):
        if isinstance(layer, Copied):
            _, other = nnx.state(layer, nnx.Param, ...)
            if not nnx.to_flat_state(other):
                yield path, layer
