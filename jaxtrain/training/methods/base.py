"""Interface of a training method, which computes gradients of an objective."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import jax

from jaxtrain import scopes
from jaxtrain.config.base import Section
from jaxtrain.config.part import reset_options
from jaxtrain.data.batch import Batch
from jaxtrain.data.pixel_normalization import Normalization
from jaxtrain.training.transforms.base import Metrics

if TYPE_CHECKING:
    from jaxtrain.tasks.base import Task
    from jaxtrain.training.methods.inputs import MethodContext, MethodInputs

# Function (params, model_state, images, key, *, training=True) -> (outputs, new
# model_state).
TrainForward = Callable[..., tuple[Any, Any]]
# Function (params, model_state, batch, key, *, training=True) -> (losses (B,), metrics,
# new model_state).
Losses = Callable[..., tuple[jax.Array, Metrics, Any]]
# Gradients of the trainable parameters, new model state, and metrics.
Gradients = tuple[Any, Any, Metrics]


@dataclass(frozen=True)
class Objective:
    """Objective function of a training step.

    Attributes:
      losses: Function `(params, model_state, batch, key, *, training=True) -> (losses
        (B,), metrics, new model_state)`; `key` is the model's PRNG key. Without
        `training` the model runs in evaluation mode.
      scale: Loss scale of the gradients; 1 without loss scaling.
      normalization: Mean and standard deviation of the pixel normalization.
      all_reduce: Function that all-reduces gradients over the micro-batch, then applies
        `StepTransform.project`. The all-reduce has an effect only on parameters with a
        separate copy per device.
      norm: Function that computes the global norm of all-reduced gradients, or of
        arrays of the same shapes, in at least float32.
      task: Task of the run, for methods with additional losses.
      forward: Function `(params, model_state, images, key, *, training=True) ->
        (outputs, new model_state)`, one forward pass, for methods with additional
        losses.
      method_arrays: Input arrays of the method (`Method.plan_inputs`), such as teacher
        weights; None for methods without input arrays.
    """

    losses: Losses
    scale: jax.Array
    normalization: Normalization
    all_reduce: Callable[[Any], Any]
    norm: Callable[[Any], jax.Array]
    task: "Task"
    forward: TrainForward
    method_arrays: Any = None

    @scopes.part(scopes.LOSS)
    def __call__(
        self, params: Any, model_state: Any, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, tuple[Any, Metrics]]:
        """Compute the scaled mean loss, and the pair (new model state, metrics)."""
        losses, metrics, model_state = self.losses(params, model_state, batch, key)
        loss = losses.mean()
        return loss * self.scale, (model_state, {**metrics, "loss": loss})

    def pixels(self, images: jax.Array) -> jax.Array:
        """Undo the pixel normalization of images (B, H, W, C), to values in 0..1."""
        return self.normalization.pixels(images)

    def normalized(self, pixels: jax.Array) -> jax.Array:
        """Normalize pixel values in 0..1; the inverse of `pixels`."""
        return self.normalization.normalized(pixels)


class Method:
    """Base class of training methods.

    Options of the config section `method` are the keyword arguments of `__init__`.

    Attributes:
      Options: Frozen dataclass whose fields are the keyword arguments of `__init__`, a
        subclass of `jaxtrain.config.base.Section`. If None, the options of
        `CustomConfig` are passed unchecked. Not inherited if a subclass overrides
        only `__init__`.
    """

    Options: ClassVar[type[Section] | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        reset_options(cls)

    def open(
        self, options: Mapping[str, Any], begun: Mapping[str, Any]
    ) -> tuple["Method", dict[str, Any]]:
        """Open the files that the options name, before the run starts.

        Args:
          options: Options of the method, from the config.
          begun: Options recorded by the resumed run; {} for a new run.

        Returns:
          The method with open files, and the options to record in `config.json`, for
          example with digests of the files.

        Raises:
          UserError: A file is missing, or its digest differs from the expected digest.
        """
        del begun
        return self, {**options}

    def plan_inputs(
        self, context: "MethodContext"
    ) -> tuple["Method", "MethodInputs | None"]:
        """Plan the input arrays of the method, `objective.method_arrays`.

        Returns:
          A method that reads the inputs, and the inputs; (self, None) for a method
          without inputs.

        Raises:
          UserError: The inputs are incompatible with model, task or data of the run.
        """
        del context
        return self, None

    def check(self, task: "Task", name: str) -> None:
        """Check that the method can train a task.

        Args:
          task: Task of the run.
          name: Name of the task in the config.

        Raises:
          UserError: The method does not support the task.
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
        """Compute scaled gradients, new model state and metrics of a micro-batch.

        The function is traced. Random numbers must depend only on `key` and on the
        indices of the examples (`keys.example_keys`), so that results do not depend on
        the number of devices.

        Args:
          objective: Objective to differentiate.
          params: Trainable parameters, nested dicts.
          model_state: Model state before the micro-batch, nested dicts.
          batch: Preprocessed batch: normalized `image` (B, H, W, C); `target` in the
            format of the data source; `index` (B,), indices of the examples.
          key: PRNG key of the micro-batch.
        """
        raise NotImplementedError
