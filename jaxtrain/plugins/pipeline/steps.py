"""Training and evaluation programs of a pipelined run.

One host thread dispatches the passes of all stages asynchronously in the order of the
timeline, and XLA runs a pass when its inputs are ready. The residuals of a forward pass
stay on the devices of its stage; only activations and their gradients move between
stages. Results equal `jaxtrain.training.step`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain import keys
from jaxtrain.data.batch import Batch, Preprocess
from jaxtrain.dtypes import wide
from jaxtrain.evaluation.evaluate import reduce_batch
from jaxtrain.evaluation.reducers import TaskMetrics
from jaxtrain.parallel.data_sharding import replicated
from jaxtrain.plugins.pipeline.cut import Stage, Stages
from jaxtrain.plugins.pipeline.programs import StagePrograms, make_programs
from jaxtrain.tasks.base import Task
from jaxtrain.training.compiled import Compiled
from jaxtrain.training.create import CreateState
from jaxtrain.training.eval_step import prepare_plain
from jaxtrain.training.forward import predict
from jaxtrain.training.phase import Phase
from jaxtrain.training.state import TrainState
from jaxtrain.training.step import micro_batch
from jaxtrain.training.transforms.base import Metrics
from jaxtrain.training.update import loss_scales

# Placeholder for a batch of images: the sharding depends only on the number of dims.
IMAGES = jax.ShapeDtypeStruct((1, 1, 1, 1), jnp.float32)


class Several:
    """Function that calls several compiled programs, with the API of `Compiled`."""

    def __init__(self, function: Callable[..., Any], programs: Sequence[Compiled]):
        self._function, self._programs = function, programs

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._function(*args, **named)

    def flops_a_step(self) -> None:
        """Return None, because the FLOPs of pipelined steps are not counted."""

    @property
    def seconds(self) -> float:
        return sum(program.seconds for program in self._programs)

    @property
    def compiling(self) -> bool:
        return any(program.compiling for program in self._programs)


def make_create(
    create: CreateState, stages: Stages, abstract: TrainState
) -> tuple[Several, Several]:
    """Create the initialization functions of a run, with one program per stage.

    Returns:
      Replacements for `CreateState.weights` and `CreateState.begin`.
    """
    shardings = stages.shardings(abstract)

    def weights_of(stage: Stage, root: jax.Array) -> tuple[Any, Any]:
        return stages.part(stage, create.weights(root))

    weights = [
        # XLA removes the computation of other stages' weights.
        Compiled(partial(weights_of, stage), out_shardings=(s.params, s.model_state))
        for stage, s in zip(stages.stages, shardings, strict=True)
    ]
    begin = [
        Compiled(create.begin, out_shardings=s, donate_argnums=0) for s in shardings
    ]

    def create_weights(root: jax.Array) -> tuple[Any, Any]:
        return stages.merge([program(root) for program in weights])

    def begin_with(first: tuple[Any, Any]) -> TrainState:
        parts = zip(begin, stages.split(first), strict=True)
        return stages.merge([program(part) for program, part in parts])

    return Several(create_weights, weights), Several(begin_with, begin)


def make_train_step(
    task: Task,
    stages: Stages,
    phase: Phase,
    preprocess: Preprocess,
    abstract: Any,
    output_dtype: Any,
) -> Several:
    """Create the training step, `(state, root_key, data, batches) -> (state, metrics)`.

    `data` and `batches` are on the first stage, which preprocesses the images. Targets
    are copied to the last stage, and PRNG keys to all stages.
    """
    first, last = stages.stages[0], stages.stages[-1]
    shardings, num_micro = stages.shardings(abstract), phase.num_micro
    trains = [bool(phase.frozen.partition(state.params)[0]) for state in shardings]
    first_trained = trains.index(True)

    def prepare_micro_batches(
        step: jax.Array, root: jax.Array, data: Any, batches: Batch
    ) -> tuple[list[jax.Array], list[jax.Array], list[Any]]:
        """Return lists of images, PRNG keys and targets, an item per micro-batch."""
        batch = preprocess(data, jax.tree.map(lambda x: x[0], batches), root, step)
        whole = {"image": batch["image"], "target": task.target(batch)}
        parts = [
            jax.tree.map(lambda x, i=i: micro_batch(x, num_micro, i), whole)
            for i in range(num_micro)
        ]
        key = keys.at_step(root, keys.DROPOUT, step)
        return (
            [part["image"] for part in parts],
            [jax.random.fold_in(key, i) for i in range(num_micro)],
            [part["target"] for part in parts],
        )

    whole = replicated(first.layout.mesh)
    prepare = Compiled(
        prepare_micro_batches,
        out_shardings=(first.layout.image_shardings(IMAGES), whole, whole),
    )
    programs = [
        make_programs(
            stage,
            task,
            phase,
            shardings[i],
            is_last=stage is last,
            has_backward=i >= first_trained,
            returns_input_grads=i > first_trained,
        )
        for i, stage in enumerate(stages.stages)
    ]
    # Gradient of the loss with respect to itself.
    loss_grad = last.replicate(np.ones((), wide(output_dtype)))
    run_passes = partial(_run_passes, stages, programs, first_trained, loss_grad)

    def train_step(
        state: TrainState, root: jax.Array, data: Any, batches: Batch
    ) -> tuple[TrainState, Metrics]:
        parts: list[TrainState] = stages.split(state)
        prepared = prepare(state.step, root, data, batches)
        totals, model_states, metrics = run_passes(
            parts, loss_scales(phase, parts[-1].extras), *prepared
        )
        roots = [stage.replicate(root) for stage in stages.stages]
        summed = [
            program.sum_up(*args)
            for program, *args in zip(programs, parts, totals, strict=True)
        ]
        grads, grad_sums = zip(*summed, strict=True)
        args = list(zip(parts, roots, grads, model_states, strict=True))
        each = list(zip(stages.stages, programs, args, strict=True))
        param_sums = [p.measure(*a, stage.replicate(grad_sums)) for stage, p, a in each]
        shared = metrics, grad_sums, param_sums
        applied = [p.apply(*a, *stage.replicate(shared)) for stage, p, a in each]
        return stages.merge([part for part, _ in applied]), applied[0][1]

    return Several(train_step, [prepare, *(one for p in programs for one in p)])


def _run_passes(
    stages: Stages,
    programs: list[StagePrograms],
    first_trained: int,
    loss_grad: jax.Array,
    parts: list[TrainState],
    scales: dict[str, Any],
    images: list[jax.Array],
    micro_keys: list[jax.Array],
    targets: list[Any],
) -> tuple[list[Any], list[Any], list[Metrics]]:
    """Run the forward and backward passes of all micro-batches.

    Returns:
      Accumulated gradients per stage, model state per stage, and metrics per
      micro-batch.
    """
    last = len(programs) - 1
    targets = stages.stages[last].replicate(targets)
    keys_of = [stage.replicate(micro_keys) for stage in stages.stages]
    totals = [p.zeros(part.params) for p, part in zip(programs, parts, strict=True)]
    model_states = [part.model_state for part in parts]
    # Pending inputs by (stage, micro-batch).
    inputs = {(0, micro): x for micro, x in enumerate(images)}
    pullbacks, output_grads = {}, {}
    metrics: list[Metrics] = []
    for stage, kind, micro in stages.timeline.ops:
        program, here = programs[stage], (stage, micro)
        if kind == "forward":
            is_last = stage == last
            y, pullbacks[here], model_states[stage], measured = program.forward(
                parts[stage].params,
                model_states[stage],
                inputs.pop(here),
                keys_of[stage][micro],
                (scales, targets[micro]) if is_last else (),
            )
            if is_last:
                metrics.append(measured)
                output_grads[here] = loss_grad
            else:
                inputs[stage + 1, micro] = stages.stages[stage + 1].take(y)
        elif stage >= first_trained:
            totals[stage], dx = program.backward(
                totals[stage], pullbacks.pop(here), output_grads.pop(here)
            )
            if stage > first_trained:
                output_grads[stage - 1, micro] = stages.stages[stage - 1].take(dx)
    return totals, model_states, metrics


def make_eval_step(task: Task, stages: Stages, preprocess: Preprocess) -> Several:
    """Create the program that computes the metrics of an evaluation batch."""
    first, last = stages.stages[0], stages.stages[-1]
    reducers = (TaskMetrics(task),)

    def prepare_batch(data: Any, batches: Batch) -> tuple[jax.Array, Batch]:
        batch = prepare_plain(preprocess, data, batches)
        read = {name: batch[name] for name in ("mask", "index")}
        return batch["image"], {**read, "target": task.target(batch)}

    def predict_pieces(stage: Stage, params: Any, model_state: Any, x: Any) -> Any:
        params, mesh = stage.layout.gather_params(params), stage.layout.mesh
        y = predict(stage.graphdef, params, model_state, x, stage.part, mesh)
        return stage.layout.images(y)

    images, whole = first.layout.image_shardings(IMAGES), replicated(first.layout.mesh)
    prepare = Compiled(prepare_batch, out_shardings=(images, whole))
    forward = [Compiled(partial(predict_pieces, stage)) for stage in stages.stages]
    everywhere = replicated(last.layout.mesh)
    reduce = Compiled(partial(reduce_batch, reducers), out_shardings=everywhere)

    def eval_step(weights: Any, data: Any, batches: Batch) -> Any:
        x, batch = prepare(data, batches)
        for stage, program in zip(stages.stages, forward, strict=True):
            model = stages.part(stage, weights)
            x = program(*model, stage.take(x))
        return reduce(x, last.replicate(batch))

    return Several(eval_step, [prepare, *forward, reduce])
