"""Compiled programs of one pipeline stage."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxtrain.models.remat import compiler_options
from jaxtrain.parallel.data_sharding import replicated
from jaxtrain.plugins.pipeline.cut import Stage
from jaxtrain.tasks.base import Task
from jaxtrain.tasks.training_losses import losses_and_metrics
from jaxtrain.training.compiled import Compiled
from jaxtrain.training.forward import apply_model
from jaxtrain.training.frozen import merge
from jaxtrain.training.kernels import squares
from jaxtrain.training.phase import Phase
from jaxtrain.training.state import TrainState
from jaxtrain.training.transforms.base import Metrics
from jaxtrain.training.update import (
    apply_gradients,
    checked,
    loss_factor,
    mean_grads,
    optimize,
    zero_grads,
)


class StagePrograms(NamedTuple):
    """Programs of one stage, with their signatures.

    Attributes:
      zeros: `params -> total`, the initial sum of gradients.
      forward: `(params, model_state, x, key, target) -> (y, pullback, model_state,
        metrics)`. The `pullback` holds the residuals; it is None without a backward
        pass. In the last stage `y` is the scaled loss, and `target` is the pair
        (`loss_scales`, targets). In other stages `target` and `metrics` are empty.
      backward: `(total, pullback, dy) -> (total, dx)`, with the gradients added to
        `total`.
      sum_up: `(state, total) -> (grads, grad_sum)`, the mean gradients and their sum of
        squares.
      measure: `(state, root_key, grads, model_state, grad_sums) -> param_sum`, the sum
        of squares of all arrays that must be finite after the step.
      apply: `(state, root_key, grads, model_state, metrics, grad_sums, param_sums) ->
        (state, metrics)`. The input `metrics` are a list over micro-batches, and the
        sums are lists over stages.
    """

    zeros: Compiled
    forward: Compiled
    backward: Compiled
    sum_up: Compiled
    measure: Compiled
    apply: Compiled


def make_programs(
    stage: Stage,
    task: Task,
    phase: Phase,
    shardings: Any,
    *,
    is_last: bool,
    has_backward: bool,
    returns_input_grads: bool,
) -> StagePrograms:
    """Create the programs of a stage.

    Args:
      stage: Stage to create the programs for.
      task: Task of the run.
      phase: Training phase of the step.
      shardings: Shardings of the stage's part of a state.
      is_last: Whether the stage computes the loss.
      has_backward: Whether the stage has a backward pass, because this stage or an
        earlier stage has trained layers.
      returns_input_grads: Whether the backward pass returns the gradient of the inputs,
        because an earlier stage has trained layers.
    """
    layout, frozen = stage.layout, phase.frozen

    def zeros(params: Any) -> Any:
        params = layout.trained_params(params)
        return layout.shard_grads(zero_grads(frozen.partition(params)[0]))

    def forward(
        params: Any, model_state: Any, x: Any, key: jax.Array, target: Any
    ) -> tuple[Any, Any, Any, Metrics]:
        params, rest = frozen.partition(layout.trained_params(params))

        def outputs(params: Any, x: Any) -> tuple[Any, tuple[Any, Metrics]]:
            y, new = apply_model(
                stage.graphdef,
                merge(params, rest),
                model_state,
                x,
                key,
                part=stage.part,
                frozen=frozen,
                copies=layout.copies,
                remat=phase.remat,
                cpus=layout.cpus,
            )
            if not is_last:
                return layout.images(y), (new, {})
            scales, learnt = target
            losses, metrics = losses_and_metrics(task, y, learnt)
            loss = losses.mean()
            return loss * loss_factor(phase, scales), (new, {**metrics, "loss": loss})

        if not has_backward:
            y, found = outputs(params, x)
            return y, None, *found
        y, pullback, found = jax.vjp(outputs, params, x, has_aux=True)
        return y, pullback, *found

    def backward(total: Any, pullback: Any, dy: Any) -> tuple[Any, Any]:
        grads, dx = pullback(dy)
        grads = layout.shard_grads(grads)
        total = jax.tree.map(jnp.add, total, grads)
        # XLA removes the computation of gradients that are not returned.
        return total, layout.images(dx) if returns_input_grads else None

    def sum_up(state: TrainState, total: Any) -> tuple[Any, jax.Array]:
        total = layout.reduce_grads(total)
        grads = mean_grads(phase, total, state)
        return grads, squares(grads, layout)

    def measure(
        state: TrainState,
        root: jax.Array,
        grads: Any,
        model_state: Any,
        grad_sums: list[jax.Array],
    ) -> jax.Array:
        # `apply` recomputes the new parameters, to save the memory of a second copy.
        params, _ = optimize(phase, state, root, grads, _norm(grad_sums))
        return squares(checked(phase, params, model_state), layout)

    def apply(
        state: TrainState,
        root: jax.Array,
        grads: Any,
        model_state: Any,
        metrics: list[Metrics],
        grad_sums: list[jax.Array],
        param_sums: list[jax.Array],
    ) -> tuple[TrainState, Metrics]:
        means = jax.tree.map(lambda *values: jnp.mean(jnp.stack(values)), *metrics)
        state, of_step = apply_gradients(
            phase,
            state,
            root,
            grads,
            _norm(grad_sums),
            model_state,
            means,
            lambda _: _norm(param_sums),
        )
        # Add a leading axis of size 1: one step per call.
        return state, jax.tree.map(lambda x: x[None], of_step)

    whole = replicated(layout.mesh)
    options = compiler_options(phase.remat, layout.platform)
    of_forward = (None, None, shardings.model_state, whole)
    return StagePrograms(
        zeros=Compiled(zeros),
        forward=Compiled(forward, out_shardings=of_forward),
        backward=Compiled(backward, donate_argnums=0, compiler_options=options),
        sum_up=Compiled(sum_up, out_shardings=(None, whole)),
        measure=Compiled(measure, out_shardings=whole),
        apply=Compiled(apply, out_shardings=(shardings, whole), donate_argnums=0),
    )


def _norm(sums: list[jax.Array]) -> jax.Array:
    return jnp.sqrt(sum(sums, jnp.float32(0)))
