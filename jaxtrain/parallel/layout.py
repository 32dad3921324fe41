"""`Layout`: shardings and memory layouts of a run's arrays on its mesh."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.experimental.layout import Format, Layout as MemoryLayout
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

from jaxtrain.dtypes import widen
from jaxtrain.parallel.copies import Arrays, Copies
from jaxtrain.parallel.data_sharding import num_batch_shards
from jaxtrain.parallel.mesh import BATCH_AXES, SPATIAL_AXES
from jaxtrain.trees import by_path, path_name

# Minimum number of elements of a sharded array. Smaller arrays, such as biases, are
# replicated, because a collective would cost more time than sharding saves.
MIN_SHARDED_SIZE = 2**12

# Platform -> dims of kernels (H, W, in, out) from major to minor in memory; other
# platforms are row-major. cuDNN expects output channels first: with any other order
# XLA transposes every weight and every gradient.
KERNEL_ORDERS: dict[str, tuple[int, ...]] = dict.fromkeys(
    ("gpu", "cuda", "rocm"), (3, 0, 1, 2)
)


@dataclass(frozen=True)
class Layout:
    """Shardings and memory layouts of a run's arrays on its mesh.

    Kinds of gradients:
      - *Partial*: of one or more micro-batches, not yet summed over devices.
      - *Summed*: summed over devices and micro-batches, and sharded.
      - *Mean*: summed, then divided by the number of micro-batches and the loss scale.
      - *All-reduced*: of one micro-batch, summed over devices with unchanged shapes.

    Attributes:
      mesh: Mesh of the devices.
      specs: Path of an array of the model -> PartitionSpec, including the `fsdp` axis
        (`jaxtrain.models.annotations.make_specs`). Other arrays are replicated.
      shard_params: Whether parameters are sharded over the `fsdp` axis (ZeRO stage 3,
        arXiv:1910.02054), in addition to optimizer state and weight averages (stage 1).
      copies: Weights that are trained as per-device copies. None disables copies.
      kernel_order: Dims of kernels from major to minor in memory. None means
        row-major.
      optimizer: Optimizer; `optax.tree_map_params` needs it to find parameter-like
        arrays in the optimizer state.
      sharded_as: Step transform -> key of its extra arrays -> TrainState field with the
        same sharding (`StepTransform.sharded_as`). Other extra arrays are replicated.
    """

    mesh: Mesh
    specs: Mapping[str, P]
    shard_params: bool = True
    copies: Copies | None = None
    kernel_order: tuple[int, ...] | None = None
    optimizer: optax.GradientTransformation = field(default_factory=optax.identity)
    sharded_as: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

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
        """Return the sharding of each array of a TrainState."""
        opt_state = optax.tree_map_params(
            lambda params: jax.eval_shape(self.optimizer.init, params),
            partial(self._sharded_as, "opt_state"),
            state.opt_state,
            transform_non_params=partial(self._sharded_as, None),
            is_leaf=lambda of_params: True,
        )
        return replace(
            state,
            step=self._sharded_as(None, state.step),
            params=self._sharded_as("params", state.params),
            model_state=self._sharded_as("model_state", state.model_state),
            opt_state=opt_state,
            extras={n: self.extra(n, extra) for n, extra in state.extras.items()},
        )

    def extra(self, name: str, extra: Mapping[str, Any]) -> dict[str, Any]:
        """Return the sharding of each extra array of a step transform."""
        kinds = self.sharded_as.get(name, {})
        return {k: self._sharded_as(kinds.get(k), tree) for k, tree in extra.items()}

    def formats(self, state: Any) -> Any:
        """Return the sharding and memory layout of each array of a TrainState."""
        return self._formats(state, self.state(state))

    def weights(self, weights: Any) -> Any:
        """Return the sharding and memory layout of each weight of a teacher model."""
        return self._formats(weights, self._sharded_as("params", weights))

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
        return self._constrain(self._gathered_specs, params)

    def gather_extra(self, name: str, extra: Mapping[str, Any]) -> dict[str, Any]:
        """All-gather the extra arrays of a step transform, inside jit."""
        kinds = self.sharded_as.get(name, {})
        gathered = {
            key: self.gather_params(extra[key]) for key in kinds if key in extra
        }
        return {**extra, **gathered}

    def trained_params(self, params: Any) -> Any:
        """Make the per-device copies, and all-gather other parameters, inside jit."""
        specs = self._param_specs
        return self._map_by_kind(specs, params, Copies.make, self.gather_params)

    def shard_grads(self, grads: Any) -> Any:
        """Constrain the sharding of partial gradients, inside jit.

        Gradients of per-device copies of weights stay on their devices; other gradients
        are sharded as in `specs`.
        """
        constrain = partial(self._constrain, self.specs)
        return self._map_by_kind(self.specs, grads, Copies.place, constrain)

    def reduce_grads(self, grads: Any) -> Any:
        """Sum the gradients of per-device copies over the devices, inside jit."""
        return self._map_by_kind(self.specs, grads, Copies.sum, lambda summed: summed)

    def all_reduce_grads(self, grads: Any) -> Any:
        """All-reduce partial gradients without changing their shapes, inside jit.

        Needed by training methods that perturb parameters, such as SAM.
        """
        all_reduce = Copies.sum_in_place
        return self._map_by_kind(self.specs, grads, all_reduce, lambda reduced: reduced)

    def all_reduced_norm(self, grads: Any) -> jax.Array:
        """Return the norm of all-reduced gradients, in float32 or wider."""
        copied = frozenset[str]() if self.copies is None else self.copies.paths

        def squares(path: str, x: jax.Array) -> jax.Array:
            total = jnp.sum(jnp.square(widen(x)))
            # The gradients of all copies are equal: count a single copy.
            return total / x.shape[0] if path in copied else total

        parts = [squares(path, x) for path, x in by_path(grads).items()]
        return jnp.sqrt(sum(parts, jnp.float32(0)))

    def grad_specs(self, grads: Any) -> Any:
        """Return the PartitionSpec of each summed or mean gradient.

        Mesh axes of size 1 are omitted.
        """

        def spec(sharding: NamedSharding) -> P:
            sizes = self.mesh.shape
            return P(*(a if a and sizes[a] > 1 else None for a in sharding.spec))

        return jax.tree.map(spec, self._shardings(self.specs, grads))

    def images(self, images: Any) -> Any:
        """Shard images or other arrays with a batch dim, inside jit."""
        shardings = self.image_shardings(images)
        return jax.lax.with_sharding_constraint(images, shardings)

    def whole_images(self, images: jax.Array) -> jax.Array:
        """Shard images over the batch only, not over space, inside jit."""
        rows = NamedSharding(self.mesh, P(BATCH_AXES))
        return jax.lax.with_sharding_constraint(images, rows)

    def image_shardings(self, images: Any) -> Any:
        """Return the sharding of each array of a tree with images or activations.

        Arrays (B, H, W, C) are sharded over batch and space; other arrays, with a
        leading batch dim, over the batch.
        """

        def sharding(x: jax.Array) -> NamedSharding:
            return NamedSharding(self.mesh, _image_spec(x.ndim))

        return jax.tree.map(sharding, images)

    def _constrain(self, specs: Mapping[str, P], tree: Any) -> Any:
        return jax.lax.with_sharding_constraint(tree, self._shardings(specs, tree))

    def _map_by_kind(
        self,
        specs: Mapping[str, P],
        tree: Any,
        copied_fn: Callable[[Copies, Arrays, Mapping[str, P]], Arrays],
        others_fn: Callable[[Any], Any],
    ) -> Any:
        """Apply `copied_fn` to arrays in `copies`, and `others_fn` to other arrays."""
        if self.copies is None:
            return others_fn(tree)
        flat, treedef = by_path(tree), jax.tree.structure(tree)
        copied = {n: x for n, x in flat.items() if n in self.copies.paths}
        others = {n: x for n, x in flat.items() if n not in copied}
        specs = {n: specs[n] for n in copied}
        results = {**copied_fn(self.copies, copied, specs), **others_fn(others)}
        return treedef.unflatten(results[name] for name in flat)

    @property
    def _gathered_specs(self) -> dict[str, P]:
        """`specs` without the `fsdp` axis."""
        return {
            path: P(*(axis if axis != "fsdp" else None for axis in spec))
            for path, spec in self.specs.items()
        }

    @property
    def _param_specs(self) -> Mapping[str, P]:
        return self.specs if self.shard_params else self._gathered_specs

    def _sharded_as(self, field: str | None, tree: Any) -> Any:
        """Return the sharding that each array would have in a TrainState field.

        If `field` is None, the arrays are replicated.
        """
        specs = {
            None: {},
            "params": self._param_specs,
            "model_state": self._gathered_specs,
            "opt_state": self.specs,
        }
        return self._shardings(specs[field], tree)

    def _shardings(self, specs: Mapping[str, P], tree: Any) -> Any:
        """Return the sharding of each array, from the PartitionSpec of its path.

        Leading dims without an entry in the PartitionSpec, such as the history dim of
        L-BFGS, are not sharded. Arrays that do not fit their PartitionSpec, such as
        factored moments, are replicated.
        """
        sizes = self.mesh.shape

        def sharding(path: Any, x: Any) -> NamedSharding:
            spec = specs.get(path_name(path), P())
            axes = [*[None] * (x.ndim - len(spec)), *spec]
            fits = len(axes) == x.ndim and all(
                dim % sizes.get(axis, 1) == 0
                for dim, axis in zip(x.shape, axes, strict=True)
            )
            return NamedSharding(self.mesh, P(*axes) if fits else P(*[None] * x.ndim))

        return jax.tree_util.tree_map_with_path(sharding, tree)

    def _order_of(self, x: Any) -> MemoryLayout | None:
        order = self.kernel_order if x.ndim == 4 else None
        return None if order is None else MemoryLayout(order)


def add_fsdp(axes: Sequence[Any], shape: tuple[int, ...], size: int) -> P:
    """Return a PartitionSpec that also shards an array over the `fsdp` axis.

    The sharded dim is the largest free dim divisible by `size`. Small arrays, and
    arrays without such a dim, are not sharded over `fsdp`.

    Args:
      axes: Mesh axis of each dim, or None for a free dim.
      shape: Shape of the array.
      size: Size of the `fsdp` axis.
    """
    free = [i for i, n in enumerate(shape) if not axes[i] and n % size == 0]
    if math.prod(shape) < MIN_SHARDED_SIZE or not free:
        return P(*axes)
    dim = max(free, key=lambda i: shape[i])
    return P(*axes[:dim], "fsdp", *axes[dim + 1 :])


def _image_spec(ndim: int) -> P:
    """Return the PartitionSpec of images (rank 4) or other arrays with a batch dim."""
    return P(BATCH_AXES, *SPATIAL_AXES) if ndim == 4 else P(BATCH_AXES)
