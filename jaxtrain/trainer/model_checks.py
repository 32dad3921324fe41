"""Checks of a model against images, task and devices."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from jaxtrain import config as config_lib, own
from jaxtrain.models.annotations import check_annotations, is_annotated
from jaxtrain.models.base import Model
from jaxtrain.parallel import data_sharding
from jaxtrain.parallel.mesh import SPATIAL_AXES
from jaxtrain.problems import Problem, ProblemList
from jaxtrain.tasks.base import Task
from jaxtrain.tasks.outputs import abstract_outputs
from jaxtrain.training.forward import predict
from jaxtrain.training.state import split_model

if TYPE_CHECKING:
    from jaxtrain.config import Config, DataConfig
    from jaxtrain.models.blueprint import Blueprint


def check_all(
    problems: ProblemList,
    config: Config,
    blueprint: Blueprint | None,
    model: Model | None,
    task: Task | None,
    mesh: Mesh | None,
) -> None:
    """Run all checks of a model against images, task and devices.

    A check is skipped if an earlier problem left one of its arguments None.
    """
    images = None if blueprint is None else blueprint.images(2)
    shape = None if images is None else images.shape[1:]
    problems.check(check_pieces, config, model, mesh)
    problems.check(check_annotations, model, mesh)
    problems.check(check_image_shape, shape, model, mesh)
    problems.check(check_outputs, model, images, task)
    problems.check(check_groups, model, mesh)
    problems.check(check_training_sizes, config.data, model, images, mesh)


def check_pieces(config: Config, model: Model, mesh: Mesh) -> Iterator[Problem]:
    """Check that a plain Flax module supports the options that are set."""
    if model.has_pieces:
        return
    name = config.model.name
    # `check_groups` cannot see the grouped convolutions of Linen modules.
    is_linen = isinstance(model, nnx.bridge.ToNNX)
    split = is_annotated(model, "model") and not is_linen
    needs = {
        **{f"parallel.{x}": mesh.shape[x] != 1 for x in SPATIAL_AXES},
        "parallel.model": mesh.shape["model"] != 1 and not split,
        "parallel.pipeline_stages": config.parallel.pipeline_stages != 1,
        "parallel.batch_norm": config.norm_groups != 1,
        "optimizer.layer_decay": isinstance(config.optimizer.layer_decay, float | int),
    }
    for path, is_used in needs.items():
        if is_used:
            yield Problem(
                f"{path} = {config_lib.get(config, path)!r} requires a model of "
                "pieces (a subclass of jaxtrain.models.base.Model), but model.name = "
                f"{name!r} is a plain Flax module: leave {path} out",
                (path, "model.name"),
            )


def check_image_shape(
    shape: tuple[int, ...], model: Model, mesh: Mesh
) -> Iterator[Problem]:
    """Check that spatial sharding divides the rows and columns of (H, W, C) images."""
    sides = ("height", "spatial"), ("width", "spatial_width")
    for size, (side, axis) in zip(shape, sides, strict=False):
        devices, stride = mesh.shape[axis], model.stride
        if devices == 1:
            continue
        reason = f"parallel.{axis} = {devices} times the model's stride of {stride}"
        hint, divisor = "; see data.image_size", devices * stride
        yield from data_sharding.check_divisible(
            f"image {side}", size, divisor, reason + hint, f"parallel.{axis}"
        )
        least = divisor * model.min_share
        if size < least and not size % divisor:
            yield Problem(
                f"image {side} = {size} is too small for parallel.{axis} = {devices}: "
                f"each device needs at least {model.min_share} rows or columns of the "
                f"last layer's output, so the image {side} must be at least {least} "
                f"pixels{hint}",
                (f"parallel.{axis}",),
            )


def check_groups(model: Model, mesh: Mesh) -> Iterator[Problem]:
    """Check that the `model` axis splits the channels of grouped convolutions evenly.

    Otherwise, if other axes shard the batch, XLA (jax 0.10.2) multiplies the gradient
    of the kernel by the size of the `model` axis.
    """
    devices = mesh.shape["model"]
    if devices == 1:
        return
    for path, layer in nnx.iter_modules(model):
        if not isinstance(layer, nnx.Conv) or layer.feature_group_count == 1:
            continue
        split = layer.kernel.get_metadata("split_dim", None) == -1
        if split and layer.out_features % devices == 0:
            continue
        name = f"the grouped convolution {'/'.join(map(str, path))}"
        reason, fix = f"{name} is not sharded", "set parallel.model = 1"
        if split:
            reason = f"it does not divide the {layer.out_features} channels of {name}"
            fix = "set another value"
        yield Problem(
            f"parallel.model = {devices}: {reason}, so XLA would compute a wrong "
            f"gradient; {fix}",
            ("parallel.model",),
        )
        return


def check_outputs(
    model: Model, images: jax.ShapeDtypeStruct, task: Task
) -> Iterator[Problem]:
    """Check the output shape of an abstract model against the task."""
    graphdef, params, model_state = split_model(model)
    forward = partial(predict, graphdef)
    try:
        found = jax.eval_shape(forward, params, model_state, images)
    except (TypeError, ValueError, AttributeError) as error:
        yield Problem(
            f"model {type(model).__name__} fails on images of shape {images.shape}: "
            f"{own.describe_error(error)}"
        )
        return
    wanted = abstract_outputs(task, images.shape[:1], images.dtype)
    shapes, expected = (jax.tree.map(np.shape, tree) for tree in (found, wanted))
    if shapes != expected:
        yield Problem(
            f"the model's output shape is {shapes} for images {images.shape}: "
            f"expected {expected}, as the task requires; choose another model.name, or "
            "a custom model that accepts output_spec (docs/extending.md)"
        )


def check_training_sizes(
    config: DataConfig, model: Model, images: jax.ShapeDtypeStruct, mesh: Mesh
) -> Iterator[Problem]:
    """Check that a model supports all image sizes of the training."""
    graphdef, params, model_state = split_model(model)
    name = "progressive_sizes" if config.progressive_sizes else "train_image_size"
    for size in config.training_sizes:
        if size < model.min_size:
            yield Problem(
                f"data.{name} = {getattr(config, name)}: the model requires images of "
                f"at least {model.min_size}x{model.min_size} pixels; set a larger size",
                (f"data.{name}",),
            )
            continue
        shape = (size, size, images.shape[-1])
        yield from check_image_shape(shape, model, mesh)
        smaller = jax.ShapeDtypeStruct((images.shape[0], *shape), images.dtype)
        try:
            jax.eval_shape(partial(predict, graphdef), params, model_state, smaller)
        except (TypeError, ValueError):
            yield Problem(
                f"data.{name} = {getattr(config, name)}: the model supports only "
                f"images of {images.shape[1]}x{images.shape[2]} pixels; choose another "
                f"model.name, or leave data.{name} out",
                (f"data.{name}",),
            )
