"""Layers with per-device copies of their weights."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
from flax import nnx
from jax.sharding import Mesh, PartitionSpec as P

from jaxtrain.parallel.mesh import BATCH_AXES


class Copied(nnx.Module):
    """A layer whose parameters may be per-device copies, with a leading dim of devices.

    The outputs for an example do not depend on other examples, so each device computes
    outputs and gradients for its shard of a batch without communication (see
    `jaxtrain.parallel.copies`).

    Attributes:
      mesh: Mesh of the copies; None if parameters are not copied.
    """

    mesh: Mesh | None = None

    def with_own_copy(self, function: Callable[[Any, jax.Array], Any], x: Any) -> Any:
        """Compute `function(self, x)`, on each device with its copy of the weights."""
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
    """Paths of the parameters that have per-device copies after `use_copies`."""
    return frozenset(
        "/".join(map(str, (*path, *name)))
        for path, layer in _copied(model)
        for name, _ in nnx.to_flat_state(nnx.state(layer))
    )


def use_copies(model: nnx.Module, mesh: Mesh) -> None:
    """Switch the `Copied` layers of a model to per-device copies on `mesh`."""
    for _, layer in _copied(model):
        layer.mesh = mesh


def _copied(model: nnx.Module) -> Iterator[tuple[tuple[Any, ...], Copied]]:
    """Yield (path, layer) of the `Copied` layers whose only state is parameters.

    Other state, for example of a custom quantizer, is shared by all devices.
    """
    for path, layer in nnx.iter_modules(model):
        if isinstance(layer, Copied):
            _, other = nnx.state(layer, nnx.Param, ...)
            if not nnx.to_flat_state(other):
                yield path, layer
