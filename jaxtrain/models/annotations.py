"""PartitionSpecs of a model's arrays, from sharding annotations and defaults."""

from collections.abc import Iterator, Mapping
from typing import Any

from flax import nnx
from jax.sharding import Mesh, PartitionSpec as P

from jaxtrain.models.batch_norm import GroupStat
from jaxtrain.parallel.layout import add_fsdp
from jaxtrain.parallel.mesh import BATCH_AXES
from jaxtrain.problems import Problem

# Mesh axes that shard parameters; the other axes shard the batch and the images.
PARAMETER_AXES = ("fsdp", "model")


def make_specs(model: nnx.Module, sizes: Mapping[str, int]) -> dict[str, P]:
    """Return the PartitionSpec of each array of a model, by path.

    Arrays with an annotation are sharded accordingly. For other arrays, the `model`
    axis shards the dim that the layer declares (`split_dim`), the batch axes shard
    batch-norm statistics over their groups, and the `fsdp` axis shards large
    parameters.

    Args:
      model: Model, which may be abstract.
      sizes: Size of each mesh axis, by name.
    """
    annotated, specs = annotated_specs(model), {}
    for keys, variable in nnx.to_flat_state(nnx.state(model)):
        path, shape = "/".join(map(str, keys)), variable.shape
        axes: list[Any] = [None] * len(shape)
        if path in annotated:
            specs[path] = P(*annotated[path], *axes[len(annotated[path]) :])
            continue
        dim = variable.get_metadata("split_dim", None)
        if dim is not None and shape[dim] % sizes["model"] == 0:
            axes[dim] = "model"
        if isinstance(variable, GroupStat) and len(shape) == 2:
            axes[0] = BATCH_AXES
        is_param = isinstance(variable, nnx.Param)
        specs[path] = add_fsdp(axes, shape, sizes["fsdp"]) if is_param else P(*axes)
    return specs


def annotated_specs(model: nnx.Module) -> dict[str, P]:
    """PartitionSpecs of annotated arrays of a model, by path."""
    specs = nnx.to_flat_state(nnx.get_partition_spec(nnx.state(model)))
    found = {"/".join(map(str, path)): spec.get_value() for path, spec in specs}
    return {path: spec for path, spec in found.items() if len(spec)}


def is_annotated(model: nnx.Module, axis: str) -> bool:
    """Whether any array of a model is annotated with a mesh axis."""
    return any(axis in spec for spec in annotated_specs(model).values())


def check_annotations(model: nnx.Module, mesh: Mesh) -> Iterator[Problem]:
    """Check that annotations name mesh axes that evenly divide the dims."""
    state = nnx.to_flat_state(nnx.state(model))
    shapes = {"/".join(map(str, path)): variable.shape for path, variable in state}
    for path, spec in annotated_specs(model).items():
        problem = _problem(spec, shapes[path], mesh.shape)
        if problem is not None:
            yield Problem(
                f"model {type(model).__name__}: the array {path} of shape "
                f"{shapes[path]} is annotated with the axes {tuple(spec)}: {problem}"
            )


def _problem(spec: P, shape: tuple[int, ...], sizes: Mapping[str, int]) -> str | None:
    names = [name for name in spec if name is not None]
    unknown = [name for name in names if name not in sizes]
    if unknown:
        return (
            f"the mesh has no axis {unknown[0]!r}, only {', '.join(sizes)}; use "
            f"{' or '.join(PARAMETER_AXES)}, which shard parameters"
        )
    others = [name for name in names if name not in PARAMETER_AXES]
    if others or len(set(names)) < len(names):
        return (
            f"expected each of {', '.join(PARAMETER_AXES)} at most once, and None for "
            "other dims"
        )
    if len(spec) > len(shape):
        return (
            "the annotation has more entries than the array has dims; give at most one "
            "entry per dim"
        )
    for size, name in zip(shape, spec, strict=False):
        if name is not None and size % sizes[name]:
            return (
                f"a dim of size {size} is not divisible by the {sizes[name]} devices "
                f"of axis {name}; set another parallel.{name}"
            )
    return None
