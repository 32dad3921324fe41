"""Pipeline parallelism: the steps of a run whose layers lie on different devices.

The host gives each stage its passes in the order of the timeline, and XLA runs them as
their inputs come: one thread keeps all stages busy. A forward pass leaves its residuals
on the stage, for the backward pass of the same micro-batch; only activations, and their
gradients, go from stage to stage. The results are those of `jaxtrain.training.step`.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain import keys
from jaxtrain.config import TrainConfig
from jaxtrain.data.batch import Batch
from jaxtrain.data.preprocess import Preprocess
from jaxtrain.parallel.sharding import replicated
from jaxtrain.tasks.base import Sums, Task
from jaxtrain.training.compiled import Compiled, Several
from jaxtrain.training.stages.cut import Stage, Stages
from jaxtrain.training.stages.programs import StagePrograms
from jaxtrain.training.state import TrainState
from jaxtrain.training.step import add_batch, micro_batch, predict
from jaxtrain.training.update import Metrics, Update


class TrainStep(Several):
    """`(state, root_key, data, batches) -> (state, metrics)`, as `make_train_step`.

    The data and the batches lie on the first stage, which prepares the images; the
    targets go from there to the last, the keys of what is random to all.
    """

    def __init__(
        self,
        config: TrainConfig,
        task: Task,
        stages: Stages,
        update: Update,
        preprocess: Preprocess,
        abstract: Any,
        output_dtype: Any,
    ):
        self._stages = stages
        first, last = stages.stages[0], stages.stages[-1]
        whole = replicated(first.layout.mesh)
        self._prepare = Compiled(
            functools.partial(_prepare, task, preprocess, config.accumulate_steps),
            out_shardings=(first.activations(4), whole, whole),
        )
        shardings = stages.shardings(abstract)
        trains = [bool(update.frozen.part(state.params)[0]) for state in shardings]
        first_trained = trains.index(True)
        self._programs = [
            StagePrograms(
                stage,
                task,
                config,
                update,
                state,
                output_dtype,
                is_last=stage is last,
                is_first_trained=index == first_trained,
                goes_back=index >= first_trained,
            )
            for index, (stage, state) in enumerate(
                zip(stages.stages, shardings, strict=True)
            )
        ]

    def parts(self) -> list[Compiled | Several]:
        return [self._prepare, *self._programs]

    def __call__(
        self, state: TrainState, root: jax.Array, data: Any, batches: Batch
    ) -> tuple[TrainState, Metrics]:
        parts: list[TrainState] = self._stages.split(state)
        prepared = self._prepare(state.step, root, data, batches)
        totals, model_states, metrics = self._passes(parts, *prepared)
        stages, programs = self._stages.stages, self._programs
        summed = [
            program.sum_up(*args)
            for program, *args in zip(programs, parts, totals, strict=True)
        ]
        grads, grad_sums = zip(*summed, strict=True)
        roots = [stage.take_whole(root) for stage in stages]
        param_sums = [
            program.measure(*args, stage.take_whole(grad_sums))
            for stage, program, *args in zip(
                stages, programs, parts, roots, grads, model_states, strict=True
            )
        ]
        shared = metrics, grad_sums, param_sums
        applied = [
            program.apply(*args, *stage.take_whole(shared))
            for stage, program, *args in zip(
                stages, programs, parts, roots, grads, model_states, strict=True
            )
        ]
        state = self._stages.merge([part for part, _ in applied])
        return state, applied[0][1]

    def _passes(
        self,
        parts: list[TrainState],
        images: list[jax.Array],
        micro_keys: list[jax.Array],
        targets: list[Any],
    ) -> tuple[list[Any], list[Any], list[Metrics]]:
        """Run the forward and backward passes of all micro-batches.

        Returns:
          For each stage the sum of the gradients and the batch-norm statistics, and for
          each micro-batch the metrics.
        """
        stages, programs = self._stages.stages, self._programs
        last = len(stages) - 1
        loss_scale = parts[last].loss_scale
        targets = stages[last].take_whole(targets)
        keys_of = [stage.take_whole(micro_keys) for stage in stages]
        totals = [p.zeros(part.params) for p, part in zip(programs, parts, strict=True)]
        model_states = [part.model_state for part in parts]
        # What waits for a stage to take it up, by stage and micro-batch.
        inputs = {(0, micro): x for micro, x in enumerate(images)}
        pullbacks, output_grads = {}, {}
        metrics: list[Metrics] = []
        for stage, kind, micro in self._stages.timeline.ops:
            program, here = programs[stage], (stage, micro)
            if kind == "forward":
                target = (
                    {**targets[micro], "loss_scale": loss_scale}
                    if stage == last
                    else {}
                )
                y, pullbacks[here], model_states[stage], measured = program.forward(
                    parts[stage].params,
                    model_states[stage],
                    inputs.pop(here),
                    keys_of[stage][micro],
                    target,
                )
                if stage == last:
                    metrics.append(measured)
                    output_grads[here] = program.loss_grad
                else:
                    inputs[stage + 1, micro] = stages[stage + 1].take(y)
            elif program.goes_back:
                totals[stage], dx = program.backward(
                    totals[stage], pullbacks.pop(here), output_grads.pop(here)
                )
                if stage > 0 and programs[stage - 1].goes_back:
                    output_grads[stage - 1, micro] = stages[stage - 1].take(dx)
        return totals, model_states, metrics


class EvalStep(Several):
    """What `make_eval_step` returns, with the layers on different devices."""

    def __init__(self, task: Task, stages: Stages, preprocess: Preprocess):
        self._stages = stages
        first = stages.stages[0]
        whole = replicated(first.layout.mesh)
        self._prepare = Compiled(
            functools.partial(_prepare_eval, task, preprocess),
            out_shardings=(first.activations(4), whole),
        )
        self._forward = [
            Compiled(functools.partial(_predict, stage)) for stage in stages.stages
        ]
        self._add = Compiled(
            functools.partial(_add_batch, task),
            out_shardings=replicated(stages.stages[-1].layout.mesh),
            donate_argnums=0,
        )

    def parts(self) -> list[Compiled]:
        return [self._prepare, *self._forward, self._add]

    def __call__(
        self, params: Any, model_state: Any, sums: Sums, data: Any, batches: Batch
    ) -> tuple[Sums, dict[str, Any]]:
        x, target = self._prepare(data, batches)
        for stage, forward in zip(self._stages.stages, self._forward, strict=True):
            model = self._stages.part(stage, (params, model_state))
            x = forward(*model, stage.take(x))
        sums, target = self._stages.stages[-1].take_whole((sums, target))
        return self._add(sums, x, target)


def _prepare(
    task: Task,
    preprocess: Preprocess,
    num_micro: int,
    step: jax.Array,
    root: jax.Array,
    data: Any,
    batches: Batch,
) -> tuple[list[jax.Array], list[jax.Array], list[dict[str, Any]]]:
    """Return for each micro-batch the images, the key and the target."""
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
        [{"target": part["target"]} for part in parts],
    )


def _prepare_eval(
    task: Task, preprocess: Preprocess, data: Any, batches: Batch
) -> tuple[jax.Array, tuple[Any, jax.Array]]:
    batch = jax.tree.map(lambda x: x[0], batches)
    unused = jnp.zeros((), jnp.int32)
    batch = preprocess(data, batch, keys.root_key(0), unused)
    return batch["image"], (task.target(batch), batch["mask"])


def _predict(stage: Stage, params: Any, model_state: Any, x: Any) -> Any:
    params = stage.layout.whole_params(params)
    return stage.constrain(predict(stage.graphdef, params, model_state, x, stage.part))


def _add_batch(
    task: Task, sums: Sums, outputs: Any, target: tuple[Any, jax.Array]
) -> tuple[Sums, dict[str, Any]]:
    return add_batch(task, sums, outputs, *target)
