"""Checks of a model against images, task and devices: told at once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from jaxtrain.errors import UserError
from jaxtrain.models.base import Model
from jaxtrain.parallel import data_sharding
from jaxtrain.tasks.base import Task
from jaxtrain.training.forward import predict
from jaxtrain.training.state import split_model

if TYPE_CHECKING:
    from jaxtrain.config import DataConfig


def check_model(
    config: DataConfig,
    model: Model,
    images: jax.ShapeDtypeStruct,
    task: Task,
    mesh: Mesh,
) -> None:
    """Check that a model fits images (B, H, W, C), the task and the devices."""
    check_image_shape(images.shape[1:], model, mesh)
    check_outputs(model, images, task)
    check_groups(model, mesh)
    check_training_sizes(config, model, images, mesh)


def check_image_shape(shape: tuple[int, ...], model: Model, mesh: Mesh) -> None:
    """Check that the devices can share the rows and columns of (H, W, C) images."""
    sides = ("height", "spatial"), ("width", "spatial_width")
    for size, (side, axis) in zip(shape, sides, strict=False):
        devices, stride = mesh.shape[axis], model.stride
        if devices == 1:
            continue
        reason = f"parallel.{axis} = {devices} times the model's stride of {stride}"
        hint, divisor = "; see data.image_size", devices * stride
        data_sharding.check_divisible(f"image {side}", size, divisor, reason + hint)
        least = divisor * model.min_share
        if size < least:
            raise UserError(
                f"image {side} = {size} is too small for parallel.{axis} = {devices}: "
                f"each device needs {model.min_share} rows or columns of the last "
                f"layer, {least} pixels in all{hint}"
            )


def check_groups(model: Model, mesh: Mesh) -> None:
    """Check that the `model` axis splits the convolutions of groups evenly.

    If images share the other devices, and their channels are whole, XLA (jax 0.10.2)
    multiplies the gradient of such a kernel by the size of this axis.
    """
    devices = mesh.shape["model"]
    if devices == 1:
        return
    for path, layer in nnx.iter_modules(model):
        if not isinstance(layer, nnx.Conv) or layer.feature_group_count == 1:
            continue
        split = layer.kernel.get_metadata("split_dim", None) == -1
        if not split or layer.out_features % devices:
            raise UserError(
                f"parallel.model = {devices} does not split the {layer.out_features} "
                f"channels of {'/'.join(map(str, path))}, a convolution of groups, and "
                "XLA then computes its gradient wrongly; "
                + ("set another" if split else "set parallel.model = 1")
            )


def check_outputs(model: Model, images: jax.ShapeDtypeStruct, task: Task) -> None:
    """Check that an abstract model puts out what the task says, for some images."""
    graphdef, params, model_state = split_model(model)
    found = jax.eval_shape(partial(predict, graphdef), params, model_state, images)
    wanted = task.abstract_outputs(images.shape[:1], images.dtype)
    shapes, expected = (jax.tree.map(np.shape, tree) for tree in (found, wanted))
    if shapes != expected:
        raise UserError(
            f"the model puts out {shapes} for images {images.shape}: expected "
            f"{expected}, as the task says; choose another model.name, or one of your "
            "own that takes output_spec (docs/extending.md)"
        )


def check_training_sizes(
    config: DataConfig, model: Model, images: jax.ShapeDtypeStruct, mesh: Mesh
) -> None:
    """Check that a model takes images (B, H, W, C) of each size of the run."""
    graphdef, params, model_state = split_model(model)
    name = "progressive_sizes" if config.progressive_sizes else "train_image_size"
    for size in config.training_sizes:
        if size < model.min_size:
            raise UserError(
                f"data.{name} = {getattr(config, name)}: the model takes images from "
                f"{model.min_size}x{model.min_size} pixels up"
            )
        shape = (size, size, images.shape[-1])
        check_image_shape(shape, model, mesh)
        smaller = jax.ShapeDtypeStruct((images.shape[0], *shape), images.dtype)
        try:
            jax.eval_shape(partial(predict, graphdef), params, model_state, smaller)
        except (TypeError, ValueError) as error:
            raise UserError(
                f"data.{name} = {getattr(config, name)}: the model takes images of "
                f"{images.shape[1]}x{images.shape[2]} pixels only; choose another "
                "model.name, or leave it out"
            ) from error
