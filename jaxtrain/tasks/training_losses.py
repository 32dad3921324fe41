"""Losses of the examples of a batch, checked, with those of auxiliary outputs."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.errors import UserError
from jaxtrain.models.auxiliary import WithAuxiliary

if TYPE_CHECKING:
    from jaxtrain.tasks.base import Task


def checked_loss(
    task: "Task", outputs: Any, target: Any, *, training: bool
) -> jax.Array:
    """Return the loss of each example, (B,).

    Args:
      task: Task with the `loss`.
      outputs: Outputs of the model.
      target: What `Task.target` returned.
      training: As in `Task.loss`.

    Raises:
      UserError: The loss of the task has another shape.
    """
    loss = task.loss(outputs, target, training=training)
    shapes = jax.tree.map(lambda x: x.shape, outputs)
    batch = jax.tree.leaves(outputs)[0].shape[:1]
    if loss.shape != batch:
        raise UserError(
            f"the loss of {type(task).__name__} has the shape {loss.shape} for "
            f"outputs {shapes}: expected one value an example, {batch}"
        )
    return loss


def losses_and_metrics(
    task: "Task", outputs: Any, target: Any
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the training loss of each example, (B,), and metrics of the batch.

    Auxiliary outputs add their losses, times their weight, and their mean as a metric.
    The metrics of the task are those of the main outputs.

    Args:
      task: Task that is learnt.
      outputs: Outputs of the model in training mode.
      target: What `Task.target` returned.

    Raises:
      UserError: Auxiliary outputs have another shape than the main ones.
    """
    if not isinstance(outputs, WithAuxiliary):
        losses = checked_loss(task, outputs, target, training=True)
        return losses, task.train_metrics(outputs, target)
    losses, metrics = losses_and_metrics(task, outputs.outputs, target)
    loss = partial(checked_loss, task, target=target, training=True)
    added = auxiliary_losses(outputs, loss, jnp.zeros_like(losses))
    return losses + added, {**metrics, "auxiliary_loss": added.mean()}


def auxiliary_losses(
    outputs: WithAuxiliary, loss: Callable[[Any], jax.Array], zero: jax.Array
) -> jax.Array:
    """Return the losses of auxiliary outputs, times their weight, of each example.

    Args:
      outputs: Outputs of the model in training mode.
      loss: Function of outputs that returns the loss of each example, (B,).
      zero: Zeros to which the losses are added, (B,).

    Raises:
      UserError: Auxiliary outputs have another shape than the main ones.
    """
    expected = jax.tree.map(np.shape, outputs.outputs)
    for auxiliary in outputs.auxiliary:
        shapes = jax.tree.map(np.shape, auxiliary)
        if shapes != expected:
            raise UserError(
                f"an auxiliary head puts out {shapes}, the model {expected}: "
                "expected the same"
            )
        zero += outputs.weight * loss(auxiliary)
    return zero
