"""Batch-norm statistics of averaged weights, computed anew before they are used."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax

from jaxtrain.data.batch import Batch, Preprocess
from jaxtrain.data.datasets import Dataset
from jaxtrain.evaluation.evaluate import ModelView, compiler
from jaxtrain.evaluation.statistics import MEAN, mean_statistics, with_statistics
from jaxtrain.trainer.setup import Setup
from jaxtrain.training.compiled import Compiled
from jaxtrain.training.eval_step import prepare_plain
from jaxtrain.training.frozen import Frozen
from jaxtrain.training.norm_statistics import (
    NUM_IMAGES,
    WINDOW,
    statistics_of_batch,
)
from jaxtrain.training.state import AVERAGE, TrainState, with_extra

# What the programs are for.
PURPOSE = "a batch for the statistics of averaged weights"


@dataclass(frozen=True, kw_only=True)
class NewStatistics:
    """Computes the statistics of the averaged weights of a run, as evaluations need.

    They are the means over batches of the same training images each time, prepared as
    in an evaluation and of the size of a micro-batch. Where evaluations see images in
    windows a batch has as many windows. So they are a function of the weights, and an
    evaluation or a checkpoint has the same wherever a run was stopped.

    Attributes:
      setup: Setup of the run.
      dataset: Training split of the run.
      programs: From which step on which program computes those of a batch.
    """

    setup: Setup
    dataset: Dataset
    programs: tuple[tuple[int, Compiled], ...]

    def of(self, state: TrainState, step: int) -> TrainState:
        """Return the state with the statistics of its average, after `step` steps."""
        programs = [program for start, program in self.programs if start <= step]
        if not programs:  # All layers that have some are frozen at first.
            return state
        average = state.extras[AVERAGE]
        weights = average["params"], average["model_state"]
        config, mesh = self.setup.config, self.setup.mesh
        view = ModelView(weights=weights, mesh=mesh, program=lambda _: programs[-1])
        size, grid = config.micro_batch_size, self.setup.grid
        most = max(NUM_IMAGES, size)
        means = mean_statistics(view, self.dataset, config.data, grid, size, most)
        new = with_statistics(average["model_state"], means)
        where = jax.tree.map(lambda x: x.sharding, average["model_state"])
        new = jax.device_put(new, where)
        return with_extra(state, AVERAGE, {**average, "model_state": new})


def make_new_statistics(
    setup: Setup, dataset: Dataset, plain: Preprocess
) -> NewStatistics | None:
    """Return what computes them; None where nothing is to be computed.

    Args:
      setup: Setup of the run.
      dataset: Training split of the run.
      plain: Prepares images as in an evaluation.
    """
    average = setup.average
    if average is None or average.of_batches:
        return None
    programs = []
    for phase in setup.phases:
        # Where those of the weights stay, those of their average still change.
        frozen = replace(phase.frozen, statistics=False)
        keeps = {
            path: kept
            for path, kept in phase.momenta.items()
            if path.rpartition("/")[0] not in frozen.layers
        }
        if keeps:
            apply = partial(_of_batch, setup, plain, keeps, frozen)
            program = compiler(apply, setup.mesh, PURPOSE)(MEAN)
            programs.append((phase.start, program))
    if not programs:
        return None
    return NewStatistics(setup=setup, dataset=dataset, programs=tuple(programs))


def _of_batch(
    setup: Setup,
    plain: Preprocess,
    keeps: Mapping[str, float],
    frozen: Frozen,
    weights: Any,
    data: Any,
    batches: Batch,
) -> tuple[dict[str, jax.Array], Batch]:
    layout = setup.layout
    batch = prepare_plain(plain, data, batches)
    images = layout.images(setup.grid.cut(batch["image"], batch[WINDOW]))
    whole = layout.gather_params(weights[0]), weights[1]
    rest = images, keeps, frozen, layout.cpus
    return statistics_of_batch(setup.graphdef, *whole, *rest), batch
