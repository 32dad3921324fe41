"""The pure train step, and models as they are evaluated: functions to be jitted."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh

from jaxtrain import keys
from jaxtrain.config.train import Remat
from jaxtrain.data.batch import Batch, Preprocess
from jaxtrain.data.normalization import UNCHANGED, Normalization
from jaxtrain.models import CONVOLUTIONS, folding
from jaxtrain.models.copied import use_copies
from jaxtrain.parallel.copies import Copies
from jaxtrain.parallel.sharding import Layout
from jaxtrain.tasks.base import Task
from jaxtrain.training.frozen import NOTHING, Frozen, merge
from jaxtrain.training.kernels import global_norm, in_rows
from jaxtrain.training.methods.base import Method, Objective
from jaxtrain.training.methods.plain import Plain
from jaxtrain.training.scan import repeat
from jaxtrain.training.state import TrainState, split_model
from jaxtrain.training.transforms.base import Metrics, overrides
from jaxtrain.training.update import Update, zero_grads
from jaxtrain.training.views import View, plain

PLAIN = Plain()

# (carry, micro-batch, key) -> (carry, metrics).
MicroStep = Callable[[Any, Batch, Any], tuple[Any, Metrics]]
# Repeats one over the micro-batches of a step: -> (carry, mean metrics).
RepeatMicro = Callable[[MicroStep, Any], tuple[Any, Metrics]]


def make_train_step(
    task: Task,
    graphdef: Any,
    update: Update,
    preprocess: Preprocess,
    layout: Layout,
    part: slice = slice(None),
    *,
    mixes: bool = False,
    method: Method = PLAIN,
    normalization: Normalization = UNCHANGED,
) -> Callable[..., tuple[TrainState, Metrics]]:
    """Return `(state, root_key, data, batches, beside=None) -> (state, metrics)`.

    The gradients are those of the layers alone that are trained, and so the backward
    pass ends at the first of them; the `method` computes them from the objective of the
    task, of images with this `normalization`. What `preprocess` returns as images goes
    into `part`, the last pieces of the model. If it `mixes` examples, it sees whole
    batches, else micro-batches, each in its turn, so that no more are in memory.

    `beside` are arrays that the method reads beside the model; no step changes them.
    `batches` has a leading axis of steps, all of them run in one call, and `metrics`
    has one value a step. A step whose loss, gradients, batch-norm statistics or new
    parameters are not finite is counted and leaves the model and the optimizer as they
    were.
    """
    num_micro, frozen = update.train.accumulate_steps, update.frozen
    prepares_whole = mixes or num_micro == 1
    copies, remat = layout.copies, update.train.remat
    options = {
        "part": part,
        "frozen": frozen,
        "copies": copies,
        "remat": remat,
        "cpus": layout.cpus,
    }

    def objective(
        state: TrainState, rest: Any, scale: jax.Array, beside: Any = None
    ) -> Objective:
        """Return the objective of the trained parameters; `rest` are the others."""
        average = trained_average(state) if task.reads_average else None

        def whole(grads: Any) -> Any:
            grads = layout.whole_grads(grads)
            for transform in update.transforms:
                if overrides(transform, "project"):
                    extra = layout.whole_params(state.extras[transform.name])
                    grads = transform.project(grads, extra)
            return grads

        def forward(
            params: Any,
            model_state: Any,
            images: Any,
            key: jax.Array,
            *,
            training: bool = True,
        ) -> tuple[Any, Any]:
            how = {**options, "training": training}
            every = merge(params, rest)
            return apply_model(graphdef, every, model_state, images, key, **how)

        def averaged(
            model_state: Any, images: Any, key: jax.Array, *, training: bool
        ) -> tuple[Any, Any]:
            assert average is not None, "a task says that it reads the average"
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
            normalization,
            whole,
            layout.norm_of_whole,
            task,
            forward,
            beside,
        )

    def trained_average(state: TrainState) -> Any:
        """Return the average of the trained parameters, in their dtypes."""
        average = jax.tree.map(
            lambda x, p: x.astype(p.dtype), state.eval_params, state.params
        )
        return frozen.part(layout.trained_params(average))[0]

    def gradients(
        state: TrainState, repeat_micro: RepeatMicro, beside: Any
    ) -> tuple[Any, Any, Metrics]:
        params, rest = frozen.part(layout.trained_params(update.gradient_params(state)))
        lowered = objective(state, rest, update.loss_factor(state.extras), beside)

        def micro_step(carry: Any, batch: Batch, key: Any) -> tuple[Any, Metrics]:
            model_state, total = carry
            grads, model_state, metrics = method.gradients(
                lowered, params, model_state, batch, key
            )
            grads = layout.shared_grads(grads)
            total = jax.tree.map(jnp.add, total, grads)
            return (model_state, total), metrics

        carry = state.model_state, zero_grads(params)
        (model_state, total), metrics = repeat_micro(micro_step, carry)
        total = layout.summed_grads(total)
        grads = in_rows(update.mean_grads(total, state), layout)
        return grads, model_state, metrics

    def loss_at(state: TrainState, repeat_micro: RepeatMicro, params: Any) -> jax.Array:
        """Return the loss of the step at other parameters, for a line search."""
        frozen_params = frozen.part(state.params)[1]

        def micro_step(model_state: Any, batch: Batch, key: Any) -> tuple[Any, Metrics]:
            whole = layout.trained_params(merge(params, frozen_params))
            trained, rest = frozen.part(whole)
            lowered = objective(state, rest, jnp.float32(1))
            loss, (model_state, _) = lowered(trained, model_state, batch, key)
            return model_state, {"loss": loss}

        return repeat_micro(micro_step, state.model_state)[1]["loss"]

    def prepare(data: Any, batch: Batch, root: jax.Array, step: jax.Array) -> Batch:
        batch = preprocess(data, batch, root, step)
        return {**batch, "image": layout.images(batch["image"])}

    def one_step(
        state: TrainState, root: jax.Array, data: Any, batch: Batch, beside: Any
    ) -> tuple[TrainState, Metrics]:
        if prepares_whole:
            # The images of the set are not looked at again.
            data, batch = None, prepare(data, batch, root, state.step)
        key = keys.at_step(root, keys.DROPOUT, state.step)

        def repeat_micro(micro_step: MicroStep, carry: Any) -> tuple[Any, Metrics]:
            def body(carry: Any, index: jax.Array) -> tuple[Any, Metrics]:
                micro = jax.tree.map(lambda x: micro_batch(x, num_micro, index), batch)
                if not prepares_whole:
                    micro = prepare(data, micro, root, state.step)
                of_micro = jax.random.fold_in(key, index)
                return micro_step(carry, micro, of_micro)

            xs = jnp.arange(num_micro)
            carry, metrics = repeat(body, carry, xs, layout.platform)
            return carry, jax.tree.map(jnp.mean, metrics)

        grads, model_state, metrics = gradients(state, repeat_micro, beside)
        norm = partial(global_norm, layout=layout)
        grad_norm, extra_args = norm(grads), {}
        if update.line_search:
            value_fn = partial(loss_at, state, repeat_micro)
            extra_args = {"value": metrics["loss"], "grad": grads, "value_fn": value_fn}
        done = state, root, grads, grad_norm, model_state, metrics, norm
        return update.apply(*done, **extra_args)

    def train_step(
        state: TrainState,
        root: jax.Array,
        data: Any,
        batches: Batch,
        beside: Any = None,
    ) -> tuple[TrainState, Metrics]:
        return repeat(
            lambda state, batch: one_step(state, root, data, batch, beside),
            state,
            batches,
            layout.platform,
        )

    return train_step


def make_apply(
    task: Task,
    graphdef: Any,
    preprocess: Preprocess,
    layout: Layout,
    view: View = plain,
    size: tuple[int, int] | None = None,
) -> Callable[[Any, Any, Batch], tuple[Any, Batch]]:
    """Return `((params, model_state), data, batches) -> (outputs, batch)`.

    Dropout is off. The outputs are those of a `view` of the prepared images, of which
    the model takes those of a `size`; None: of theirs. The prepared batch has the
    target of the task.
    """

    def apply_to_batch(weights: Any, data: Any, batches: Batch) -> tuple[Any, Batch]:
        batch = prepare_plain(preprocess, data, batches)
        params, model_state = layout.whole_params(weights[0]), weights[1]
        images = batch["image"]

        def apply(images: jax.Array) -> Any:
            shared = layout.images(images)
            return predict(graphdef, params, model_state, shared, mesh=layout.mesh)

        outputs = view(apply, images, size or images.shape[1:3])
        return outputs, {**batch, "target": task.target(batch)}

    return apply_to_batch


def prepare_plain(preprocess: Preprocess, data: Any, batches: Batch) -> Batch:
    """Prepare the one batch of `batches`, (1, B, ...) each, without randomness."""
    batch = jax.tree.map(lambda x: x[0], batches)
    unused = jnp.zeros((), jnp.int32)
    return preprocess(data, batch, keys.root_key(0), unused)


def micro_batch(x: jax.Array, num: int, index: Any) -> jax.Array:
    """Return a micro-batch (batch / num, ...) of (batch, ...).

    Every num-th example goes together, so that each device keeps its own.
    """
    parts = x.reshape(x.shape[0] // num, num, *x.shape[1:])
    return jax.lax.dynamic_index_in_dim(parts, index, 1, keepdims=False)


def apply_model(
    graphdef: Any,
    params: Any,
    model_state: Any,
    x: Any,
    key: jax.Array | None = None,
    part: slice = slice(None),
    frozen: Frozen = NOTHING,
    copies: Copies | None = None,
    remat: Remat = "none",
    cpus: Mesh | None = None,
    training: bool = True,
) -> tuple[Any, Any]:
    """Apply a model, or some of its pieces, in a step: the output and the new state.

    `key` is for what is random in it (see `Model`); `frozen` layers compute as they are
    evaluated, and of what `copies` says the parameters are copies. On a
    mesh of `cpus` that share the batch alone it has the convolutions of `CONVOLUTIONS`.
    Without `training` it computes as it is evaluated, and its state stays.
    """
    model = nnx.merge(graphdef, params, model_state, copy=True)
    model.train() if training else model.eval()
    frozen.switch(model)
    if copies is not None:
        use_copies(model, copies.mesh)
    if cpus is not None and "cpu" in CONVOLUTIONS:
        CONVOLUTIONS["cpu"](model, cpus)
    y = model(x, part=part, key=key, remat=remat, tied=not frozen.layers)
    return y, split_model(model)[2]


def predict(
    graphdef: Any,
    params: Any,
    model_state: Any,
    x: Any,
    part: slice = slice(None),
    mesh: Mesh | None = None,
) -> Any:
    """Apply a model, or some of its pieces, as it is evaluated.

    On a mesh where that pays norms are folded into convolutions (see
    `jaxtrain.models.folding`); None leaves them as they are.
    """

    def function(weights: Any, x: Any) -> Any:
        model = nnx.merge(graphdef, *weights, copy=True)
        model.eval()
        return model(x, part=part)

    weights = params, model_state
    if mesh is not None and folding.pays(mesh):
        return folding.fold_norms(function, weights, x)
    return function(weights, x)
