"""From the gradients of a step to the next state.

The norms are arguments: they are of all layers, where a state may have some of them.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxtrain import keys, scopes
from jaxtrain.config import OptimizerConfig, TrainConfig
from jaxtrain.config.optimizer import LINE_SEARCH
from jaxtrain.dtypes import wide
from jaxtrain.training.frozen import NOTHING, Frozen, merge
from jaxtrain.training.kernels import choose
from jaxtrain.training.optimizers import clip, clip_by_ratio
from jaxtrain.training.precision import add_updates
from jaxtrain.training.schedules import Schedule
from jaxtrain.training.state import GUARD, TrainState
from jaxtrain.training.transforms.base import (
    Extra,
    Metrics,
    StepContext,
    StepTransform,
    overrides,
)
from jaxtrain.trees import by_path, path_name


def zero_grads(params: Any) -> Any:
    """Return zeros to add gradients to, in at least float32."""
    return jax.tree.map(lambda p: jnp.zeros(p.shape, wide(p.dtype)), params)


@dataclass(frozen=True)
class Update:
    """What a step does once it has its gradients.

    Attributes:
      optimizer: Section of the optimizer.
      train: Section of the training.
      tx: Optimizer, without clipping.
      schedule: Learning rate by the step, for the log; None logs none.
      momenta: What a micro-batch keeps of the running statistics of `BatchNorm`, by
        their paths.
      rates: Factors on the learning rate by the paths of parameters; {}: 1 for all.
      frozen: Layers that are not trained: they have no gradients.
      rate_from: Least step of the schedule, however many steps were skipped before. The
        optimizer is then given the rate. None: it counts the steps itself.
      transforms: Transforms of the step, in order.
    """

    optimizer: OptimizerConfig
    train: TrainConfig
    tx: optax.GradientTransformationExtraArgs
    schedule: Schedule | None
    momenta: Mapping[str, float]
    rates: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    frozen: Frozen = NOTHING
    rate_from: int | None = None
    transforms: tuple[StepTransform, ...] = ()

    @property
    def line_search(self) -> bool:
        """Whether the optimizer asks for the loss at other parameters."""
        return self.optimizer.name == LINE_SEARCH

    def gradient_params(self, state: TrainState) -> Any:
        """Return the parameters at which a step computes the gradients."""
        params = state.params
        for transform in self.transforms:
            params = transform.gradient_params(params, state.extras[transform.name])
        return params

    def loss_scales(self, extras: dict[str, Extra]) -> dict[str, Extra]:
        """Return the extras that `loss_factor` reads."""
        return {t.name: extras[t.name] for t in self._scaling}

    def loss_factor(self, extras: dict[str, Extra]) -> jax.Array:
        """Return the factor on the loss that the gradients carry."""
        found = [t.loss_factor(extras[t.name]) for t in self._scaling]
        factors = [factor for factor in found if factor is not None]
        if not factors:
            return jnp.float32(1)
        return math.prod(factors[1:], start=factors[0])

    @scopes.part(scopes.OPTIMIZER)
    def mean_grads(self, total: Any, state: TrainState) -> Any:
        """Return the mean of summed, scaled gradients, as the transforms leave it.

        It stays in the dtype of the sum: without the scale, small ones are 0 in
        float16.
        """
        num_micro = self.train.accumulate_steps
        factor = 1 / (num_micro * self.loss_factor(state.extras))
        grads = jax.tree.map(lambda g: g * factor, total)
        for transform in self.transforms:
            grads = transform.project(grads, state.extras[transform.name])
        return grads

    def optimize(
        self,
        state: TrainState,
        root: jax.Array,
        grads: Any,
        grad_norm: jax.Array,
        **extra_args: Any,
    ) -> tuple[Any, Any]:
        """Return the new parameters and optimizer state, before `apply` checks them."""
        trained, rest = self.frozen.part(state.params)
        at, _ = self.frozen.part(self.gradient_params(state))
        if self.optimizer.clip_norm is not None:
            grads = clip(grads, grad_norm, self.optimizer.clip_norm)
        if self.optimizer.clip_ratio is not None:
            grads = clip_by_ratio(grads, at, self.optimizer.clip_ratio)
        if self.rate_from is not None:
            extra_args["learning_rate"] = self._scheduled_rate(state)
        updates, opt_state = self.tx.update(grads, state.opt_state, at, **extra_args)
        if self.rates:
            # Updates are proportional to the learning rate, whatever the optimizer.
            updates = jax.tree_util.tree_map_with_path(
                lambda path, update: update * self.rates[path_name(path)], updates
            )
        for factor in self._rate_factors(state):
            updates = jax.tree.map(lambda update, f=factor: update * f, updates)
        key = keys.at_step(root, keys.ROUNDING, state.step)
        return merge(add_updates(trained, updates, key), rest), opt_state

    def checked(self, params: Any, model_state: Any) -> Any:
        """Return what of a new state may not be finite though the gradients are."""
        params, model_state = (self.frozen.part(t)[0] for t in (params, model_state))
        others = [
            x
            for path, x in by_path(model_state).items()
            if path not in self.momenta and jnp.issubdtype(x.dtype, jnp.floating)
        ]
        return params, others

    @scopes.part(scopes.OPTIMIZER)
    def apply(
        self,
        state: TrainState,
        root: jax.Array,
        grads: Any,
        grad_norm: jax.Array,
        model_state: Any,
        metrics: Metrics,
        norm: Callable[[Any], jax.Array],
        **extra_args: Any,
    ) -> tuple[TrainState, Metrics]:
        """Return the next state, and all metrics of the step.

        Args:
          state: State before the step; a step that is skipped changes its counts alone.
          root: Key of the run.
          grads: Gradients of the trained parameters of `state`.
          grad_norm: Norm of the gradients of the whole model. Batch-norm statistics
            that are not finite show in it, too (`jaxtrain.models.batch_norm`).
          model_state: State of the model after the step.
          metrics: `loss`, and the metrics of the task.
          norm: Function from what is `checked` of `state` to the norm of that of the
            whole model.
          **extra_args: Arguments of an optimizer with a line search.
        """
        params, opt_state = self.optimize(state, root, grads, grad_norm, **extra_args)
        new_norm = norm(self.checked(params, model_state))
        finite = jnp.isfinite(metrics["loss"] + grad_norm + new_norm)
        rate = None if self.schedule is None else self._scheduled_rate(state)
        context = StepContext(
            loss=metrics["loss"],
            finite=finite,
            taken=finite,
            steps_taken=_steps_taken(state),
            learning_rate=rate,
            momenta=self.momenta,
            num_micro=self.train.accumulate_steps,
            frozen=self.frozen,
        )
        new = replace(
            state, params=params, model_state=model_state, opt_state=opt_state
        )
        for transform in self.transforms:
            new = transform.on_update(new, state, context)
        for transform in self.transforms:
            accepted = transform.accepts(state.extras[transform.name], context)
            if accepted is not None:
                context = replace(context, taken=context.taken & accepted)
        new = replace(_chosen(context.taken, new, state), step=state.step + 1)
        metrics = {**metrics, "grad_norm": grad_norm}
        if rate is not None:
            factors = self._rate_factors(state)
            metrics["learning_rate"] = math.prod(factors, start=rate)
        for transform in self.transforms:
            new, of_transform = transform.after(new, state, context)
            metrics |= of_transform
        return new, metrics

    @property
    def _scaling(self) -> list[StepTransform]:
        return [t for t in self.transforms if overrides(t, "loss_factor")]

    def _rate_factors(self, state: TrainState) -> list[jax.Array]:
        found = [t.rate_factor(state.extras[t.name]) for t in self.transforms]
        return [factor for factor in found if factor is not None]

    def _scheduled_rate(self, state: TrainState) -> jax.Array:
        assert self.schedule is not None
        # The optimizer counts only the steps that it took.
        count = _steps_taken(state)
        if self.rate_from:
            count = jnp.maximum(count, self.rate_from)
        return self.schedule(count)


def _chosen(taken: jax.Array, new: TrainState, old: TrainState) -> TrainState:
    """Return the new state if it is taken, else the old one."""

    def changed(state: TrainState) -> dict[str, Any]:
        fields = {n: getattr(state, n) for n in ("params", "model_state", "opt_state")}
        # By flat names: the paths in the model follow, as `choose` reads them.
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
