"""Meshes of a run, and shardings and memory layouts of its train state."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from jaxtrain.dtypes import wide
from jaxtrain.errors import UserError
from jaxtrain.evaluation.evaluate import eval_batch_size
from jaxtrain.models.base import Model
from jaxtrain.models.copied import copied_paths
from jaxtrain.parallel import cpu_devices, data_sharding
from jaxtrain.parallel.copies import Copies
from jaxtrain.parallel.layout import KERNEL_ORDERS, Layout
from jaxtrain.trainer.execution import Execution
from jaxtrain.training.precision import Policy
from jaxtrain.training.state import TrainState
from jaxtrain.trees import by_path

if TYPE_CHECKING:
    from jaxtrain.config import Config


def make_meshes(
    kind: type[Execution], config: Config, devices: Sequence[Any] | None, pixels: int
) -> list[Mesh]:
    """Create the meshes of an `Execution` for batches of `pixels` pixels in total."""
    if devices is None:
        micro, data = config.micro_batch_size, config.data
        sizes = [
            micro,
            # Examples that are mixed with each other must be on one device.
            micro // (data.repeats * data.augment.group),
            eval_batch_size(data),
            config.norm_groups if config.norm_groups > 1 else 0,
        ]
        devices = cpu_devices.choose(config.parallel, sizes, pixels)
    return kind.make_meshes(config.parallel, devices)


def copies(config: Config, policy: Policy, model: Model, mesh: Mesh) -> Copies | None:
    """Per-device parameter copies; None if the partitioner inserts the collectives."""
    asked = config.parallel.reduce_dtype
    compute, params = jnp.dtype(policy.compute_dtype), jnp.dtype(policy.param_dtype)
    summed = wide(params) if asked is None else jnp.dtype(asked)
    # Without per-device copies, XLA sums gradients in the compute dtype; if this dtype
    # is wide enough, no copies are needed.
    enough = asked is None and compute.itemsize >= summed.itemsize
    if (
        data_sharding.num_batch_shards(mesh) == 1
        or enough
        or compute == params == summed
    ):
        return None
    # All-gather in the narrower dtype: layers cast the weights to the compute dtype.
    gathered = min(compute, params, key=lambda dtype: dtype.itemsize)
    return Copies(mesh, copied_paths(model), gathered, summed)


def order_of_kernels(meshes: Sequence[Mesh]) -> tuple[int, ...] | None:
    """Memory order of kernel dims; None for row-major.

    With several devices, kernels are row-major, as in XLA's gradient all-reduces:
    another order would move 2 % more bytes for ResNet-50 on eight GPUs
    (docs/decisions.md).
    """
    if sum(mesh.size for mesh in meshes) > 1:
        return None
    return KERNEL_ORDERS.get(meshes[0].devices.flat[0].platform)


def splits_channels(shardings: Any) -> bool:
    """Whether any array is sharded over the mesh axis `model`."""
    return any("model" in s.spec for s in jax.tree.leaves(shardings))


def whole_layers(params: Any) -> list[str]:
    """List layers that are not sharded over the mesh axis `model`, but could be.

    `params` are abstract arrays with shardings. Layers whose paths differ only in block
    numbers are listed once, with `*` for a number.
    """
    names: dict[str, None] = {}
    for path, x in by_path(params).items():
        size = x.sharding.mesh.shape["model"]
        divides = len(x.shape) > 1 and x.shape[-1] % size == 0
        if divides and "model" not in x.sharding.spec:
            *blocks, layer, _ = path.split("/")
            names["/".join([*(re.sub(r"\d+", "*", b) for b in blocks), layer])] = None
    return list(names)


def place(
    abstract: TrainState, layout: Layout, execution: Execution, config: Config
) -> TrainState:
    """Add shardings and memory layouts to an abstract state.

    Raises:
      UserError: No layer has a number of channels divisible by `parallel.model`.
    """
    formats, shardings = execution.formats(abstract)
    model = layout.mesh.shape["model"]
    if model > 1 and not splits_channels(shardings):
        raise UserError(
            f"parallel.model = {model}: no layer of {config.model.name} has a number "
            "of channels divisible by parallel.model; set parallel.model to a divisor "
            "of the channels of a layer, or to 1"
        )
    return jax.tree.map(
        lambda x, f: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=f),
        abstract,
        formats,
    )
