"""Metrics of a task, their directions, and their sums over a batch."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain.tasks.base import Sums, Task
from jaxtrain.tasks.metrics import Goal, Metric, first_names, goal_of
from jaxtrain.tasks.training_losses import checked_loss


def all_metrics(task: Task) -> Mapping[str, Metric]:
    """Metrics of a task by name, including custom metrics."""
    return {**task.metrics(), **task.own_metrics}


def goal(task: Task, field: str, metric: str) -> Goal:
    """Return the `Goal` of a metric, which the config field `field` selects.

    Raises:
      UserError: The metric is unknown or has no direction.
    """
    return goal_of(all_metrics(task), field, metric)


def main_goal(task: Task) -> Goal:
    """Main metric of a task, with its direction."""
    return goal(task, "best_metric", task.best_metric)


def sums_of(task: Task, outputs: Any, target: Any, mask: jax.Array) -> Sums:
    """Sum the loss and the metrics over the examples of a batch. Traced.

    Args:
      task: Task of the model.
      outputs: Outputs of the model, with the shapes in `Task.output_spec`.
      target: Result of `Task.target`.
      mask: Mask of the examples, (B,); 0 for padding, else 1.
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
    """Return the results of the metrics' `keep` functions, by metric name. Traced.

    Metrics with the same function share an entry, named after the first metric.

    Args:
      task: Task of the model.
      outputs: Outputs of the model, with the shapes in `Task.output_spec`.
      target: Result of `Task.target`.
    """
    keeps = first_names(all_metrics(task), "keep")
    return {name: keep(outputs, target) for keep, name in keeps.items()}
