"""Where the arrays of a run lie on its mesh: `Layout`."""

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

# Smaller arrays, such as biases, are not worth a collective of their own.
MIN_SHARDED_SIZE = 2**12

# The dims of kernels (rows, columns, in, out) as they lie in memory, by the platform of
# the devices; row by row elsewhere. cuDNN takes and makes them with the output channels
# first: from any other order XLA transposes each weight and each gradient.
KERNEL_ORDERS: dict[str, tuple[int, ...]] = {
    "gpu": (3, 0, 1, 2),
    "cuda": (3, 0, 1, 2),
    "rocm": (3, 0, 1, 2),
}


@dataclass(frozen=True)
class Layout:
    """Where the arrays of a run lie on its mesh.

    Gradients have one name in each place. *Partial*: of a micro-batch, or a sum of
    them; those of copies are each device's own. *Summed*: over devices and
    micro-batches, each device with its share. *Mean*: summed, divided by the number of
    micro-batches and the loss scale. *Whole*: of one micro-batch, summed over devices
    in the shapes of the partial ones.

    Attributes:
      mesh: Mesh of the devices.
      split_dims: Dim of each array of the model, by its path, that the `model` axis
        splits, counted from the last; None is not split.
      shard_params: Whether the `fsdp` axis shares the parameters (ZeRO stage 3,
        arXiv:1910.02054), and not only optimizer state and averages (stage 1).
      copies: Weights that each device trains with a copy of its own; None: no weights.
      grouped: Paths of statistics whose first dim is split as the batch is.
      kernel_order: Dims of kernels from the outermost in memory on; None: row by row.
      optimizer: Optimizer; `optax.tree_map_params` finds what its state holds of
        parameters.
      sharded_as: Field of the state that arrays of its `extras` are sharded as, by
        transform and key (`StepTransform.sharded_as`); others are replicated.
      annotations: Specs of the arrays of the model that have one of their own, by path.
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
        """The platform of the devices, which may not be JAX's default: `cpu`, `gpu`."""
        return self.mesh.devices.flat[0].platform

    @property
    def cpus(self) -> Mesh | None:
        """The mesh, if it is of CPUs that share the batch and no more."""
        whole = self.mesh.size == num_batch_shards(self.mesh)
        return self.mesh if whole and self.platform == "cpu" else None

    def state(self, state: Any) -> Any:
        """Return the shardings of a whole TrainState."""
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
        """Return the shardings of the arrays of a transform."""
        kinds = self.sharded_as.get(name, {})
        return {
            key: self._sharded_as(kinds[key], tree)
            if key in kinds
            else jax.tree.map(self._replicated, tree)
            for key, tree in extra.items()
        }

    def formats(self, state: Any) -> Any:
        """Return the shardings of a whole TrainState, with the order in memory."""
        return self._formats(state, self.state(state))

    def weights(self, weights: Any) -> Any:
        """Return the formats of the weights of another model, shared as parameters."""
        shardings = self._shardings(weights, shared=self.shard_params)
        return self._formats(weights, shardings)

    def _formats(self, arrays: Any, shardings: Any) -> Any:
        return jax.tree.map(
            lambda x, sharding: Format(self._in_memory(x), sharding), arrays, shardings
        )

    def flat(self, x: jax.Array) -> jax.Array:
        """Return the elements of an array, inside jit, in their order in memory."""
        order = self._in_memory(x)
        return (x.transpose(order.major_to_minor) if order else x).reshape(-1)

    def whole_params(self, params: Any) -> Any:
        """Gather, inside jit, what the `fsdp` axis shares, to compute with it."""
        return self._constrain(params, shared=False)

    def whole_extra(self, name: str, extra: Mapping[str, Any]) -> dict[str, Any]:
        """Gather, inside jit, what the `fsdp` axis shares of a transform's arrays."""
        kinds = self.sharded_as.get(name, {})
        whole = {key: self.whole_params(extra[key]) for key in kinds if key in extra}
        return {**extra, **whole}

    def trained_params(self, params: Any) -> Any:
        """Gather, inside jit, what the `fsdp` axis shares, and copy what is copied."""

        def copy(copies: Copies, weights: Arrays) -> Arrays:
            return copies.make(weights, self._specs(weights, shared=self.shard_params))

        return self._apart(params, copy, self.whole_params)

    def shard_grads(self, grads: Any) -> Any:
        """Constrain the sharding of gradients before their sum, inside jit.

        Each device keeps its share of them; of copied parameters all of its own.
        """

        def own(copies: Copies, grads: Arrays) -> Arrays:
            return copies.place(grads, self._specs(_rows(grads), shared=False))

        return self._apart(grads, own, partial(self._constrain, shared=True))

    def summed_grads(self, grads: Any) -> Any:
        """Sum partial gradients over the devices, inside jit: those of copies."""

        def add_up(copies: Copies, grads: Arrays) -> Arrays:
            specs = self._specs(_rows(grads), shared=True)
            return self._constrain(copies.sum(grads, specs), shared=True)

        return self._apart(grads, add_up, lambda summed: summed)

    def whole_grads(self, grads: Any) -> Any:
        """Sum partial gradients over the devices, inside jit, in the same shapes.

        The method of a step may move the trained parameters by them.
        """

        def everywhere(copies: Copies, grads: Arrays) -> Arrays:
            specs = self._specs(_rows(grads), shared=False)
            return copies.sum_in_place(grads, specs)

        return self._apart(grads, everywhere, lambda whole: whole)

    def norm_of_whole(self, grads: Any) -> jax.Array:
        """Return the norm of what `whole_grads` returned, in at least float32."""

        def squares(x: jax.Array) -> jax.Array:
            return jnp.sum(jnp.square(widen(x)))

        def of_copies(copies: Copies, grads: Arrays) -> Arrays:
            del copies  # Of which all are alike.
            return {n: squares(x) / x.shape[0] for n, x in grads.items()}

        def of_others(grads: Any) -> Any:
            return jax.tree.map(squares, grads)

        parts = jax.tree.leaves(self._apart(grads, of_copies, of_others))
        return jnp.sqrt(sum(parts, jnp.float32(0)))

    def specs_of_grads(self, grads: Any) -> Any:
        """Return the PartitionSpec of each summed or mean gradient.

        Axes of one device, which split nothing, are left out.
        """

        def spec(sharding: NamedSharding) -> P:
            sizes = self.mesh.shape
            return P(*(a if a and sizes[a] > 1 else None for a in sharding.spec))

        return jax.tree.map(spec, self._shardings(grads, shared=True))

    def images(self, images: Any) -> Any:
        """Split images, or activations or their gradients, inside jit."""
        shardings = self.image_shardings(images)
        return jax.lax.with_sharding_constraint(images, shardings)

    def whole_images(self, images: jax.Array) -> jax.Array:
        """Split images (batch, ...), inside jit, by the batch alone."""
        rows = NamedSharding(self.mesh, P(BATCH_AXES))
        return jax.lax.with_sharding_constraint(images, rows)

    def image_shardings(self, images: Any) -> Any:
        """Return the shardings of images (batch, height, width, channels).

        Or of what the first pieces of a model have made of them: of arrays with other
        dims the batch alone is split.
        """

        def sharding(x: jax.Array) -> NamedSharding:
            return NamedSharding(self.mesh, _image_spec(x.ndim))

        return jax.tree.map(sharding, images)

    def _constrain(self, tree: Any, *, shared: bool) -> Any:
        """Have arrays lie, inside jit, as those that the `fsdp` axis shares, or not."""
        shardings = self._shardings(tree, shared=shared)
        return jax.lax.with_sharding_constraint(tree, shardings)

    def _apart(
        self,
        tree: Any,
        of_copied: Callable[[Copies, Arrays], Arrays],
        of_others: Callable[[Any], Any],
    ) -> Any:
        """Apply one function to what is copied of a tree, by path, one to the rest."""
        if self.copies is None:
            return of_others(tree)
        flat, treedef = by_path(tree), jax.tree.structure(tree)
        copied = {n: x for n, x in flat.items() if n in self.copies.paths}
        others = {n: x for n, x in flat.items() if n not in copied}
        done = {**of_copied(self.copies, copied), **of_others(others)}
        return treedef.unflatten(done[name] for name in flat)

    def _sharded_as(self, field: str, tree: Any) -> Any:
        """Return the shardings of arrays by the paths of a field of the state."""
        shared = field == "opt_state" or (field == "params" and self.shard_params)
        return self._shardings(tree, shared=shared)

    def _replicated(self, x: Any) -> NamedSharding:
        return NamedSharding(self.mesh, P(*[None] * len(x.shape)))

    def _in_memory(self, x: Any) -> MemoryLayout | None:
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


def _rows(copies: Arrays) -> Any:
    """Return the shapes of what there are copies of."""
    return {n: jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for n, x in copies.items()}


def _image_spec(ndim: int) -> P:
    """Return how images (batch, height, width, channels) are split, or other arrays."""
    return P(BATCH_AXES, *SPATIAL_AXES) if ndim == 4 else P(BATCH_AXES)
