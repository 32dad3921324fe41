"""Evaluation step: a pure function of pytrees, to be jitted."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain import keys
from jaxtrain.data.batch import Batch, Preprocess
from jaxtrain.parallel.layout import Layout
from jaxtrain.tasks.base import Task
from jaxtrain.training.forward import predict
from jaxtrain.training.views import View, plain


def make_apply(
    task: Task,
    graphdef: Any,
    preprocess: Preprocess,
    layout: Layout,
    view: View = plain,
    size: tuple[int, int] | None = None,
) -> Callable[[Any, Any, Batch], tuple[Any, Batch]]:
    """Create the forward-pass function of evaluations, without dropout.

    Args:
      task: Task of the run; computes the target of a batch.
      graphdef: Structure of the model.
      preprocess: Preprocessing of evaluation batches.
      layout: Layout of the run.
      view: Test-time augmentation of the preprocessed images.
      size: Height and width of the model's input. Defaults to the size of the
        preprocessed images.

    Returns:
      Function `((params, model_state), data, batches) -> (outputs, batch)`, where
      `batch` has the preprocessed images and the target of the task.
    """

    def apply_to_batch(weights: Any, data: Any, batches: Batch) -> tuple[Any, Batch]:
        batch = prepare_plain(preprocess, data, batches)
        params, model_state = layout.gather_params(weights[0]), weights[1]
        images = batch["image"]

        def apply(images: jax.Array) -> Any:
            shared = layout.images(images)
            return predict(graphdef, params, model_state, shared, mesh=layout.mesh)

        outputs = view(apply, images, size or images.shape[1:3])
        return outputs, {**batch, "target": task.target(batch)}

    return apply_to_batch


def prepare_plain(preprocess: Preprocess, data: Any, batches: Batch) -> Batch:
    """Preprocess a batch without random augmentation: (1, B, ...) -> (B, ...)."""
    batch = jax.tree.map(lambda x: x[0], batches)
    unused = jnp.zeros((), jnp.int32)
    return preprocess(data, batch, keys.root_key(0), unused)
