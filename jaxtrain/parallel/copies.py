"""Weights of which each device computes with a copy of its own, to sum its gradients.

Of weights that all devices share, JAX knows only the gradient of the whole batch: XLA
sums the parts of the devices where it likes, in the dtype that the layer computes in.
A gradient with respect to copies is each device's own. It can be cast, added up over
micro-batches, and summed over the devices once, in a dtype of choice.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxtrain.dtypes import widen
from jaxtrain.parallel.mesh import BATCH_AXES

Arrays = dict[str, jax.Array]


@dataclass(frozen=True)
class Copies:
    """How weights become copies, and the gradients of copies those of weights.

    Copies have a leading dim of devices that share a batch, each its own row. What the
    `model` axis splits stays split.

    Attributes:
      mesh: Mesh of the devices.
      paths: Paths of the arrays of the model that are copied.
      dtype: Dtype of the copies of kernels: half the bytes to gather, where it is half
        as wide as the parameters. All else keeps its dtype.
      sum_dtype: Dtype that gradients are sent and summed in.
    """

    mesh: Mesh
    paths: frozenset[str]
    dtype: Any
    sum_dtype: Any

    def make(self, weights: Arrays, specs: Mapping[str, P]) -> Arrays:
        """Return the copies of weights that lie as `specs` say, inside jit."""

        @jax.custom_vjp
        def copy(weights: Arrays) -> Arrays:
            return self._on_each(self._gather, specs, specs, _own(specs))(weights)

        def backward(_: None, grads: Arrays) -> tuple[Arrays]:
            summed = self.sum(widen(grads), specs)
            return (
                {name: summed[name].astype(x.dtype) for name, x in weights.items()},
            )

        copy.defvjp(lambda weights: (copy(weights), None), backward)
        return copy(weights)

    def place(self, copies: Arrays, specs: Mapping[str, P]) -> Arrays:
        """Have copies of whole arrays, inside jit, lie as `specs` say of these."""
        shardings = {n: NamedSharding(self.mesh, s) for n, s in _own(specs).items()}
        return jax.lax.with_sharding_constraint(copies, shardings)

    def sum(self, grads: Arrays, specs: Mapping[str, P]) -> Arrays:
        """Sum the gradients of copies over the devices, inside jit.

        They stay in their own dtype; each device keeps what `specs` leave to it.
        """
        return self._on_each(self._reduce, specs, _own(specs), specs)(grads)

    def sum_in_place(self, grads: Arrays, specs: Mapping[str, P]) -> Arrays:
        """Sum the gradients of copies over the devices, each copy having all of it."""

        def everywhere(name: str, grad: jax.Array, spec: P) -> jax.Array:
            del name, spec
            summed = jax.lax.psum(grad.astype(self.sum_dtype), BATCH_AXES)
            return summed.astype(grad.dtype)

        return self._on_each(everywhere, specs, _own(specs), _own(specs))(grads)

    def _gather(self, name: str, x: jax.Array, spec: P) -> jax.Array:
        if name.endswith("/kernel"):
            x = x.astype(self.dtype)
        if "fsdp" in spec:
            x = jax.lax.all_gather(x, "fsdp", axis=spec.index("fsdp"), tiled=True)
        return x[None]

    def _reduce(self, name: str, grad: jax.Array, spec: P) -> jax.Array:
        dtype, grad = grad.dtype, grad[0].astype(self.sum_dtype)
        if "fsdp" not in spec:
            return jax.lax.psum(grad, BATCH_AXES).astype(dtype)
        dim = spec.index("fsdp")
        grad = jax.lax.psum_scatter(grad, "fsdp", scatter_dimension=dim, tiled=True)
        return jax.lax.psum(grad, "data").astype(dtype)

    def _on_each(
        self,
        function: Callable[[str, jax.Array, P], jax.Array],
        specs: Mapping[str, P],
        before: Mapping[str, P],
        after: Mapping[str, P],
    ) -> Callable[[Arrays], Arrays]:
        """Apply a function, on each device, to what it holds of each array.

        All axes are named, of which two would do: XLA:CPU (jaxlib 0.10.2) aborts on a
        bfloat16 sum where it goes on to split along others by itself.
        """
        return jax.shard_map(
            lambda arrays: {n: function(n, x, specs[n]) for n, x in arrays.items()},
            mesh=self.mesh,
            in_specs=(dict(before),),
            out_specs=dict(after),
        )


def _own(specs: Mapping[str, P]) -> dict[str, P]:
    """Return where the copies lie of arrays that lie as `specs` say."""
    return {
        name: P(BATCH_AXES, *(axis if axis != "fsdp" else None for axis in spec))
        for name, spec in specs.items()
    }
