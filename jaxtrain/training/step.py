"""Training step: a pure function of pytrees, to be jitted."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from jaxtrain import keys
from jaxtrain.data.batch import Batch, Preprocess
from jaxtrain.data.pixel_normalization import UNCHANGED, Normalization
from jaxtrain.parallel.layout import Layout
from jaxtrain.training.frozen import merge
from jaxtrain.training.kernels import global_norm, row_major_grads
from jaxtrain.training.methods.base import Method
from jaxtrain.training.methods.plain import Plain
from jaxtrain.training.objective import MakeObjective
from jaxtrain.training.phase import Phase
from jaxtrain.training.scan import repeat, scans, unstack
from jaxtrain.training.state import TrainState
from jaxtrain.training.transforms.base import Metrics
from jaxtrain.training.update import (
    apply_gradients,
    gradient_params,
    loss_factor,
    mean_grads,
    transform_grads,
    zero_grads,
)

if TYPE_CHECKING:
    from jaxtrain.tasks.base import Task

PLAIN = Plain()


def make_train_step(
    task: "Task",
    graphdef: Any,
    phase: Phase,
    preprocess: Preprocess,
    layout: Layout,
    part: slice = slice(None),
    *,
    mixes: bool = False,
    method: Method = PLAIN,
    normalization: Normalization = UNCHANGED,
) -> Callable[..., tuple[TrainState, Metrics]]:
    """Make the training step of a phase, to be jitted.

    A step with a non-finite loss, gradient, batch-norm statistic or new parameter is
    skipped: the step is counted, but model and optimizer do not change.

    Args:
      task: Task of the run; defines the objective.
      graphdef: Structure of the model.
      phase: Optimizer, transforms and frozen layers. The backward pass ends at the
        first trainable layer.
      preprocess: Function that augments and normalizes images. Its input is the full
        batch if `mixes`; otherwise one micro-batch, to save memory.
      layout: Layout of the run.
      part: Slice of `Model.pieces` to run: all, or the last pieces if `image` in the
        batches holds cached features.
      mixes: Whether `preprocess` mixes examples of a batch.
      method: Method that computes gradients of the objective.
      normalization: Mean and standard deviation of the pixel normalization.

    Returns:
      Function `(state, root_key, data, batches, method_arrays=None) -> (state,
      metrics)`. `batches` has a leading axis of steps, which all run in one call;
      `metrics` has one value per step. `method_arrays` are the input arrays of the
      method.
    """
    make_objective = MakeObjective(task, graphdef, phase, layout, part, normalization)
    num_micro, frozen = phase.num_micro, phase.frozen
    prepares_whole = mixes or num_micro == 1
    norm = partial(global_norm, layout=layout)

    def prepare(data: Any, batch: Batch, root: jax.Array, step: jax.Array) -> Batch:
        batch = preprocess(data, batch, root, step)
        return {**batch, "image": layout.images(batch["image"])}

    def one_step(
        root: jax.Array, data: Any, method_arrays: Any, state: TrainState, batch: Batch
    ) -> tuple[TrainState, Metrics]:
        if prepares_whole:
            # Drop the data set, which a loop over micro-batches must not capture.
            data, batch = None, prepare(data, batch, root, state.step)
        key = keys.at_step(root, keys.DROPOUT, state.step)
        params, rest = frozen.partition(
            layout.trained_params(gradient_params(phase, state))
        )
        objective = make_objective(
            state, rest, loss_factor(phase, state.extras), method_arrays
        )

        def micro(index: jax.Array) -> tuple[Batch, jax.Array]:
            part = batch
            if num_micro > 1:
                part = jax.tree.map(lambda x: micro_batch(x, num_micro, index), batch)
            if not prepares_whole:
                part = prepare(data, part, root, state.step)
            return part, jax.random.fold_in(key, index)

        def add_grads(carry: Any, index: jax.Array) -> tuple[Any, Metrics]:
            model_state, total = carry
            grads, model_state, metrics = method.gradients(
                objective, params, model_state, *micro(index)
            )
            total = jax.tree.map(jnp.add, total, layout.shard_grads(grads))
            return (model_state, total), metrics

        carry = state.model_state, zero_grads(params)
        if num_micro == 1:
            (model_state, total), metrics = add_grads(carry, jnp.int32(0))
        else:
            indices = jnp.arange(num_micro)
            carry, found = repeat(add_grads, carry, indices, layout.platform)
            (model_state, total), metrics = carry, jax.tree.map(jnp.mean, found)
        grads = mean_grads(phase, layout.reduce_grads(total), state)
        grads, extras, found = transform_grads(
            phase, grads, state, root, metrics["loss"]
        )
        grads, metrics = row_major_grads(grads, layout), {**metrics, **found}
        searched = {}
        if phase.line_search:
            at = partial(loss_at, make_objective, state, micro)
            searched = {"value": metrics["loss"], "grad": grads, "value_fn": at}
        return apply_gradients(
            phase,
            state,
            root,
            grads,
            norm(grads),
            model_state,
            metrics,
            norm,
            extras,
            **searched,
        )

    def train_step(
        state: TrainState,
        root: jax.Array,
        data: Any,
        batches: Batch,
        method_arrays: Any = None,
    ) -> tuple[TrainState, Metrics]:
        step = partial(one_step, root, data, method_arrays)
        if scans(batches, layout.platform):
            return jax.lax.scan(step, state, batches)
        found = []
        for batch in unstack(batches):
            state, metrics = step(state, batch)
            found.append(metrics)
        return state, jax.tree.map(lambda *values: jnp.stack(values), *found)

    return train_step


def loss_at(
    make_objective: MakeObjective,
    state: TrainState,
    micro: Callable[[jax.Array], tuple[Batch, jax.Array]],
    params: Any,
) -> jax.Array:
    """Compute the loss of a step at given parameters, for a line search.

    Args:
      make_objective: Factory of the objectives of the phase.
      state: State before the step.
      micro: Function from the index of a micro-batch to (micro-batch, key).
      params: Trainable parameters to evaluate.
    """
    layout, phase = make_objective.layout, make_objective.phase
    every = merge(params, phase.frozen.partition(state.params)[1])
    params, rest = phase.frozen.partition(layout.trained_params(every))
    objective = make_objective(state, rest, jnp.float32(1))

    def loss_of(model_state: Any, index: jax.Array) -> tuple[Any, jax.Array]:
        loss, (model_state, _) = objective(params, model_state, *micro(index))
        return model_state, loss

    indices = jnp.arange(phase.num_micro)
    return repeat(loss_of, state.model_state, indices, layout.platform)[1].mean()


def micro_batch(x: jax.Array, num: int, index: Any) -> jax.Array:
    """Select a micro-batch (batch / num, ...) from (batch, ...).

    A micro-batch has every `num`-th example, so that no example changes its device.
    """
    parts = x.reshape(x.shape[0] // num, num, *x.shape[1:])
    return jax.lax.dynamic_index_in_dim(parts, index, 1, keepdims=False)
