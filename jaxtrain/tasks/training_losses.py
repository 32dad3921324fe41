"""Training losses of a batch, including the losses of auxiliary outputs."""

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
    """Compute the loss of each example, (B,), and check its shape.

    Args:
      task: Task that defines `loss`.
      outputs: Outputs of the model.
      target: Result of `Task.target`.
      training: Argument of `Task.loss`.

    Raises:
      UserError: The loss of the task has another shape.
    """
    loss = task.loss(outputs, target, training=training)
    shapes = jax.tree.map(lambda x: x.shape, outputs)
    batch = jax.tree.leaves(outputs)[0].shape[:1]
    if loss.shape != batch:
        raise UserError(
            f"task {type(task).__name__}: the loss has the shape {loss.shape} for "
            f"outputs of shape {shapes}: expected one value per example, shape {batch}"
        )
    return loss


def losses_and_metrics(
    task: "Task", outputs: Any, target: Any
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Compute the training loss of each example, (B,), and metrics of the batch.

    The weighted losses of auxiliary outputs are added to the loss; the metric
    `auxiliary_loss` is their mean. The metrics of the task use the main outputs.

    Args:
      task: Task of the run.
      outputs: Outputs of the model in training mode.
      target: Result of `Task.target`.

    Raises:
      UserError: The shapes of auxiliary and main outputs differ.
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
    """Sum the weighted losses of all auxiliary outputs, per example, (B,).

    Args:
      outputs: Outputs of the model in training mode.
      loss: Function from outputs to the loss of each example, (B,).
      zero: Zeros (B,), to which the losses are added.

    Raises:
      UserError: The shapes of auxiliary and main outputs differ.
    """
    expected = jax.tree.map(np.shape, outputs.outputs)
    for auxiliary in outputs.auxiliary:
        shapes = jax.tree.map(np.shape, auxiliary)
        if shapes != expected:
            raise UserError(
                f"an auxiliary head has outputs of shape {shapes}: expected "
                f"{expected}, the output shape of the model"
            )
        zero += outputs.weight * loss(auxiliary)
    return zero
