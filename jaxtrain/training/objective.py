"""Factory for the objective functions of training steps."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax

from jaxtrain.data.batch import Batch
from jaxtrain.data.pixel_normalization import Normalization
from jaxtrain.parallel.layout import Layout
from jaxtrain.training.forward import apply_model
from jaxtrain.training.frozen import merge
from jaxtrain.training.methods.base import Objective
from jaxtrain.training.phase import Phase
from jaxtrain.training.state import TrainState
from jaxtrain.training.transforms.base import Metrics, overrides

if TYPE_CHECKING:
    from jaxtrain.tasks.base import Task


@dataclass(frozen=True)
class MakeObjective:
    """Factory that makes the objective of each step in a phase.

    Attributes:
      task: Task of the run.
      graphdef: Structure of the model.
      phase: Phase of the steps.
      layout: Layout of the run.
      part: Slice of `Model.pieces` to apply to the images.
      normalization: Mean and standard deviation of the pixel normalization.
    """

    task: "Task"
    graphdef: Any
    phase: Phase
    layout: Layout
    part: slice
    normalization: Normalization

    def __call__(
        self, state: TrainState, rest: Any, scale: jax.Array, method_arrays: Any = None
    ) -> Objective:
        """Make the objective of a step.

        Args:
          state: State before the step.
          rest: Frozen parameters, from `layout.trained_params`.
          scale: Loss scale of the gradients.
          method_arrays: Input arrays of the method (see `MethodInputs`).
        """
        task = self.task
        average = self._trained_average(state) if task.reads_average else None
        forward = partial(self._forward, rest)

        def averaged(
            model_state: Any, images: Any, key: jax.Array, *, training: bool
        ) -> tuple[Any, Any]:
            assert average is not None, (
                "the task must declare that it reads the average"
            )
            weights = jax.lax.stop_gradient(average)
            return forward(weights, model_state, images, key, training=training)

        def losses(
            params: Any,
            model_state: Any,
            batch: Batch,
            key: jax.Array,
            *,
            training: bool = True,
        ) -> tuple[jax.Array, Metrics, Any]:
            def of_images(images: Any, key: jax.Array, *, average: bool = False) -> Any:
                apply = averaged if average else partial(forward, params)
                return apply(model_state, images, key, training=training)

            return task.objective(of_images, batch, key)

        return Objective(
            losses,
            scale,
            self.normalization,
            partial(self._reduce_and_project, state),
            self.layout.all_reduced_norm,
            task,
            forward,
            method_arrays,
        )

    def _forward(
        self,
        rest: Any,
        params: Any,
        model_state: Any,
        images: Any,
        key: jax.Array,
        *,
        training: bool = True,
    ) -> tuple[Any, Any]:
        return apply_model(
            self.graphdef,
            merge(params, rest),
            model_state,
            images,
            key,
            part=self.part,
            frozen=self.phase.frozen,
            copies=self.layout.copies,
            remat=self.phase.remat,
            cpus=self.layout.cpus,
            training=training,
        )

    def _reduce_and_project(self, state: TrainState, grads: Any) -> Any:
        grads = self.layout.all_reduce_grads(grads)
        for transform in self.phase.transforms:
            if overrides(transform, "project"):
                name = transform.name
                extra = self.layout.gather_extra(name, state.extras[name])
                grads = transform.project(grads, extra)
        return grads

    def _trained_average(self, state: TrainState) -> Any:
        """Averages of the trainable parameters, in the dtypes of the parameters."""
        average = jax.tree.map(
            lambda x, p: x.astype(p.dtype), state.eval_params, state.params
        )
        return self.phase.frozen.partition(self.layout.trained_params(average))[0]
