"""How much channels matter to a trained model: two criteria.

`taylor` tells, to first order, how a loss changes where a channel becomes zero
(Molchanov et al. 2019, arXiv:1906.10771): by the product of weights and gradients,
summed over the kernels that take the channel. `scale` is the factor that batch norm
multiplies it by (Liu et al. 2017, arXiv:1708.06519); it needs no images.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxtrain.data.image_source import Source
from jaxtrain.data.replacements import read_filled
from jaxtrain.dtypes import widen
from jaxtrain.errors import UserError
from jaxtrain.evaluation.passes import Subject
from jaxtrain.inference.model import TrainedModel
from jaxtrain.parallel import sharding
from jaxtrain.plugins.compact.channels.groups import Axis, ChannelGroup, ChannelMap
from jaxtrain.training.forward import apply_model
from jaxtrain.training.norm_statistics import chosen_images
from jaxtrain.trees import by_path

# By the names of groups: of each unit, float64 (units,), 0 or more; without those that
# a criterion says nothing of.
Importance = dict[str, np.ndarray]


def by_scale(model: TrainedModel, channels: ChannelMap) -> Importance:
    """Return the factors of batch norms, in those of the mean channel of a group.

    Of a group behind several norms they are means over these, of one without it is
    not told.

    Raises:
      UserError: no channels are behind a batch norm.
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
            f"{model.description.model.name!r} are behind a batch norm: choose taylor"
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
    """Return the squared change of the loss, to first order, as channels become zero.

    It is a mean over batches of training images, of which the loss is that of an
    evaluation: so batch norms are those of the trained model.

    Args:
      model: Model with its weights.
      channels: Channels of the model.
      subject: Task that it has learnt, and how images come to it.
      source: Training split of the run.
      batch_size: Number of images of a batch, or of windows of whole images.
      num_images: Number of images at most.

    Raises:
      UserError: the loss is none of single examples, or there are too few images.
    """
    if not subject.task.loss_of_examples:
        raise UserError(
            f"--criterion taylor: the loss of task = {model.description.task!r} is "
            "none of single images: choose --criterion scale"
        )
    devices = model.share(1)
    size = max(devices, model.in_windows(batch_size))
    size = min(size, num_images, len(source)) // devices * devices
    if not size:
        raise UserError(
            f"--images {num_images}: {devices} devices share a batch: give more images"
        )
    axes = sorted({axis for group in channels.groups.values() for axis in group.taken})
    program, totals, count = _products(model, subject, axes), Importance(), 0
    for chosen in chosen_images(len(source), size, num_images):
        batch = jax.tree.map(lambda x: np.asarray(x)[None], read_filled(source, chosen))
        of_axes = jax.device_get(
            program(*model.placed, sharding.put_batch(model.mesh, batch, size))
        )
        count += 1
        for name, group in channels.groups.items():
            change = _of_units(group, of_axes)
            totals[name] = totals.get(name, 0.0) + np.square(change)
    return {name: total / count for name, total in totals.items()}


def _of_units(group: ChannelGroup, of_axes: Mapping[Axis, np.ndarray]) -> np.ndarray:
    """Return the sums over all places that a unit is taken from, float64 (units,)."""
    sums = [
        np.asarray(of_axes[axis], np.float64)[group.indices[axis]].sum(1)
        for axis in group.taken
    ]
    return np.sum([np.zeros(group.num_units), *sums], 0)


def _products(model: TrainedModel, subject: Subject, axes: list[Axis]) -> Any:
    """Return the program of the products of weights and gradients of a batch.

    It returns them summed over all dims of an array but one, for each of the axes.
    """
    task, mesh = subject.task, model.mesh
    apply = functools.partial(apply_model, model.graphdef)
    cpus = mesh if mesh.devices.flat[0].platform == "cpu" else None

    def products(params: Any, model_state: Any, batches: Any) -> dict[Axis, jax.Array]:
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
        return found

    return jax.jit(products, out_shardings=sharding.replicated(model.mesh))
