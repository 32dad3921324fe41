"""Where arrays lie: from a path in the state to mesh axes, and batch sharding."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.layout import Format
from jax.experimental.layout import Layout as MemoryLayout
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxtrain.dtypes import widen
from jaxtrain.errors import UserError
from jaxtrain.parallel.copies import Arrays, Copies
from jaxtrain.parallel.mesh import BATCH_AXES, SPATIAL_AXES
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

    Attributes:
      mesh: Mesh of the devices.
      split_dims: Dim of each array of the model, by its path, that the `model` axis
        splits, counted from the last; None is not split. What the optimizer and the
        averages hold of an array has a path that ends alike, and is split alike.
      shard_params: Whether the `fsdp` axis shares the parameters (ZeRO stage 3,
        arXiv:1910.02054), and not only optimizer state and averages (stage 1).
      copies: Weights that each device trains with a copy of its own; None: no weights.
      grouped: Paths of statistics whose first dim is split as the batch is.
      kernel_order: Dims of kernels from the outermost in memory on; None: row by row.
      sharded_as: Sharding of arrays of the state's `extras`, by transform/key: that of
        `params` or of `opt_state`. The `fsdp` axis shares no others.
    """

    mesh: Mesh
    split_dims: Mapping[str, int | None]
    shard_params: bool = True
    copies: Copies | None = None
    grouped: frozenset[str] = frozenset()
    kernel_order: tuple[int, ...] | None = None
    sharded_as: Mapping[str, str] = field(default_factory=dict)

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
        return self._shardings(state, self._is_shared)

    def formats(self, state: Any) -> Any:
        """Return the shardings of a whole TrainState, with the order in memory."""
        return self._formats(state, self.state(state))

    def weights(self, weights: Any) -> Any:
        """Return the formats of the weights of another model, shared as parameters."""
        shardings = self._shardings(weights, lambda path: self.shard_params)
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

    def trained_params(self, params: Any) -> Any:
        """Gather, inside jit, what the `fsdp` axis shares, and copy what is copied."""

        def copy(copies: Copies, weights: Arrays) -> Arrays:
            return copies.make(weights, self._specs(weights, shared=self.shard_params))

        return self._apart(params, copy, self.whole_params)

    def shared_grads(self, grads: Any) -> Any:
        """Leave each device, inside jit, with its share of summed gradients.

        Those of copies stay its own.
        """

        def own(copies: Copies, grads: Arrays) -> Arrays:
            return copies.place(grads, self._specs(_rows(grads), shared=False))

        return self._apart(grads, own, partial(self._constrain, shared=True))

    def summed_grads(self, grads: Any) -> Any:
        """Sum those gradients, inside jit, that are not yet: those of copies."""

        def add_up(copies: Copies, grads: Arrays) -> Arrays:
            specs = self._specs(_rows(grads), shared=True)
            return self._constrain(copies.sum(grads, specs), shared=True)

        return self._apart(grads, add_up, lambda summed: summed)

    def whole_grads(self, grads: Any) -> Any:
        """Sum gradients, inside jit, in the shapes that they have: copies, of copies.

        They are what the method of a step may move the trained parameters by.
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
        """Return the PartitionSpec of each array that `shared_grads` returns.

        Axes of one device, which split nothing, are left out.
        """

        def spec(sharding: NamedSharding) -> P:
            sizes = self.mesh.shape
            return P(*(a if a and sizes[a] > 1 else None for a in sharding.spec))

        return jax.tree.map(spec, self._shardings(grads, lambda path: True))

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
        shardings = self._shardings(tree, lambda path: shared)
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

    def _is_shared(self, path: str) -> bool:
        """Return whether the `fsdp` axis shares an array of a TrainState."""
        kind, *rest = path.split("/")
        if kind == "extras":
            kind = self.sharded_as.get("/".join(rest[:2]))
        return kind == "opt_state" or (kind == "params" and self.shard_params)

    def _in_memory(self, x: Any) -> MemoryLayout | None:
        order = self.kernel_order if x.ndim == 4 else None
        return None if order is None else MemoryLayout(order)

    def _specs(self, arrays: Arrays, *, shared: bool) -> dict[str, P]:
        return {n: self._spec(n, x.shape, shared=shared) for n, x in arrays.items()}

    def _shardings(self, tree: Any, is_shared: Callable[[str], bool]) -> Any:
        def sharding(path: Any, leaf: Any) -> NamedSharding:
            name = path_name(path)
            spec = self._spec(name, leaf.shape, shared=is_shared(name))
            return NamedSharding(self.mesh, spec)

        return jax.tree_util.tree_map_with_path(sharding, tree)

    def _spec(self, path: str, shape: tuple[int, ...], *, shared: bool) -> P:
        axes: list[Any] = [None] * len(shape)
        array = self._model_path(path)
        dim = None if array is None else self.split_dims[array]
        model = self.mesh.shape["model"]
        if dim is not None and len(shape) >= -dim and shape[dim] % model == 0:
            axes[dim] = "model"
        if array in self.grouped:
            axes[0] = BATCH_AXES
        if shared and math.prod(shape) >= MIN_SHARDED_SIZE:
            fsdp = self.mesh.shape["fsdp"]
            free = [i for i, n in enumerate(shape) if not axes[i] and n % fsdp == 0]
            if free:
                axes[max(free, key=lambda i: shape[i])] = "fsdp"
        return P(*axes)

    def _model_path(self, path: str) -> str | None:
        """Return the path of the model's array that a path ends with, if it does."""
        parts = path.split("/")
        ends = ("/".join(parts[i:]) for i in range(len(parts)))
        # The longest: `block/conv` is another array than `conv`.
        return next((end for end in ends if end in self.split_dims), None)


def _rows(copies: Arrays) -> Any:
    """Return the shapes of what there are copies of."""
    return {n: jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for n, x in copies.items()}


def _image_spec(ndim: int) -> P:
    """Return how images (batch, height, width, channels) are split, or other arrays."""
    return P(BATCH_AXES, *SPATIAL_AXES) if ndim == 4 else P(BATCH_AXES)


def splits_channels(shardings: Any) -> bool:
    """Return whether the `model` axis splits any of the arrays."""
    return any("model" in s.spec for s in jax.tree.leaves(shardings))


def whole_layers(params: Any) -> list[str]:
    """Return the layers whose output channels the `model` axis divides, yet not splits.

    Of `params`, abstract arrays with shardings. Each path is there once, with `*` for
    the numbers of blocks that differ in nothing else.
    """
    names: dict[str, None] = {}
    for path, x in by_path(params).items():
        size = x.sharding.mesh.shape["model"]
        divides = len(x.shape) > 1 and x.shape[-1] % size == 0
        if divides and "model" not in x.sharding.spec:
            *blocks, layer, _ = path.split("/")
            names["/".join([*(re.sub(r"\d+", "*", b) for b in blocks), layer])] = None
    return list(names)


def replicated(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, P())


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of (steps, batch, ...) arrays."""
    return NamedSharding(mesh, P(None, BATCH_AXES))


def num_batch_shards(mesh: Mesh) -> int:
    """Return the number of parts that a batch is split into."""
    return math.prod(mesh.shape[axis] for axis in BATCH_AXES)


def num_image_parts(mesh: Mesh) -> int:
    """Return the number of parts that an image is split into."""
    return math.prod(mesh.shape[axis] for axis in SPATIAL_AXES)


def check_divisible(name: str, value: int, divisor: int, reason: str) -> None:
    """Raise UserError, with the values nearby that would fit, if `value` does not."""
    if value % divisor:
        below = max(1, value // divisor) * divisor
        fits = sorted({below, -(-value // divisor) * divisor})
        raise UserError(
            f"{name} = {value} is not divisible by {divisor}, {reason}: "
            f"{' or '.join(map(str, fits))} would fit"
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


def put_batch(mesh: Mesh, local: Any, batch_size: int) -> Any:
    """Place this process's rows, shaped (steps, rows, ...), into global arrays."""
    sharding = batch_sharding(mesh)
    return jax.tree.map(
        lambda rows: jax.make_array_from_process_local_data(
            sharding, rows, (rows.shape[0], batch_size, *rows.shape[2:])
        ),
        local,
    )
