"""Per-device copies of weights, so that gradients can be reduced explicitly.

For replicated weights, JAX returns only the gradient of the global batch, for which XLA
inserts the all-reduce, in the layer's compute dtype. Gradients with respect to
per-device copies remain local, so that they can be accumulated over micro-batches and
then reduced once, in any dtype.
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
    """Creates per-device copies of weights, and reduces the gradients of the copies.

    Copies are stacked along a leading dim, which is sharded over the batch axes. The
    other dims remain sharded over the `model` axis. All arguments of methods are dicts
    by path; `specs` contains the PartitionSpecs of the weights.

    Attributes:
      mesh: Mesh of the devices.
      paths: Paths of the weights that are copied.
      dtype: Dtype of the copied kernels; bfloat16 halves the all-gathered bytes of
        float32 parameters. Copies of other weights have the dtype of the weight.
      sum_dtype: Dtype in which gradients are reduced over the devices.
    """

    mesh: Mesh
    paths: frozenset[str]
    dtype: Any
    sum_dtype: Any

    def make(self, weights: Arrays, specs: Mapping[str, P]) -> Arrays:
        """Return per-device copies of weights. Call inside jit."""

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
        """Constrain the sharding of copies to one copy per device. Call inside jit."""
        shardings = {
            n: NamedSharding(self.mesh, s) for n, s in _on_copies(specs).items()
        }
        return jax.lax.with_sharding_constraint(copies, shardings)

    def sum(self, grads: Arrays, specs: Mapping[str, P]) -> Arrays:
        """Sum the gradients of copies over the devices. Call inside jit.

        The sums have the dtype of the gradients and the sharding of the weights.
        """
        return self._on_each(self._reduce, specs, _on_copies(specs), specs)(grads)

    def sum_in_place(self, grads: Arrays, specs: Mapping[str, P]) -> Arrays:
        """All-reduce the gradients of copies: each becomes the sum. Call inside jit."""

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
        """Map a function over the local shards of arrays, with `jax.shard_map`.

        All mesh axes are manual, because XLA:CPU (jaxlib 0.10.2) aborts on bfloat16
        sums if an axis is auto.

        Args:
          function: Function (path, shard, spec of the weight) -> new shard.
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
