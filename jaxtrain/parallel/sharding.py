"""Where arrays lie: rules from a path in the state to mesh axes, and batch sharding."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxtrain.errors import UserError
from jaxtrain.parallel.mesh import BATCH_AXES, SPATIAL_AXES

# The dim, counted from the last, that the `model` axis splits: -1 the output channels,
# -2 the input channels of a kernel, None neither. The first rule whose pattern is found
# in the path of an array decides. A path is that of the state's tree, such as
# `params/conv1/kernel`; a rule for a parameter also catches its optimizer moments,
# whose paths end in the same way.
#
# Layers take turns: the first gives each device some of the channels, the second takes
# them and adds up, one reduction of activations for both (Megatron-LM,
# arXiv:1909.08053). The third convolution of a bottleneck stays whole: split, it would
# need another reduction, of four times the channels.
TENSOR_RULES: Sequence[tuple[str, int | None]] = (
    (r"block\d+/(conv|norm)3/", None),
    (r"/conv[13]/(kernel|bias)", -1),
    (r"/norm[13]/", -1),
    (r"/conv[24]/kernel", -2),
    (r"/linear1/(kernel|bias)", -1),
    (r"/linear2/kernel", -2),
    (r"/head/linear/", -1),
    (r"", None),
)

# Paths of batch-norm statistics.
STATISTICS = ("model_state/", "ema_model_state/")

# Smaller arrays, such as biases, are not worth a collective of their own.
MIN_SHARDED_SIZE = 2**12


@dataclass(frozen=True)
class Layout:
    """Where the arrays of a run lie on its mesh.

    Attributes:
      mesh: the devices.
      shard_params: whether the `fsdp` axis shares the parameters (ZeRO stage 3,
        arXiv:1910.02054), and not only optimizer state and averages (stage 1).
    """

    mesh: Mesh
    shard_params: bool = True

    def state(self, state: Any) -> Any:
        """Return the shardings of a whole TrainState."""
        fields = {"opt_state", "ema_params"}
        if self.shard_params:
            fields.add("params")
        return self._infer(state, lambda path: path.split("/")[0] in fields)

    def whole_params(self, params: Any) -> Any:
        """Gather, inside jit, what the `fsdp` axis shares, to compute with it."""
        shardings = self._infer(params, lambda path: False)
        return jax.lax.with_sharding_constraint(params, shardings)

    def shared_grads(self, grads: Any) -> Any:
        """Leave each device, inside jit, with its share of summed gradients."""
        shardings = self._infer(grads, lambda path: True)
        return jax.lax.with_sharding_constraint(grads, shardings)

    def images(self, images: jax.Array) -> jax.Array:
        """Split images (batch, height, width, channels), inside jit."""
        spec = P(BATCH_AXES, *SPATIAL_AXES)
        return jax.lax.with_sharding_constraint(images, NamedSharding(self.mesh, spec))

    def _infer(self, tree: Any, is_shared: Any) -> Any:
        def sharding(path: Any, leaf: Any) -> NamedSharding:
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            spec = self._spec(name, leaf.shape, shared=is_shared(name))
            return NamedSharding(self.mesh, spec)

        return jax.tree_util.tree_map_with_path(sharding, tree)

    def _spec(self, path: str, shape: tuple[int, ...], *, shared: bool) -> P:
        axes: list[Any] = [None] * len(shape)
        dim = next(d for pattern, d in TENSOR_RULES if re.search(pattern, f"/{path}"))
        model = self.mesh.shape["model"]
        if dim is not None and len(shape) >= -dim and shape[dim] % model == 0:
            axes[dim] = "model"
        if path.startswith(STATISTICS) and len(shape) == 2:
            axes[0] = BATCH_AXES  # Batch-norm statistics, (groups, channels).
        if shared and math.prod(shape) >= MIN_SHARDED_SIZE:
            fsdp = self.mesh.shape["fsdp"]
            free = [i for i, n in enumerate(shape) if not axes[i] and n % fsdp == 0]
            if free:
                axes[max(free, key=lambda i: shape[i])] = "fsdp"
        return P(*axes)


def splits_channels(shardings: Any) -> bool:
    """Return whether the `model` axis splits any of the arrays."""
    return any("model" in s.spec for s in jax.tree.leaves(shardings))


def replicated(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, P())


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Return the sharding of (steps, batch, ...) arrays."""
    return NamedSharding(mesh, P(None, BATCH_AXES))


def num_batch_shards(mesh: Mesh) -> int:
    """Return the number of parts that a batch is split into."""
    return math.prod(mesh.shape[axis] for axis in BATCH_AXES)


def check_divisible(name: str, value: int, divisor: int, reason: str) -> None:
    """Raise UserError, with the values nearby that would fit, if `value` does not."""
    if value % divisor:
        fits = sorted(
            {max(1, value // divisor) * divisor, -(-value // divisor) * divisor}
        )
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
