"""From the gradients of a step to the next state.

The norms are arguments: they are of all layers, where a state may have some of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import optax

from jaxtrain import keys, scopes
from jaxtrain.config import OptimizerConfig, TrainConfig
from jaxtrain.config.optimizer import LINE_SEARCH
from jaxtrain.dtypes import wide, widen
from jaxtrain.training.averages import Average, DoneStep
from jaxtrain.training.frozen import NOTHING, Frozen, merge
from jaxtrain.training.kernels import choose
from jaxtrain.training.optimizers import clip, clip_by_ratio
from jaxtrain.training.precision import add_updates, adjust_loss_scale, at_minimum
from jaxtrain.training.pruning import Pruning, masked
from jaxtrain.training.schedules import Schedule
from jaxtrain.training.spikes import make_detector
from jaxtrain.training.state import TrainState
from jaxtrain.trees import by_path, path_name

Metrics = dict[str, jax.Array]


def scale_of(loss_scale: dict[str, jax.Array]) -> jax.Array:
    """Return the factor on the loss that its gradients carry."""
    return loss_scale["scale"] if loss_scale else jnp.float32(1)


def zero_grads(params: Any) -> Any:
    """Return zeros to add gradients to, in at least float32."""
    return jax.tree.map(lambda p: jnp.zeros(p.shape, wide(p.dtype)), params)


@scopes.part(scopes.OPTIMIZER)
def mean_grads(total: Any, num_micro: int, state: TrainState) -> Any:
    """Return the mean of summed, scaled gradients.

    It stays in the dtype of the sum: without the scale, small ones are 0 in float16.
    Those of pruned weights are 0, and so no part of the norm.
    """
    factor = 1 / (num_micro * scale_of(state.loss_scale))
    return masked(jax.tree.map(lambda g: g * factor, total), masks_of(state))


def masks_of(state: TrainState) -> dict[str, Any]:
    """Return the masks of pruned parameters, by their paths; {} without any."""
    return state.pruning.get("masks", {})


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
      average: Average of the weights that the run evaluates; None keeps none.
      pruning: Weights that become 0; None prunes none.
    """

    optimizer: OptimizerConfig
    train: TrainConfig
    tx: optax.GradientTransformationExtraArgs
    schedule: Schedule | None
    momenta: Mapping[str, float]
    rates: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    frozen: Frozen = NOTHING
    rate_from: int | None = None
    average: Average | None = None
    pruning: Pruning | None = None

    @property
    def line_search(self) -> bool:
        """Whether the optimizer asks for the loss at other parameters."""
        return self.optimizer.name == LINE_SEARCH

    def gradient_params(self, state: TrainState) -> Any:
        """Return the parameters at which a step computes the gradients."""
        if self.average is None:
            return state.params
        return self.average.gradient_weights(state.params, state.ema_params)

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
        if state.plateau:
            factor = state.plateau["factor"]
            updates = jax.tree.map(lambda update: update * factor, updates)
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
        new = {"params": params, "model_state": model_state, "opt_state": opt_state}
        new |= self._average(state, new)
        old = {name: getattr(state, name) for name in new}
        detector, taken, spike, loss_stats = make_detector(self.train), finite, None, {}
        if detector is not None:
            spike, loss_stats = detector.look(state.loss_stats, metrics["loss"], finite)
            taken = finite & ~spike
        kept, pruning = choose(taken, new, old), state.pruning
        if self.pruning is not None:
            # Also after a step that is skipped: it may be the last that is due.
            kept, pruning = self.pruning.after(state.step + 1, kept, pruning)
            metrics = {**metrics, "sparsity": pruning["sparsity"]}
        bad_steps = _count_bad_steps(state, taken, finite)
        metrics = {
            **metrics,
            "grad_norm": grad_norm,
            "skipped": 1 - taken.astype(jnp.int32),
            "bad_steps": bad_steps["in_a_row"],
        }
        if self.schedule is not None:
            rate = self._scheduled_rate(state)
            metrics["learning_rate"] = rate * state.plateau.get("factor", 1)
        if state.loss_scale:
            metrics["loss_scale"] = state.loss_scale["scale"]
        if spike is not None:
            metrics["spike"] = spike.astype(jnp.int32)
            metrics["loss_limit"] = state.loss_stats["limit"]
        state = TrainState(
            step=state.step + 1,
            loss_scale=adjust_loss_scale(state.loss_scale, finite),
            bad_steps=bad_steps,
            loss_stats=loss_stats,
            plateau=state.plateau,
            pruning=pruning,
            **kept,
        )
        return state, metrics

    def _scheduled_rate(self, state: TrainState) -> jax.Array:
        assert self.schedule is not None
        # The optimizer counts only the steps that it took.
        count = _steps_taken(state)
        if self.rate_from:
            count = jnp.maximum(count, self.rate_from)
        return self.schedule(count)

    def _average(self, state: TrainState, new: dict[str, Any]) -> dict[str, Any]:
        """Move the averages of parameters and statistics towards those of this step.

        Batch-norm statistics of a moving average are those of the step's own batch,
        taken out of the running ones again: the average of running averages would lag
        behind that of the weights. Its values are as good as those computed anew
        (docs/decisions.md). Numbers that are not float, such as counts, are those of
        this step.

        Returns:
          The new fields of the state that the average changes.
        """
        if self.average is None:
            return {"ema_params": {}, "ema_model_state": {}, "average_memory": {}}
        learning_rate = None if self.schedule is None else self._scheduled_rate(state)
        done = DoneStep(_steps_taken(state), learning_rate)
        rate, memory = self.average.rate(state.average_memory, done)

        def move(average: jax.Array, x: jax.Array) -> jax.Array:
            if not jnp.issubdtype(x.dtype, jnp.floating):
                return x
            far = rate.astype(average.dtype)
            return average + far * (x.astype(average.dtype) - average)

        def of_step(path: Any, new: jax.Array, old: jax.Array) -> jax.Array:
            momentum = self.momenta.get(path_name(path))
            if momentum is None:
                return new
            kept = momentum**self.train.accumulate_steps
            return old + (new - old) / (1 - kept)

        def move_trained(average: Any, values: Any) -> Any:
            trained, rest = self.frozen.part(average)
            return merge(jax.tree.map(move, trained, values), rest)

        params, _ = self.frozen.part(new["params"])
        average = move_trained(state.ema_params, params)
        if self.average.of_batches:
            model_state = jax.tree_util.tree_map_with_path(
                of_step,
                self.frozen.part(new["model_state"])[0],
                self.frozen.part(state.model_state)[0],
            )
            model_state = move_trained(state.ema_model_state, model_state)
        else:
            model_state = widen(new["model_state"])
        return {
            "params": self.average.next_weights(new["params"], average, rate),
            "ema_params": average,
            "ema_model_state": model_state,
            "average_memory": memory,
        }


def _steps_taken(state: TrainState) -> jax.Array:
    return state.step - state.bad_steps["total"]


def _count_bad_steps(
    state: TrainState, taken: jax.Array, finite: jax.Array
) -> dict[str, jax.Array]:
    """Count skipped steps; fp16 overflows above the smallest scale are not in a row."""
    counted = (finite | at_minimum(state.loss_scale)).astype(jnp.int32)
    return {
        "in_a_row": jnp.where(taken, 0, state.bad_steps["in_a_row"] + counted),
        "total": state.bad_steps["total"] + 1 - taken.astype(jnp.int32),
    }
