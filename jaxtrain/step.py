"""The pure train and eval steps: functions of plain pytrees, to be jitted."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from jaxtrain import random
from jaxtrain.config import TrainConfig
from jaxtrain.data.preprocess import Batch, Preprocess
from jaxtrain.losses import cross_entropy
from jaxtrain.metrics import Sums, batch_sums
from jaxtrain.parallel.sharding import Layout
from jaxtrain.precision import adjust_loss_scale, at_minimum
from jaxtrain.repeat import repeat
from jaxtrain.schedule import Schedule
from jaxtrain.state import TrainState, split_model

Metrics = dict[str, jax.Array]


def make_train_step(
    config: TrainConfig,
    graphdef: Any,
    tx: optax.GradientTransformationExtraArgs,
    schedule: Schedule | None,
    preprocess: Preprocess,
    layout: Layout,
) -> Callable[[TrainState, jax.Array, Any, Batch], tuple[TrainState, Metrics]]:
    """Return `(state, root_key, data, batches) -> (state, metrics)`.

    `batches` has a leading axis of steps, all of them run in one call, and `metrics`
    has one value a step. A step whose loss, gradients, batch-norm statistics or new
    parameters are not finite is counted and leaves the model and the optimizer as they
    were.
    """
    num_micro = config.accumulate_steps

    def loss_fn(
        params: Any, model_state: Any, batch: Batch, key: jax.Array, scale: jax.Array
    ) -> tuple[jax.Array, tuple[Any, Metrics]]:
        model = nnx.merge(graphdef, params, model_state, copy=True)
        model.train()
        logits = model(batch["image"], rngs=nnx.Rngs(dropout=key))
        loss = cross_entropy(logits, batch["label"], config.label_smoothing).mean()
        accuracy = jnp.mean(jnp.argmax(logits, -1) == batch["label"], dtype=jnp.float32)
        _, _, model_state = split_model(model)
        return loss * scale, (model_state, {"loss": loss, "accuracy": accuracy})

    def over_micro_batches(
        micro_step: Callable[..., tuple[Any, Metrics]],
        carry: Any,
        batch: Batch,
        key: Any,
    ) -> tuple[Any, Metrics]:
        """Repeat `micro_step(carry, batch, key)`; return the carry and mean metrics."""

        def body(carry: Any, micro: tuple[jax.Array, Batch]) -> tuple[Any, Metrics]:
            index, micro_batch = micro
            return micro_step(carry, micro_batch, jax.random.fold_in(key, index))

        micro_batches = jax.tree.map(lambda x: _micro_batches(x, num_micro), batch)
        carry, metrics = repeat(body, carry, (jnp.arange(num_micro), micro_batches))
        return carry, jax.tree.map(jnp.mean, metrics)

    def gradients(
        state: TrainState, batch: Batch, key: Any
    ) -> tuple[Any, Any, Metrics]:
        scale = state.loss_scale["scale"] if state.loss_scale else jnp.float32(1)
        params = layout.whole_params(state.params)

        def micro_step(carry: Any, batch: Batch, key: Any) -> tuple[Any, Metrics]:
            model_state, total = carry
            (_, (model_state, metrics)), grads = jax.value_and_grad(
                loss_fn, has_aux=True
            )(params, model_state, batch, key, scale)
            grads = layout.shared_grads(grads)
            return (model_state, jax.tree.map(jnp.add, total, grads)), metrics

        # Summed in float32, whatever the parameters' dtype.
        zeros = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), state.params)
        (model_state, total), metrics = over_micro_batches(
            micro_step, (state.model_state, zeros), batch, key
        )
        factor = 1 / (num_micro * scale)
        grads = jax.tree.map(
            lambda g, p: (g * factor).astype(p.dtype), total, state.params
        )
        return grads, model_state, metrics

    def mean_loss(params: Any, state: TrainState, batch: Batch, key: Any) -> jax.Array:
        """Return the loss at other parameters; only a line search asks for it."""

        def micro_step(carry: Any, batch: Batch, key: Any) -> tuple[Any, Metrics]:
            one = jnp.float32(1)
            loss, (carry, _) = loss_fn(params, carry, batch, key, one)
            return carry, {"loss": loss}

        return over_micro_batches(micro_step, state.model_state, batch, key)[1]["loss"]

    def one_step(
        state: TrainState, root: jax.Array, data: Any, batch: Batch
    ) -> tuple[TrainState, Metrics]:
        batch = preprocess(data, batch, root, state.step)
        batch = {**batch, "image": layout.images(batch["image"])}
        key = random.at_step(root, random.DROPOUT, state.step)
        grads, model_state, metrics = gradients(state, batch, key)
        grad_norm = _norm(grads)
        finite = jnp.isfinite(metrics["loss"] + grad_norm + _norm(model_state))
        updates, opt_state = tx.update(
            grads,
            state.opt_state,
            state.params,
            value=metrics["loss"],
            grad=grads,
            value_fn=lambda params: mean_loss(params, state, batch, key),
        )
        params = optax.apply_updates(state.params, updates)
        # Finite gradients may still give an update that is not.
        finite &= jnp.isfinite(_norm(params))
        new = {
            "params": params,
            "model_state": model_state,
            "opt_state": opt_state,
            "ema_params": _update_ema(config.ema_decay, state, params),
        }
        old = {name: getattr(state, name) for name in new}
        kept = jax.tree.map(lambda n, o: jnp.where(finite, n, o), new, old)
        bad_steps = _count_bad_steps(state, finite)
        metrics |= {
            "grad_norm": grad_norm,
            "skipped": 1 - finite.astype(jnp.int32),
            "bad_steps": bad_steps["in_a_row"],
        }
        if schedule is not None:
            # The optimizer counts only the steps that it took.
            metrics["learning_rate"] = schedule(state.step - state.bad_steps["total"])
        if state.loss_scale:
            metrics["loss_scale"] = state.loss_scale["scale"]
        state = TrainState(
            step=state.step + 1,
            loss_scale=adjust_loss_scale(state.loss_scale, finite),
            bad_steps=bad_steps,
            **kept,
        )
        return state, metrics

    def train_step(
        state: TrainState, root: jax.Array, data: Any, batches: Batch
    ) -> tuple[TrainState, Metrics]:
        return repeat(
            lambda state, batch: one_step(state, root, data, batch), state, batches
        )

    return train_step


def make_eval_step(
    graphdef: Any, preprocess: Preprocess, layout: Layout
) -> Callable[[Any, Any, Sums, Any, Batch], Sums]:
    """Return `(params, model_state, sums, data, batches) -> sums`, with dropout off."""

    def eval_step(
        params: Any, model_state: Any, sums: Sums, data: Any, batches: Batch
    ) -> Sums:
        batch = jax.tree.map(lambda x: x[0], batches)
        unused = jnp.zeros((), jnp.int32)
        batch = preprocess(data, batch, random.root_key(0), unused)
        params = layout.whole_params(params)
        model = nnx.merge(graphdef, params, model_state, copy=True)
        model.eval()
        logits = model(layout.images(batch["image"]))
        new = batch_sums(logits, batch["label"], batch["mask"])
        return jax.tree.map(jnp.add, sums, new)

    return eval_step


def _micro_batches(x: jax.Array, num: int) -> jax.Array:
    """Reshape (batch, ...) to (num, batch / num, ...).

    Every num-th example goes together, so that each device keeps its own.
    """
    return jnp.moveaxis(x.reshape(x.shape[0] // num, num, *x.shape[1:]), 1, 0)


def _norm(tree: Any) -> jax.Array:
    """Return the global norm, computed in float32."""
    squares = [
        jnp.sum(jnp.square(x.astype(jnp.float32))) for x in jax.tree.leaves(tree)
    ]
    return jnp.sqrt(sum(squares, jnp.float32(0)))


def _update_ema(decay: float | None, state: TrainState, params: Any) -> Any:
    """Move the average towards `params`, faster in the first steps, when it is young.

    The decay at step t is min(decay, (1 + t) / (10 + t)), as in TensorFlow's
    ExponentialMovingAverage.
    """
    if decay is None:
        return {}
    taken = (state.step - state.bad_steps["total"]).astype(jnp.float32)
    decay_now = jnp.minimum(decay, (1 + taken) / (10 + taken))
    return jax.tree.map(
        lambda average, p: (
            average + (1 - decay_now) * (p.astype(average.dtype) - average)
        ),
        state.ema_params,
        params,
    )


def _count_bad_steps(state: TrainState, finite: jax.Array) -> dict[str, jax.Array]:
    """Count skipped steps; fp16 overflows above the smallest scale are not in a row."""
    bad = 1 - finite.astype(jnp.int32)
    in_a_row = state.bad_steps["in_a_row"]
    counted = bad * at_minimum(state.loss_scale)
    return {
        "in_a_row": jnp.where(finite, 0, in_a_row + counted),
        "total": state.bad_steps["total"] + bad,
    }
