"""The pure evaluation step: a function of plain pytrees, to be jitted."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain import keys
from jaxtrain.data.batch import Batch, Preprocess
from jaxtrain.parallel.sharding import Layout
from jaxtrain.tasks.base import Sums, Task
from jaxtrain.training.forward import predict
from jaxtrain.training.views import View, plain


def make_eval_step(
    task: Task,
    graphdef: Any,
    preprocess: Preprocess,
    layout: Layout,
    view: View = plain,
    size: tuple[int, int] | None = None,
) -> Callable[[Any, Any, Sums, Any, Batch], tuple[Sums, dict[str, Any]]]:
    """Return `(params, model_state, sums, data, batches) -> (sums, kept)`.

    Dropout is off. The outputs are those of a `view` of the prepared images, of which
    the model takes those of a `size`; None: of theirs. See `add_batch` for what it
    returns.
    """

    def eval_step(
        params: Any, model_state: Any, sums: Sums, data: Any, batches: Batch
    ) -> tuple[Sums, dict[str, Any]]:
        batch = prepare_plain(preprocess, data, batches)
        params = layout.whole_params(params)
        images = batch["image"]

        def apply(images: jax.Array) -> Any:
            shared = layout.images(images)
            return predict(graphdef, params, model_state, shared, mesh=layout.mesh)

        outputs = view(apply, images, size or images.shape[1:3])
        target, mask = task.target(batch), batch["mask"]
        return add_batch(task, sums, outputs, target, mask)

    return eval_step


def prepare_plain(preprocess: Preprocess, data: Any, batches: Batch) -> Batch:
    """Prepare the one batch of `batches`, (1, B, ...) each, without randomness."""
    batch = jax.tree.map(lambda x: x[0], batches)
    unused = jnp.zeros((), jnp.int32)
    return preprocess(data, batch, keys.root_key(0), unused)


def add_batch(
    task: Task, sums: Sums, outputs: Any, target: Any, mask: jax.Array
) -> tuple[Sums, dict[str, Any]]:
    """Return sums with those of a batch, and its `mask` and what is `kept` of it.

    The latter is {} unless there are metrics that keep something.
    """
    new = task.sums(outputs, target, mask)
    kept = task.kept(outputs, target)
    some = {"mask": mask, "kept": kept} if kept else {}
    return jax.tree.map(jnp.add, sums, new), some
