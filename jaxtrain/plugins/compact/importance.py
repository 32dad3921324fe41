"""Importance of channels, by two criteria.

`taylor` is the first-order change of the loss when a channel becomes zero (Molchanov et
al. 2019, arXiv:1906.10771): the product of weights and gradients, summed over the
kernels that read the channel. `scale` is the channel's batch-norm scale (Liu et al.
2017, arXiv:1708.06519); this criterion needs no images.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxtrain.data.batch import Batch
from jaxtrain.data.datasets import Dataset
from jaxtrain.data.defects import Defects
from jaxtrain.data.image_source import Source
from jaxtrain.data.loader import chosen_batches
from jaxtrain.dtypes import widen
from jaxtrain.errors import UserError
from jaxtrain.evaluation.evaluate import Apply, ModelView, compiler, evaluate
from jaxtrain.evaluation.reducers import MeanOfBatches
from jaxtrain.inference.model import TrainedModel
from jaxtrain.plugins.compact.channels.groups import Axis, ChannelGroup, ChannelMap
from jaxtrain.tools.evaluation.passes import Subject
from jaxtrain.training.forward import apply_model
from jaxtrain.training.norm_statistics import chosen_images
from jaxtrain.trees import by_path

# Purpose of the compiled program, for out-of-memory messages.
PURPOSE = "a batch for the importance of channels"
# Group name -> importance of each unit (see `ChannelGroup`), non-negative, float64
# (units,). Groups to which the criterion does not apply are absent.
Importance = dict[str, np.ndarray]


def by_scale(model: TrainedModel, channels: ChannelMap) -> Importance:
    """Return the absolute batch-norm scale of each unit, relative to its group's mean.

    Scales are averaged over the batch norms of a group. Groups without batch norms are
    omitted.

    Raises:
      UserError: No group has a batch norm.
    """
    norms = {
        "/".join(map(str, (*path, "scale")))
        for path, layer in nnx.iter_modules(model.description.abstract)
        if isinstance(layer, nnx.BatchNorm)
    }
    params = {
        path: np.abs(np.asarray(x, np.float64))
        for path, x in by_path(model.params).items()
    }
    found = {}
    for name, group in channels.groups.items():
        scales = [
            params[path][indices].mean(1)
            for (path, _), indices in group.indices.items()
            if path in norms and path in params
        ]
        if scales:
            scale = np.mean(scales, 0)
            found[name] = scale / max(scale.mean(), np.finfo(np.float64).tiny)
    if not found:
        raise UserError(
            f"--criterion scale: no channels of model.name = "
            f"{model.description.model.name!r} are followed by a batch norm: choose "
            "--criterion taylor"
        )
    return found


def by_taylor(
    model: TrainedModel,
    channels: ChannelMap,
    subject: Subject,
    source: Source,
    batch_size: int,
    num_images: int,
) -> Importance:
    """Return the squared first-order change of the loss when a unit becomes zero.

    Squares are averaged over batches of training images. The model is in evaluation
    mode, so that batch norms use running statistics.

    Args:
      model: Model with weights.
      channels: Channels of the model.
      subject: Task and preprocessing of the model.
      source: Training split of the run.
      batch_size: Number of images or sliding windows per batch.
      num_images: Maximum number of images.

    Raises:
      UserError: The task has no loss per example, or there are too few images.
    """
    if not subject.task.loss_of_examples:
        raise UserError(
            f"--criterion taylor: task = {model.description.task!r} has no loss per "
            "example: choose --criterion scale"
        )
    devices = model.share(1)
    size = max(devices, model.in_windows(batch_size))
    size = min(size, num_images, len(source)) // devices * devices
    if not size:
        raise UserError(
            f"--images {num_images}: a batch needs an image for each of the {devices} "
            f"devices; give --images {devices} or more"
        )
    axes = sorted({axis for group in channels.groups.values() for axis in group.taken})

    def squares(of_axes: Mapping[Axis, np.ndarray]) -> Importance:
        found = {
            n: _sum_per_unit(group, of_axes) for n, group in channels.groups.items()
        }
        return {name: np.square(change) for name, change in found.items()}

    mesh, data = model.mesh, subject.data
    program = compiler(_products(model, subject, axes), mesh, PURPOSE, together=False)
    view = ModelView(weights=model.placed, mesh=mesh, program=program)
    dataset = Dataset(source, {}, Defects("train", len(source), 1.0))
    chosen = chosen_images(len(source), size, num_images)
    (importance,) = evaluate(
        view,
        dataset,
        [MeanOfBatches(squares)],
        data,
        batch_size=size,
        batches=chosen_batches(data, dataset, mesh, chosen),
    )
    return importance


def _sum_per_unit(
    group: ChannelGroup, of_axes: Mapping[Axis, np.ndarray]
) -> np.ndarray:
    """Sum the values of each unit over the kernels that read it, float64 (units,)."""
    sums = [
        np.asarray(of_axes[axis], np.float64)[group.indices[axis]].sum(1)
        for axis in group.taken
    ]
    return np.sum([np.zeros(group.num_units), *sums], 0)


def _products(model: TrainedModel, subject: Subject, axes: list[Axis]) -> Apply:
    """Return a function that multiplies weights by their gradients on a batch.

    For each (path, dim) of `axes`, the products are summed over all other dims.
    """
    task, mesh = subject.task, model.mesh
    apply = functools.partial(apply_model, model.graphdef)
    cpus = mesh if mesh.devices.flat[0].platform == "cpu" else None

    def products(weights: Any, data: Any, batches: Batch) -> tuple[Any, Batch]:
        params, model_state = weights
        batch = jax.tree.map(lambda x: x[0], batches)
        batch = subject.fitted(batch)
        images = model.prepare(batch["image"])
        target = task.target({**batch, "image": images})

        def loss(params: Any) -> jax.Array:
            def outputs_of(images: jax.Array) -> Any:
                return apply(params, model_state, images, training=False, cpus=cpus)[0]

            with jax.default_matmul_precision(model.policy.products):
                outputs = model.view(outputs_of, images, model.image_shape[:2])
            return task.loss(widen(outputs), target, training=False).mean()

        grads, arrays = by_path(jax.grad(loss)(params)), by_path(params)
        found = {}
        for path, dim in axes:
            product = (grads[path] * arrays[path]).astype(jnp.result_type(jnp.float32))
            others = tuple(d for d in range(product.ndim) if d != dim)
            found[path, dim] = product.sum(others)
        return found, batch

    return products
