"""Partition of a model into pipeline stages."""

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
from flax import nnx
from jax.sharding import Mesh

from jaxtrain.config import ParallelConfig
from jaxtrain.errors import UserError
from jaxtrain.models.base import Model
from jaxtrain.parallel.data_sharding import replicated
from jaxtrain.parallel.layout import Layout
from jaxtrain.parallel.mesh import make_mesh
from jaxtrain.plugins.pipeline.timeline import Timeline, simulate
from jaxtrain.training.forward import apply_model
from jaxtrain.training.state import split_model


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A pipeline stage: consecutive pieces of a model on a mesh.

    Attributes:
      part: Slice of the stage's pieces in `Model.pieces`.
      names: Names of the stage's layers.
      graphdef: `nnx.GraphDef` of the model with only these layers.
      layout: Layout on the stage's devices.
      flops: FLOPs of a forward pass of one micro-batch.
    """

    part: slice
    names: tuple[str, ...]
    graphdef: Any
    layout: Layout
    flops: float

    def take(self, tree: Any) -> Any:
        """Shard a batch, activations or their gradients over the stage's devices."""
        return jax.device_put(tree, self.layout.image_shardings(tree))

    def replicate(self, tree: Any) -> Any:
        """Replicate small arrays on the stage's devices."""
        return jax.device_put(tree, replicated(self.layout.mesh))


@dataclass(frozen=True)
class Stages:
    """All stages in order, and the timeline of a step.

    The training state has the same tree structure as without stages. The arrays of a
    layer are on the devices of its stage. Arrays without a layer, such as step
    counters, are on the first stage. A stage's part of a tree has the layers of this
    stage, and all arrays without a layer.
    """

    stages: tuple[Stage, ...]
    timeline: Timeline

    def part(self, stage: Stage, tree: Any) -> Any:
        """Part of a tree for a stage."""

        def choose(node: Any) -> Any:
            if not self._is_by_layer(node):
                return node
            return {name: node[name] for name in node if name in stage.names}

        return jax.tree.map(choose, tree, is_leaf=self._is_by_layer)

    def split(self, tree: Any) -> list[Any]:
        """Split a tree into parts; arrays without a layer are copied to all stages."""
        nodes, treedef = jax.tree.flatten(tree, is_leaf=self._is_by_layer)
        counts = {i: n for i, n in enumerate(nodes) if not self._is_by_layer(n)}
        parts = []
        for stage in self.stages:
            own = dict(enumerate(nodes)) | stage.replicate(counts)
            parts.append(self.part(stage, treedef.unflatten(own.values())))
        return parts

    def merge(self, parts: Sequence[Any]) -> Any:
        """Merge parts; arrays without a layer are taken from the first stage."""

        def join(*nodes: Any) -> Any:
            if not self._is_by_layer(nodes[0]):
                return nodes[0]
            return {name: value for node in nodes for name, value in node.items()}

        return jax.tree.map(join, *parts, is_leaf=self._is_by_layer)

    def shardings(self, state: Any) -> list[Any]:
        """Shardings of each stage's part of a state."""
        return [s.layout.state(self.part(s, state)) for s in self.stages]

    def _is_by_layer(self, node: Any) -> bool:
        names = {name for stage in self.stages for name in stage.names}
        return isinstance(node, dict) and node.keys() <= names


def make_stage_meshes(
    config: ParallelConfig, devices: Sequence[Any] | None = None
) -> list[Mesh]:
    """Create a mesh of consecutive devices for each pipeline stage.

    Args:
      config: Section `parallel`: number of stages, and axes of each mesh.
      devices: Devices of the run. Defaults to `jax.devices()`.

    Raises:
      UserError: The number of stages does not divide the number of devices, or there
        are several processes.
    """
    devices = jax.devices() if devices is None else devices
    num_stages = config.pipeline_stages
    if num_stages > 1 and jax.process_count() > 1:
        raise UserError(
            f"parallel.pipeline_stages = {num_stages}: pipelines support only one "
            f"process, but the run has {jax.process_count()} processes; set "
            "parallel.pipeline_stages = 1"
        )
    size, rest = divmod(len(devices), num_stages)
    if rest or not size:
        fits = [str(n) for n in range(1, len(devices) + 1) if len(devices) % n == 0]
        raise UserError(
            f"parallel.pipeline_stages = {num_stages} does not divide the number of "
            f"devices, {len(devices)}: set parallel.pipeline_stages to "
            f"{' or '.join(fits)}"
        )
    starts = range(0, len(devices), size)
    return [make_mesh(config, devices[i : i + size], "of a stage") for i in starts]


def build_stages(
    model: Model,
    images: jax.ShapeDtypeStruct,
    layouts: Sequence[Layout],
    num_micro: int,
) -> Stages:
    """Partition an abstract model into stages of similar cost, one per layout.

    Args:
      model: Model to partition.
      images: Shape and dtype of a micro-batch.
      layouts: Layout on the devices of each stage.
      num_micro: Number of micro-batches of a step.

    Raises:
      UserError: The model has fewer pieces than there are stages.
    """
    pieces = model.pieces
    if len(layouts) > len(pieces):
        raise UserError(
            f"parallel.pipeline_stages = {len(layouts)}: expected at most "
            f"{len(pieces)}, the number of pieces of the model"
        )
    flops, stages = _piece_flops(model, images), []
    for layout, part in zip(layouts, balance(flops, len(layouts)), strict=True):
        names = tuple(name for piece in pieces[part] for name in piece.names)
        stages.append(
            Stage(
                part=part,
                names=names,
                graphdef=_graphdef(model, names),
                layout=layout,
                flops=sum(flops[part]),
            )
        )
    return Stages(tuple(stages), simulate([s.flops for s in stages], num_micro))


def _piece_flops(model: Model, images: jax.ShapeDtypeStruct) -> list[float]:
    """FLOPs of a forward pass through each piece, as counted by XLA."""
    graphdef, params, model_state = split_model(model)
    flops, x, key = [], images, jax.random.key(0)
    for i in range(len(model.pieces)):

        def function(params: Any, model_state: Any, x: Any, i: int = i) -> Any:
            part = slice(i, i + 1)
            return apply_model(graphdef, params, model_state, x, key, part)[0]

        lowered = jax.jit(function).lower(params, model_state, x)
        costs: Any = lowered.cost_analysis()
        flops.append(float(costs["flops"]))
        x = jax.eval_shape(function, params, model_state, x)
    return flops


def balance(costs: Sequence[float], num_parts: int) -> list[slice]:
    """Partition costs into consecutive non-empty parts, minimizing the largest sum."""
    total = [0.0, *itertools.accumulate(costs)]

    @functools.cache
    def best(num: int, parts: int) -> tuple[float, list[slice]]:
        """Partition the first `num` costs; return the largest sum and the slices."""
        if parts == 1:
            return total[num], [slice(0, num)]
        largest, start = min(
            (max(best(start, parts - 1)[0], total[num] - total[start]), start)
            for start in range(parts - 1, num)
        )
        return largest, [*best(start, parts - 1)[1], slice(start, num)]

    return best(len(costs), num_parts)[1]


def _graphdef(model: Model, names: Sequence[str]) -> Any:
    """Return the `nnx.GraphDef` of a model with only the named layers."""
    _, params, model_state = split_model(model)
    model = nnx.clone(model)
    # Some layers have state but no parameters, such as activation ranges.
    for name in (params.keys() | model_state.keys()) - set(names):
        delattr(model, name)
    return nnx.graphdef(model)
