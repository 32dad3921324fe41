"""Feature extraction: outputs of frozen layers, cached on the devices.

If the first pieces of a model are frozen for the entire run and images are not
augmented, the outputs of these pieces replace the images, and a training step starts at
the first trainable piece.
"""

import copy
import functools
from dataclasses import dataclass, replace
from typing import Any

import jax
from flax import nnx

from jaxtrain.data.batch import Batch
from jaxtrain.data.batch_specs import eval_spec
from jaxtrain.data.datasets import Dataset
from jaxtrain.parallel import data_sharding
from jaxtrain.parallel.mesh import SPATIAL_AXES
from jaxtrain.tasks.base import Task, defines
from jaxtrain.trainer import cached_outputs
from jaxtrain.trainer.programs import augmented, compiled_step
from jaxtrain.trainer.run_data import RunData
from jaxtrain.trainer.setup import Setup
from jaxtrain.trainer.trainer import Trainer
from jaxtrain.training.eval_step import prepare_plain
from jaxtrain.training.forward import predict
from jaxtrain.training.state import TrainState
from jaxtrain.training.step import make_train_step
from jaxtrain.trees import num_bytes


@dataclass(frozen=True, kw_only=True)
class FeaturePlan:
    """Plan of feature caching.

    Attributes:
      part: Frozen first pieces of the model, whose output is cached.
      features: Abstract arrays for all training examples: `image` (the cached output,
        any pytree) and `target`.
      obstacle: Reason why features are not cached, or None.
    """

    part: slice
    features: Any
    obstacle: str | None

    def describe(self) -> str:
        """Describe the plan for the start-up table."""
        if self.obstacle is not None:
            return f"of frozen layers, computed in each step: {self.obstacle}"
        return (
            f"of the first {self.part.stop} pieces, computed once, "
            f"{num_bytes(self.features) / 1e6:,.1f} MB on each device"
        )


def plan(setup: Setup) -> FeaturePlan:
    """Find the frozen first pieces of a model, and whether to cache their output."""
    weights = setup.abstract_state.params, setup.abstract_state.model_state
    model, frozen = nnx.merge(setup.graphdef, *weights), setup.phases[0].frozen
    # A piece without layers is counted as frozen; at least one piece is trained.
    trained = (not frozen.layers.issuperset(piece.names) for piece in model.pieces)
    part = slice(0, next(i for i, is_trained in enumerate(trained) if is_trained))
    source, everywhere = setup.splits.train, data_sharding.replicated(setup.mesh)
    outputs = jax.eval_shape(
        functools.partial(predict, setup.graphdef, part=part),
        *weights,
        setup.create.blueprint.images(len(source)),
    )
    stored = eval_spec(source).stored(len(source), sharding=everywhere)
    features = {
        "image": jax.tree.map(lambda x: x.update(sharding=everywhere), outputs),
        "target": stored["target"],
    }
    obstacle = _obstacle(setup, part.stop, features)
    return FeaturePlan(part=part, features=features, obstacle=obstacle)


def _obstacle(setup: Setup, num_pieces: int, features: Any) -> str | None:
    """Reason why features cannot be cached, or None."""
    config, kind = setup.config, type(setup.task)
    obstacles = {
        "the layers are trained later": setup.timetable.unfreeze_step is not None,
        "the first piece of the model is trained": num_pieces == 0,
        **cached_outputs.changes_of_images(config.data, setup.splits.train.input),
        "the task computes its targets from the images": kind.target is not Task.target,
        "the method may use the images": config.method.name != "plain",
        "the task may use the images": defines(kind, "objective"),
        setup.execution.obstacle: setup.execution.obstacle is not None,
        "images are sharded (parallel.spatial)": any(
            setup.mesh.shape[axis] > 1 for axis in SPATIAL_AXES
        ),
        **cached_outputs.too_large(features),
    }
    return next((why for why, holds in obstacles.items() if holds), None)


def keep_features(trainer: Trainer, state: TrainState) -> Trainer:
    """Cache the features of frozen layers, unless the plan has an obstacle.

    Args:
      trainer: Trainer whose training step takes images.
      state: State with the weights of the frozen layers.

    Returns:
      Trainer whose training step takes the cached features; with an obstacle,
      `trainer`.
    """
    if not trainer.phases[0].frozen.layers:
        return trainer
    planned, run_data = plan(trainer), trainer.data
    if planned.obstacle is not None:
        return trainer
    dataset = run_data.train_set
    found = _extract(trainer, run_data, planned, state)
    (phase,) = trainer.phases
    step = make_train_step(
        trainer.task,
        trainer.graphdef,
        phase,
        _look_up,
        trainer.layout,
        slice(planned.part.stop, None),
    )
    with jax.default_matmul_precision(trainer.policy.products):
        train = compiled_step(trainer, step)
    features = Dataset(dataset.source, found, dataset.defects)
    other = copy.copy(trainer)
    vars(other)["data"] = replace(run_data, train_set=features)
    vars(other)["programs"] = replace(trainer.programs, train=((0, train),))
    return other


def _look_up(data: Any, batch: Batch, root: jax.Array, step: jax.Array) -> Batch:
    """Look up the cached features of a batch; replaces preprocessing."""
    return {**batch, **jax.tree.map(lambda array: array[batch["index"]], data)}


def _extract(
    setup: Setup, run_data: RunData, planned: FeaturePlan, state: TrainState
) -> dict[str, Any]:
    """Compute the features of all training examples, on every device."""
    (phase,), dtype = setup.phases, setup.policy.compute_dtype
    prepare = augmented(setup, phase, run_data.mean, run_data.std, dtype)

    def apply(weights: Any, data: Any, batches: Batch) -> tuple[Any, Batch]:
        params, model_state = weights
        batch = prepare_plain(prepare, data, batches)
        params = setup.layout.gather_params(params)
        images = setup.layout.images(batch["image"])
        with jax.default_matmul_precision(setup.policy.products):
            outputs = predict(setup.graphdef, params, model_state, images, planned.part)
        return {"image": outputs, "target": batch["target"]}, batch

    weights = state.params, state.model_state
    data, dataset = setup.config.data, run_data.train_set
    return cached_outputs.of_each_example(
        apply, weights, planned.features, data, dataset, setup.mesh
    )
