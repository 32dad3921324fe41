"""What a method is given, and what it returns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import jax

from jaxtrain import scopes
from jaxtrain.config.base import Section
from jaxtrain.data.batch import Batch
from jaxtrain.data.pixel_normalization import Normalization
from jaxtrain.training.transforms.base import Metrics

if TYPE_CHECKING:
    from jaxtrain.tasks.base import Task
    from jaxtrain.training.methods.inputs import MethodContext, MethodInputs

# (params, model_state, images, key, *, training=True) -> (outputs, new model_state).
TrainForward = Callable[..., tuple[Any, Any]]
# (params, model_state, batch, key, *, training=True) -> (losses (B,), metrics, new
# model_state).
Losses = Callable[..., tuple[jax.Array, Metrics, Any]]
# Gradients of the trained parameters, new model state, metrics.
Gradients = tuple[Any, Any, Metrics]


@dataclass(frozen=True)
class Objective:
    """What a step lowers, as a function of the trained parameters.

    Attributes:
      losses: Function `(params, model_state, batch, key, *, training=True) -> (losses
        (B,), metrics, new model_state)`; `key` is for what is random in the model.
        Without `training` the model computes as it is evaluated.
      scale: Factor on the loss that its gradients carry, so that float16 does not round
        them to 0; 1 without a loss scale.
      normalization: Statistics that the images of a batch are normalised with.
      whole: Function of the gradients of the trained parameters that returns those of
        the whole micro-batch, after `StepTransform.project`. They differ where
        each device trains copies of its own.
      norm: Function of such whole gradients, or of what has their shapes, to the norm
        of all of them, in at least float32.
      task: Task of the run, for a method that has losses of its own.
      forward: Function `(params, model_state, images, key, *, training=True) ->
        (outputs, new model_state)`, one pass, for the same.
      beside: Arrays that the method reads beside the model (`Method.plan_inputs`), such
        as the weights of another one; None: it reads none.
    """

    losses: Losses
    scale: jax.Array
    normalization: Normalization
    whole: Callable[[Any], Any]
    norm: Callable[[Any], jax.Array]
    task: "Task"
    forward: TrainForward
    beside: Any = None

    @scopes.part(scopes.LOSS)
    def __call__(
        self, params: Any, model_state: Any, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, tuple[Any, Metrics]]:
        """Return the scaled mean loss, and the new model state and all metrics."""
        losses, metrics, model_state = self.losses(params, model_state, batch, key)
        loss = losses.mean()
        return loss * self.scale, (model_state, {**metrics, "loss": loss})

    def pixels(self, images: jax.Array) -> jax.Array:
        """Return images (B, H, W, C) in 0..1 for those of a batch."""
        return self.normalization.pixels(images)

    def normalized(self, pixels: jax.Array) -> jax.Array:
        """Return images of a batch for those in 0..1, the inverse of `pixels`."""
        return self.normalization.normalized(pixels)


class Method:
    """How a step gets its gradients from an objective.

    A user's own is created with the options of `train.method_options`.

    Attributes:
      Options: Frozen dataclass, a `jaxtrain.config.base.Section`, of the keywords that
        `__init__` takes; None for a method of the table means that it takes none.
    """

    Options: ClassVar[type[Section] | None] = None

    def open(
        self, options: Mapping[str, Any], begun: Mapping[str, Any]
    ) -> tuple["Method", dict[str, Any]]:
        """Open the files that the options name, before anything else of the run.

        Args:
          options: Options of the method, as the config has them.
          begun: Those of the run that is resumed; {} for a new one.

        Returns:
          The method with the opened files, and the options that `config.json` records,
          such as with digests.

        Raises:
          UserError: A file is not there, or not the one that was meant.
        """
        del begun
        return self, {**options}

    def plan_inputs(
        self, context: "MethodContext"
    ) -> tuple["Method", "MethodInputs | None"]:
        """Plan the arrays that the step takes for the method: `objective.beside`.

        Returns:
          The method with what it needs to read them, and the arrays; None: it reads
          none.

        Raises:
          UserError: They do not fit the run.
        """
        del context
        return self, None

    def check(self, task: "Task", name: str) -> None:
        """Check that the method can train a task.

        Args:
          task: Task of the run.
          name: Its name in the config.

        Raises:
          UserError: It cannot.
        """

    def gradients(
        self,
        objective: Objective,
        params: Any,
        model_state: Any,
        batch: Batch,
        key: jax.Array,
        /,
    ) -> Gradients:
        """Return scaled gradients, the new state of the model, and metrics. Traced.

        It sees one micro-batch. What it draws must depend on `key` and on the numbers
        of the examples alone, so that the devices do not matter (`keys.example_keys`).

        Args:
          objective: What is lowered; what it returns first is what is differentiated.
          params: Trained parameters, nested dicts.
          model_state: State of the model before the micro-batch, nested dicts.
          batch: Prepared batch: `image` (B, H, W, C), normalised; `target`, as it is
            stored; `index` (B,), the numbers of the examples.
          key: Key of the micro-batch.
        """
        raise NotImplementedError
