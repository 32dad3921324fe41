"""`Layout`: shardings and memory layouts of a run's arrays on its mesh."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.experimental.layout import Format
from jax.experimental.layout import Layout as MemoryLayout
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxtrain.dtypes import widen
from jaxtrain.parallel.copies import Arrays, Copies
from jaxtrain.parallel.data_sharding import num_batch_shards
from jaxtrain.parallel.mesh import BATCH_AXES, SPATIAL_AXES, divides
from jaxtrain.trees import by_path, path_name

# Smaller arrays, such as biases, are replicated: a collective would cost more.
MIN_SHARDED_SIZE = 2**12

# Memory order of the dims of kernels (height, width, in, out), by platform; row-major
# elsewhere. cuDNN expects output channels first: with any other order XLA transposes
# every weight and every gradient.
KERNEL_ORDERS: dict[str, tuple[int, ...]] = dict.fromkeys(
    ("gpu", "cuda", "rocm"), (3, 0, 1, 2)
)


@dataclass(frozen=True)
class Layout:
    """Shardings and memory layouts of a run's arrays on its mesh.

    Terms of gradients: *Partial* gradients are not yet reduced over devices, for one
    micro-batch or summed over micro-batches. *Summed* gradients are summed over devices
    and micro-batches, and sharded. *Mean* gradients are summed gradients divided by the
    number of micro-batches and the loss scale. *All-reduced* gradients have the shapes
    of partial gradients, for one micro-batch.

    Attributes:
      mesh: Mesh of the devices.
      split_dims: Dim of each array, by path, that is sharded over the `model` axis, as
        a negative index. None does not shard the array.
      shard_params: Whether parameters are sharded over the `fsdp` axis (ZeRO stage 3,
        arXiv:1910.02054), in addition to optimizer state and averages (stage 1).
      copies: Weights that are trained as per-device copies. None disables copies.
      grouped: Paths of statistics whose first dim is sharded like the batch.
      kernel_order: Dims of kernels from major to minor in memory. None means
        row-major.
      optimizer: Optimizer, for `optax.tree_map_params` to find parameter-like arrays in
        its state.
      sharded_as: State field whose sharding an array of `extras` follows, by transform
        and key (`StepTransform.sharded_as`); other arrays are replicated.
      annotations: PartitionSpecs of annotated arrays of the model, by path.
    """

    mesh: Mesh
    split_dims: Mapping[str, int | None]
    shard_params: bool = True
    copies: Copies | None = None
    grouped: frozenset[str] = frozenset()
    kernel_order: tuple[int, ...] | None = None
    optimizer: optax.GradientTransformation = field(default_factory=optax.identity)
    sharded_as: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    annotations: Mapping[str, P] = field(default_factory=dict)

    @property
    def platform(self) -> str:
        """Platform of the devices, such as `gpu`; it may differ from JAX's default."""
        return self.mesh.devices.flat[0].platform

    @property
    def cpus(self) -> Mesh | None:
        """The mesh if it consists of CPUs and shards only the batch, else None."""
        shards_batch_only = self.mesh.size == num_batch_shards(self.mesh)
        return self.mesh if shards_batch_only and self.platform == "cpu" else None

    def state(self, state: Any) -> Any:
        """Return the shardings of a full TrainState."""
        as_moments = partial(self._sharded_as, "opt_state")
        opt_state = optax.tree_map_params(
            lambda params: jax.eval_shape(self.optimizer.init, params),
            as_moments,
            state.opt_state,
            transform_non_params=self._replicated,
            is_leaf=lambda of_params: True,
        )
        return replace(
            state,
            step=self._replicated(state.step),
            params=self._sharded_as("params", state.params),
            model_state=self._sharded_as("model_state", state.model_state),
            opt_state=opt_state,
            extras={n: self.extra(n, extra) for n, extra in state.extras.items()},
        )

    def extra(self, name: str, extra: Mapping[str, Any]) -> dict[str, Any]:
        """Return the shardings of the extra arrays of a step transform."""
        kinds = self.sharded_as.get(name, {})
        return {
            key: self._sharded_as(kinds[key], tree)
            if key in kinds
            else jax.tree.map(self._replicated, tree)
            for key, tree in extra.items()
        }

    def formats(self, state: Any) -> Any:
        """Return the shardings and memory layouts of a full TrainState."""
        return self._formats(state, self.state(state))

    def weights(self, weights: Any) -> Any:
        """Return the shardings and memory layouts of the weights of a teacher."""
        shardings = self._shardings(weights, shared=self.shard_params)
        return self._formats(weights, shardings)

    def _formats(self, arrays: Any, shardings: Any) -> Any:
        return jax.tree.map(
            lambda x, sharding: Format(self._order_of(x), sharding),
            arrays,
            shardings,
        )

    def flat(self, x: jax.Array) -> jax.Array:
        """Flatten an array in its memory order, inside jit."""
        order = self._order_of(x)
        return (x.transpose(order.major_to_minor) if order else x).reshape(-1)

    def gather_params(self, params: Any) -> Any:
        """All-gather parameters over the `fsdp` axis, inside jit."""
        return self._constrain(params, shared=False)

    def gather_extra(self, name: str, extra: Mapping[str, Any]) -> dict[str, Any]:
        """All-gather the sharded extra arrays of a transform, inside jit."""
        kinds = self.sharded_as.get(name, {})
        gathered = {
            key: self.gather_params(extra[key]) for key in kinds if key in extra
        }
        return {**extra, **gathered}

    def trained_params(self, params: Any) -> Any:
        """All-gather parameters and make their per-device copies, inside jit."""

        def copy(copies: Copies, weights: Arrays) -> Arrays:
            return copies.make(weights, self._specs(weights, shared=self.shard_params))

        return self._map_by_kind(params, copy, self.gather_params)

    def shard_grads(self, grads: Any) -> Any:
        """Constrain the sharding of partial gradients, inside jit.

        Gradients are sharded; gradients of per-device copies stay on their device.
        """

        def own(copies: Copies, grads: Arrays) -> Arrays:
            return copies.place(grads, self._specs(_row_shapes(grads), shared=False))

        return self._map_by_kind(grads, own, partial(self._constrain, shared=True))

    def reduce_grads(self, grads: Any) -> Any:
        """Reduce partial gradients of per-device copies over devices, inside jit."""

        def add_up(copies: Copies, grads: Arrays) -> Arrays:
            specs = self._specs(_row_shapes(grads), shared=True)
            return self._constrain(copies.sum(grads, specs), shared=True)

        return self._map_by_kind(grads, add_up, lambda summed: summed)

    def all_reduce_grads(self, grads: Any) -> Any:
        """All-reduce partial gradients over devices, inside jit; shapes stay the same.

        Methods that perturb the trained parameters, such as SAM, need these gradients.
        """

        def everywhere(copies: Copies, grads: Arrays) -> Arrays:
            specs = self._specs(_row_shapes(grads), shared=False)
            return copies.sum_in_place(grads, specs)

        return self._map_by_kind(grads, everywhere, lambda reduced: reduced)

    def all_reduced_norm(self, grads: Any) -> jax.Array:
        """Return the norm of all-reduced gradients, in float32 or wider."""

        def squares(x: jax.Array) -> jax.Array:
            return jnp.sum(jnp.square(widen(x)))

        def copies_part(copies: Copies, grads: Arrays) -> Arrays:
            del copies  # The gradients of all copies are equal.
            return {n: squares(x) / x.shape[0] for n, x in grads.items()}

        def others_fn(grads: Any) -> Any:
            return jax.tree.map(squares, grads)

        parts = jax.tree.leaves(self._map_by_kind(grads, copies_part, others_fn))
        return jnp.sqrt(sum(parts, jnp.float32(0)))

    def grad_specs(self, grads: Any) -> Any:
        """Return the PartitionSpec of each summed or mean gradient.

        Mesh axes of size 1 are omitted.
        """

        def spec(sharding: NamedSharding) -> P:
            sizes = self.mesh.shape
            return P(*(a if a and sizes[a] > 1 else None for a in sharding.spec))

        return jax.tree.map(spec, self._shardings(grads, shared=True))

    def images(self, images: Any) -> Any:
        """Shard images, activations or their gradients, inside jit."""
        shardings = self.image_shardings(images)
        return jax.lax.with_sharding_constraint(images, shardings)

    def whole_images(self, images: jax.Array) -> jax.Array:
        """Shard images (batch, ...) only over the batch axes, inside jit."""
        rows = NamedSharding(self.mesh, P(BATCH_AXES))
        return jax.lax.with_sharding_constraint(images, rows)

    def image_shardings(self, images: Any) -> Any:
        """Return the shardings of images (B, H, W, C) or activations.

        Arrays of rank 4 are sharded over batch and space, other ranks over the batch.
        """

        def sharding(x: jax.Array) -> NamedSharding:
            return NamedSharding(self.mesh, _image_spec(x.ndim))

        return jax.tree.map(sharding, images)

    def _constrain(self, tree: Any, *, shared: bool) -> Any:
        """Constrain a tree to its shardings, with the `fsdp` axis if `shared`."""
        shardings = self._shardings(tree, shared=shared)
        return jax.lax.with_sharding_constraint(tree, shardings)

    def _map_by_kind(
        self,
        tree: Any,
        copied_fn: Callable[[Copies, Arrays], Arrays],
        others_fn: Callable[[Any], Any],
    ) -> Any:
        """Apply `copied_fn` to arrays with per-device copies, `others_fn` to others."""
        if self.copies is None:
            return others_fn(tree)
        flat, treedef = by_path(tree), jax.tree.structure(tree)
        copied = {n: x for n, x in flat.items() if n in self.copies.paths}
        others = {n: x for n, x in flat.items() if n not in copied}
        results = {**copied_fn(self.copies, copied), **others_fn(others)}
        return treedef.unflatten(results[name] for name in flat)

    def _sharded_as(self, field: str, tree: Any) -> Any:
        """Return the shardings of arrays that are sharded like a TrainState field."""
        shared = field == "opt_state" or (field == "params" and self.shard_params)
        return self._shardings(tree, shared=shared)

    def _replicated(self, x: Any) -> NamedSharding:
        return NamedSharding(self.mesh, P(*[None] * len(x.shape)))

    def _order_of(self, x: Any) -> MemoryLayout | None:
        order = self.kernel_order if x.ndim == 4 else None
        return None if order is None else MemoryLayout(order)

    def _specs(self, arrays: Arrays, *, shared: bool) -> dict[str, P]:
        return {n: self._spec(n, x.shape, shared=shared) for n, x in arrays.items()}

    def _shardings(self, tree: Any, *, shared: bool) -> Any:
        def sharding(path: Any, leaf: Any) -> NamedSharding:
            spec = self._spec(path_name(path), leaf.shape, shared=shared)
            return NamedSharding(self.mesh, spec)

        return jax.tree_util.tree_map_with_path(sharding, tree)

    def _spec(self, path: str, shape: tuple[int, ...], *, shared: bool) -> P:
        annotated = self.annotations.get(path)
        if annotated is not None and divides(annotated, shape, self.mesh.shape):
            return P(*(a if shared or a != "fsdp" else None for a in annotated))
        axes: list[Any] = [None] * len(shape)
        dim, model = self.split_dims.get(path), self.mesh.shape["model"]
        if dim is not None and len(shape) >= -dim and shape[dim] % model == 0:
            axes[dim] = "model"
        if path in self.grouped:
            axes[0] = BATCH_AXES
        if shared and math.prod(shape) >= MIN_SHARDED_SIZE:
            fsdp = self.mesh.shape["fsdp"]
            free = [i for i, n in enumerate(shape) if not axes[i] and n % fsdp == 0]
            if free:
                axes[max(free, key=lambda i: shape[i])] = "fsdp"
        return P(*axes)


def _row_shapes(copies: Arrays) -> Any:
    """Return the shape and dtype of a single copy of each array."""
    return {n: jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for n, x in copies.items()}


def _image_spec(ndim: int) -> P:
    """Return the PartitionSpec of images (B, H, W, C), or of arrays of another rank."""
    return P(BATCH_AXES, *SPATIAL_AXES) if ndim == 4 else P(BATCH_AXES)
