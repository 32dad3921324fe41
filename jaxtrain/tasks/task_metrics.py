"""Metrics of a task, their goals, and their sums over a batch."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain.tasks.base import Sums, Task
from jaxtrain.tasks.metrics import Goal, Metric, first_names, goal_of
from jaxtrain.tasks.training_losses import checked_loss


def all_metrics(task: Task) -> Mapping[str, Metric]:
    """Return the metrics of a task, and the user's own."""
    return {**task.metrics(), **task.own_metrics}


def goal(task: Task, field: str, metric: str) -> Goal:
    """Return the goal of the metric that a field of the config names.

    Raises:
      UserError: it is not known, or ranks nothing.
    """
    return goal_of(all_metrics(task), field, metric)


def main_goal(task: Task) -> Goal:
    """Return the goal of the main metric of a task."""
    return goal(task, "best_metric", task.best_metric)


def sums_of(task: Task, outputs: Any, target: Any, mask: jax.Array) -> Sums:
    """Sum the loss and the metrics over the examples of a batch. Traced.

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
    loss = checked_loss(task, outputs, target, training=False)
    adds = first_names(all_metrics(task), "add")
    return {
        "loss": jnp.sum(jnp.where(mask > 0, loss, 0.0)),
        **{name: add(outputs, target, mask) for add, name in adds.items()},
        "num_examples": jnp.sum(mask, dtype=jnp.int32),
    }


def kept_of(task: Task, outputs: Any, target: Any) -> dict[str, Any]:
    """Return what metrics keep of each example of a batch, (B, ...) each. Traced.

    It is named as what is summed: after the first metric that it is for.

    Args:
      task: Task that the model has learnt.
      outputs: Outputs of the model, of the shapes of `Task.output_spec`.
      target: What `Task.target` returned.
    """
    keeps = first_names(all_metrics(task), "keep")
    return {name: keep(outputs, target) for keep, name in keeps.items()}
