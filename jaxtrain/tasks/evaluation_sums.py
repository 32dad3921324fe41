"""Parts of an evaluation that a task finds in a batch. Traced."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain.tasks.base import Sums, Task
from jaxtrain.tasks.metrics import first_names


def sums_of(task: Task, outputs: Any, target: Any, mask: jax.Array) -> Sums:
    """Sum the loss and the metrics over the examples of a batch.

    Args:
      task: Task that the model has learnt.
      outputs: Outputs of the model, of the shapes of `Task.output_spec`.
      target: What `Task.target` returned.
      mask: (B,) of 0 and 1; 0 marks padding.
    """
    labelled = task.labelled(target)
    if labelled is not None:
        mask = jnp.where(labelled, mask, 0)
    mask = mask.astype(jnp.int32)
    loss = task.checked_loss(outputs, target, training=False)
    adds = first_names(task.all_metrics(), "add")
    return {
        "loss": jnp.sum(jnp.where(mask > 0, loss, 0.0)),
        **{name: add(outputs, target, mask) for add, name in adds.items()},
        "num_examples": jnp.sum(mask, dtype=jnp.int32),
    }


def kept_of(task: Task, outputs: Any, target: Any) -> dict[str, Any]:
    """Return what metrics keep of each example of a batch, (B, ...) each.

    It is named as what is summed: after the first metric that it is for.

    Args:
      task: Task that the model has learnt.
      outputs: Outputs of the model, of the shapes of `Task.output_spec`.
      target: What `Task.target` returned.
    """
    keeps = first_names(task.all_metrics(), "keep")
    return {name: keep(outputs, target) for keep, name in keeps.items()}
