"""What one pipeline stage computes in a training step, compiled for its devices."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.config import TrainConfig
from jaxtrain.config.train import Remat
from jaxtrain.dtypes import wide
from jaxtrain.models.remat import compiler_options
from jaxtrain.parallel.sharding import replicated
from jaxtrain.tasks.base import Task
from jaxtrain.training.compiled import Compiled, Several
from jaxtrain.training.frozen import Frozen, merge
from jaxtrain.training.norms import squares
from jaxtrain.training.stages.cut import Stage
from jaxtrain.training.state import TrainState
from jaxtrain.training.step import apply_model
from jaxtrain.training.update import (
    Metrics,
    Update,
    mean_grads,
    scale_of,
    zero_grads,
)


class StagePrograms(Several):
    """The programs of one stage.

    Attributes:
      zeros: `params -> total`, to sum gradients in.
      forward: `(params, model_state, x, key, target) -> (y, pullback, model_state,
        metrics)`; the `pullback` holds the residuals, and is None where `goes_back` is
        not set. For the last stage `y` is the
        scaled loss and `target` what it takes; for the others `target` and `metrics`
        are empty.
      backward: `(total, pullback, dy) -> (total, dx)`.
      sum_up: `(state, total) -> (grads, their sum of squares)`.
      measure: `(state, root_key, grads, model_state, sums of all stages) -> sum of
        squares` of what is checked of the new state.
      apply: `(state, root_key, grads, model_state, metrics of all micro-batches, both
        sums of all stages) -> (state, metrics)`.
      loss_grad: of the loss with respect to itself.
      goes_back: whether the stage, or one before it, has layers that are trained.
    """

    def __init__(
        self,
        stage: Stage,
        task: Task,
        config: TrainConfig,
        update: Update,
        shardings: Any,
        output_dtype: Any,
        *,
        is_last: bool,
        is_first_trained: bool,
        goes_back: bool,
    ):
        whole = replicated(stage.layout.mesh)
        self.goes_back = goes_back
        frozen = update.frozen
        forward = functools.partial(_forward, stage, frozen, config.remat, goes_back)
        if is_last:
            forward = functools.partial(
                _last_forward, stage, frozen, config.remat, task
            )
        self.zeros = Compiled(functools.partial(_zeros, stage, frozen))
        self.forward = Compiled(
            forward, out_shardings=(None, None, shardings.model_state, whole)
        )
        self.backward = Compiled(
            functools.partial(_backward, stage, is_first_trained),
            donate_argnums=0,
            compiler_options=compiler_options(config.remat, stage.layout.platform),
        )
        self.sum_up = Compiled(
            functools.partial(_sum_up, stage, config.accumulate_steps),
            out_shardings=(None, whole),
        )
        self.measure = Compiled(
            functools.partial(_measure, stage, update), out_shardings=whole
        )
        self.apply = Compiled(
            functools.partial(_apply_update, update),
            out_shardings=(shardings, whole),
            donate_argnums=0,
        )
        dtype = wide(output_dtype)
        self.loss_grad = jax.device_put(np.ones((), dtype), whole)

    def parts(self) -> tuple[Compiled, ...]:
        return (
            self.zeros,
            self.forward,
            self.backward,
            self.sum_up,
            self.measure,
            self.apply,
        )


def _zeros(stage: Stage, frozen: Frozen, params: Any) -> Any:
    params = stage.layout.trained_params(params)
    return stage.layout.shared_grads(zero_grads(frozen.part(params)[0]))


def _forward(
    stage: Stage,
    frozen: Frozen,
    remat: Remat,
    goes_back: bool,
    params: Any,
    model_state: Any,
    x: Any,
    key: jax.Array,
    target: dict[str, Any],
) -> tuple[Any, Any, Any, Metrics]:
    assert not target, "only the last stage looks at the target"

    params, rest = frozen.part(stage.layout.trained_params(params))

    def apply(params: Any, x: Any) -> tuple[Any, Any]:
        whole = merge(params, rest)
        y, new = _apply(stage, frozen, remat, whole, model_state, x, key)
        return stage.constrain(y), new

    if not goes_back:
        y, model_state = apply(params, x)
        return y, None, model_state, {}
    y, pullback, model_state = jax.vjp(apply, params, x, has_aux=True)
    return y, pullback, model_state, {}


def _apply(
    stage: Stage,
    frozen: Frozen,
    remat: Remat,
    params: Any,
    model_state: Any,
    x: Any,
    key: jax.Array,
) -> tuple[Any, Any]:
    """Train the pieces of a stage on `x`: the output and the new state."""
    copies, part = stage.layout.copies, stage.part
    return apply_model(
        stage.graphdef, params, model_state, x, key, part, frozen, copies, remat
    )


def _last_forward(
    stage: Stage,
    frozen: Frozen,
    remat: Remat,
    task: Task,
    params: Any,
    model_state: Any,
    x: Any,
    key: jax.Array,
    target: dict[str, Any],
) -> tuple[jax.Array, Any, Any, Metrics]:
    params, rest = frozen.part(stage.layout.trained_params(params))

    def loss_fn(params: Any, x: Any) -> tuple[jax.Array, Any]:
        whole = merge(params, rest)
        outputs, new = _apply(stage, frozen, remat, whole, model_state, x, key)
        losses, metrics = task.losses_and_metrics(outputs, target["target"])
        loss = losses.mean()
        scaled = loss * scale_of(target["loss_scale"])
        return scaled, (new, {**metrics, "loss": loss})

    loss, pullback, (model_state, metrics) = jax.vjp(loss_fn, params, x, has_aux=True)
    return loss, pullback, model_state, metrics


def _backward(
    stage: Stage, is_first_trained: bool, total: Any, pullback: Any, dy: Any
) -> tuple[Any, Any]:
    grads, dx = pullback(dy)
    grads = stage.layout.shared_grads(grads)
    total = jax.tree.map(jnp.add, total, grads)
    # Nobody asks for the gradients of the images, or of what frozen layers put out: XLA
    # drops them.
    return total, None if is_first_trained else stage.constrain(dx)


def _sum_up(
    stage: Stage, num_micro: int, state: TrainState, total: Any
) -> tuple[Any, jax.Array]:
    grads = mean_grads(stage.layout.summed_grads(total), num_micro, state)
    return grads, squares(grads, stage.layout)


def _measure(
    stage: Stage,
    update: Update,
    state: TrainState,
    root: jax.Array,
    grads: Any,
    model_state: Any,
    grad_sums: list[jax.Array],
) -> jax.Array:
    # Computed again in `_apply_update`: to keep the new state would take its memory.
    params, _ = update.optimize(state, root, grads, _norm(grad_sums))
    return squares(update.checked(params, model_state), stage.layout)


def _apply_update(
    update: Update,
    state: TrainState,
    root: jax.Array,
    grads: Any,
    model_state: Any,
    metrics: list[Metrics],
    grad_sums: list[jax.Array],
    param_sums: list[jax.Array],
) -> tuple[TrainState, Metrics]:
    means = jax.tree.map(lambda *values: jnp.mean(jnp.stack(values)), *metrics)
    state, metrics_of_step = update.apply(
        state,
        root,
        grads,
        _norm(grad_sums),
        model_state,
        means,
        lambda _: _norm(param_sums),
    )
    # With a leading axis of steps.
    return state, jax.tree.map(lambda x: x[None], metrics_of_step)


def _norm(sums: list[jax.Array]) -> jax.Array:
    return jnp.sqrt(sum(sums, jnp.float32(0)))
