"""Update of the training state from the gradients of a step.

In this module `total` is the sum of the gradients over micro-batches and devices, times
the loss scale; `grads` are mean gradients, the input of transforms and optimizer.

Global norms are arguments: a pipeline stage cannot compute them from its layers alone.
"""

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain import keys, scopes
from jaxtrain.dtypes import wide
from jaxtrain.training.frozen import merge
from jaxtrain.training.kernels import choose
from jaxtrain.training.phase import Phase
from jaxtrain.training.precision import add_updates
from jaxtrain.training.state import GUARD, TrainState
from jaxtrain.training.transforms.base import (
    Extra,
    GradientContext,
    Metrics,
    StepContext,
    StepTransform,
    overrides,
)
from jaxtrain.trees import by_path


def zero_grads(params: Any) -> Any:
    """Create zeros to accumulate gradients, in at least float32."""
    return jax.tree.map(lambda p: jnp.zeros(p.shape, wide(p.dtype)), params)


def gradient_params(phase: Phase, state: TrainState) -> Any:
    """Compute the parameters at which a step evaluates the gradients."""
    params = state.params
    for transform in phase.transforms:
        params = transform.gradient_params(params, state.extras[transform.name])
    return params


def loss_scales(phase: Phase, extras: dict[str, Extra]) -> dict[str, Extra]:
    """Return the `extras` of the transforms that can scale the loss."""
    return {t.name: extras[t.name] for t in _scaling(phase)}


def loss_factor(phase: Phase, extras: dict[str, Extra]) -> jax.Array:
    """Compute the product of the transforms' loss scales, a scalar."""
    found = [t.loss_factor(extras[t.name]) for t in _scaling(phase)]
    factors = [factor for factor in found if factor is not None]
    if not factors:
        return jnp.float32(1)
    return math.prod(factors[1:], start=factors[0])


@scopes.part(scopes.OPTIMIZER)
def mean_grads(phase: Phase, total: Any, state: TrainState) -> Any:
    """Compute the mean gradients of a step.

    The result has the dtype of `total`: in float16, small unscaled gradients would
    underflow.

    Args:
      phase: Phase of the step.
      total: Sum of the gradients of all micro-batches, times the loss scale.
      state: State before the step.
    """
    factor = 1 / (phase.num_micro * loss_factor(phase, state.extras))
    return _projected(phase, jax.tree.map(lambda g: g * factor, total), state)


@scopes.part(scopes.OPTIMIZER)
def transform_grads(
    phase: Phase, grads: Any, state: TrainState, root: jax.Array, loss: jax.Array
) -> tuple[Any, dict[str, Extra], Metrics]:
    """Apply `on_gradients` of all transforms; return gradients, extras and metrics."""
    changing = [t for t in phase.transforms if overrides(t, "on_gradients")]
    extras, metrics = {}, {}
    for transform in changing:
        key = keys.at_step(root, keys.GRADIENTS, state.step)
        key = jax.random.fold_in(key, zlib.crc32(transform.name.encode()))
        context = GradientContext(key=key, loss=loss)
        grads, extra, found = transform.on_gradients(grads, state, context)
        extras[transform.name] = extra
        metrics |= found
    return _projected(phase, grads, state) if changing else grads, extras, metrics


def optimize(
    phase: Phase,
    state: TrainState,
    root: jax.Array,
    grads: Any,
    grad_norm: jax.Array,
    **extra_args: Any,
) -> tuple[Any, Any]:
    """Compute new parameters and optimizer state, which may be non-finite."""
    trained, rest = phase.frozen.partition(state.params)
    at, _ = phase.frozen.partition(gradient_params(phase, state))
    if phase.rate_from is not None:
        extra_args["learning_rate"] = _scheduled_rate(phase, state)
    updates, opt_state = phase.tx.update(
        grads, state.opt_state, at, grad_norm=grad_norm, **extra_args
    )
    for factor in _rate_factors(phase, state):
        updates = jax.tree.map(lambda update, f=factor: update * f, updates)
    key = keys.at_step(root, keys.ROUNDING, state.step)
    return merge(add_updates(trained, updates, key), rest), opt_state


def checked(phase: Phase, params: Any, model_state: Any) -> Any:
    """Select the arrays that can become non-finite despite finite gradients."""
    params, model_state = (phase.frozen.partition(t)[0] for t in (params, model_state))
    others = {
        path: x
        for path, x in by_path(model_state).items()
        if path not in phase.momenta and jnp.issubdtype(x.dtype, jnp.floating)
    }
    return {**by_path(params), **others}


@scopes.part(scopes.OPTIMIZER)
def apply_gradients(
    phase: Phase,
    state: TrainState,
    root: jax.Array,
    grads: Any,
    grad_norm: jax.Array,
    model_state: Any,
    metrics: Metrics,
    norm: Callable[[Any], jax.Array],
    extras: Mapping[str, Extra] = MappingProxyType({}),
    **extra_args: Any,
) -> tuple[TrainState, Metrics]:
    """Compute the next state and all metrics of the step.

    Args:
      phase: Phase of the step.
      state: State before the step; a skipped step changes only the step counts.
      root: PRNG key of the run.
      grads: Mean gradients of the trainable parameters.
      grad_norm: Global gradient norm of the model; non-finite if a batch-norm statistic
        is non-finite (see `jaxtrain.models.batch_norm`).
      model_state: Model state after the step.
      metrics: `loss`, and the metrics of the task.
      norm: Function that computes the global norm of a pytree returned by `checked`,
        over all pipeline stages.
      extras: Arrays returned by `transform_grads`, by transform name.
      **extra_args: Keyword arguments of `tx.update`, such as for a line search.
    """
    params, opt_state = optimize(phase, state, root, grads, grad_norm, **extra_args)
    new_norm = norm(checked(phase, params, model_state))
    finite = jnp.isfinite(metrics["loss"] + grad_norm + new_norm)
    rate = None if phase.schedule is None else _scheduled_rate(phase, state)
    context = StepContext(
        loss=metrics["loss"],
        finite=finite,
        taken=finite,
        steps_taken=_steps_taken(state),
        learning_rate=rate,
        momenta=phase.momenta,
        num_micro=phase.num_micro,
        frozen=phase.frozen,
    )
    new = replace(
        state,
        params=params,
        model_state=model_state,
        opt_state=opt_state,
        extras={**state.extras, **extras},
    )
    for transform in phase.transforms:
        new = transform.on_update(new, state, context)
    for transform in phase.transforms:
        accepted = transform.accepts(state.extras[transform.name], context)
        if accepted is not None:
            context = replace(context, taken=context.taken & accepted)
    new = replace(_chosen(context.taken, new, state), step=state.step + 1)
    metrics = {**metrics, "grad_norm": grad_norm}
    if rate is not None:
        factors = _rate_factors(phase, state)
        metrics["learning_rate"] = math.prod(factors, start=rate)
    for transform in phase.transforms:
        new, of_transform = transform.after(new, state, context)
        metrics |= of_transform
    return new, metrics


def _projected(phase: Phase, grads: Any, state: TrainState) -> Any:
    for transform in phase.transforms:
        grads = transform.project(grads, state.extras[transform.name])
    return grads


def _scaling(phase: Phase) -> list[StepTransform]:
    return [t for t in phase.transforms if overrides(t, "loss_factor")]


def _rate_factors(phase: Phase, state: TrainState) -> list[jax.Array]:
    found = [t.rate_factor(state.extras[t.name]) for t in phase.transforms]
    return [factor for factor in found if factor is not None]


def _scheduled_rate(phase: Phase, state: TrainState) -> jax.Array:
    assert phase.schedule is not None
    # Skipped steps do not advance the schedule.
    count = _steps_taken(state)
    if phase.rate_from:
        count = jnp.maximum(count, phase.rate_from)
    return phase.schedule(count)


def _chosen(taken: jax.Array, new: TrainState, old: TrainState) -> TrainState:
    def changed(state: TrainState) -> dict[str, Any]:
        fields = {n: getattr(state, n) for n in ("params", "model_state", "opt_state")}
        # In `choose`, the keys after the first must be the path of the parameter.
        return fields | {
            f"{name}.{key}": value
            for name in names
            for key, value in state.extras[name].items()
        }

    names = [name for name in old.extras if new.extras[name] is not old.extras[name]]
    kept = choose(taken, changed(new), changed(old))
    extras = {
        name: {key: kept.pop(f"{name}.{key}") for key in new.extras[name]}
        for name in names
    }
    return replace(new, **kept, extras={**old.extras, **extras})


def _steps_taken(state: TrainState) -> jax.Array:
    return state.step - state.extras[GUARD]["total"]
