"""Per-device copies of weights, so that gradients can be reduced explicitly.

For replicated weights JAX exposes only the gradient of the global batch: XLA inserts
the all-reduce, in the compute dtype of the layer. Gradients with respect to per-device
copies stay local: they can be cast, accumulated over micro-batches, and reduced once,
in a dtype of choice.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from jaxtrain.dtypes import widen
from jaxtrain.parallel.mesh import BATCH_AXES

Arrays = dict[str, jax.Array]


@dataclass(frozen=True)
class Copies:
    """Creation of per-device copies of weights, and reduction of their gradients.

    Copies have a leading dim over the batch axes, with one copy per device. The other
    dims keep their sharding over the `model` axis. In all methods, `specs` are the
    PartitionSpecs of the weights, by path.

    Attributes:
      mesh: Mesh of the devices.
      paths: Paths of the arrays of the model that are copied.
      dtype: Dtype of the copies of kernels: bfloat16 halves the bytes of the all-gather
        of float32 parameters. Other arrays keep their dtype.
      sum_dtype: Dtype in which collectives transfer and sum gradients.
    """

    mesh: Mesh
    paths: frozenset[str]
    dtype: Any
    sum_dtype: Any

    def make(self, weights: Arrays, specs: Mapping[str, P]) -> Arrays:
        """Return per-device copies of weights, inside jit."""

        @jax.custom_vjp
        def copy(weights: Arrays) -> Arrays:
            return self._on_each(self._gather, specs, specs, _on_copies(specs))(weights)

        def backward(_: None, grads: Arrays) -> tuple[Arrays]:
            summed = self.sum(widen(grads), specs)
            return (
                {name: summed[name].astype(x.dtype) for name, x in weights.items()},
            )

        copy.defvjp(lambda weights: (copy(weights), None), backward)
        return copy(weights)

    def place(self, copies: Arrays, specs: Mapping[str, P]) -> Arrays:
        """Constrain each copy to its device, inside jit."""
        shardings = {
            n: NamedSharding(self.mesh, s) for n, s in _on_copies(specs).items()
        }
        return jax.lax.with_sharding_constraint(copies, shardings)

    def sum(self, grads: Arrays, specs: Mapping[str, P]) -> Arrays:
        """Reduce the gradients of copies over the devices, inside jit.

        Gradients keep their dtype. The result is sharded like the weights.
        """
        return self._on_each(self._reduce, specs, _on_copies(specs), specs)(grads)

    def sum_in_place(self, grads: Arrays, specs: Mapping[str, P]) -> Arrays:
        """All-reduce the gradients of copies, inside jit; all copies get the sum."""

        def everywhere(name: str, grad: jax.Array, spec: P) -> jax.Array:
            del name, spec
            summed = jax.lax.psum(grad.astype(self.sum_dtype), BATCH_AXES)
            return summed.astype(grad.dtype)

        return self._on_each(everywhere, specs, _on_copies(specs), _on_copies(specs))(
            grads
        )

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
        """Map a function over the local shards of arrays by `shard_map`.

        All mesh axes are manual, not only the batch axes: XLA:CPU (jaxlib 0.10.2)
        aborts on a bfloat16 sum if other axes are auto.

        Args:
          function: Function (name, shard, spec of the weight) -> new shard.
          before: PartitionSpecs of the inputs.
          after: PartitionSpecs of the results.
        """
        return jax.shard_map(
            lambda arrays: {n: function(n, x, specs[n]) for n, x in arrays.items()},
            mesh=self.mesh,
            in_specs=(dict(before),),
            out_specs=dict(after),
        )


def _on_copies(specs: Mapping[str, P]) -> dict[str, P]:
    """Convert PartitionSpecs of weights to PartitionSpecs of their copies."""
    return {
        name: P(BATCH_AXES, *(axis if axis != "fsdp" else None for axis in spec))
        for name, spec in specs.items()
    }
