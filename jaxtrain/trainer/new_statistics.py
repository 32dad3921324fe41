"""Recomputation of batch-norm statistics of averaged weights, before evaluations."""

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

# Purpose of the compiled programs, for out-of-memory messages.
PURPOSE = "a batch for the statistics of averaged weights"


@dataclass(frozen=True, kw_only=True)
class NewStatistics:
    """Batch-norm statistics of the averaged weights of a run.

    The statistics are means over micro-batches of training images with evaluation
    preprocessing. If evaluations use sliding windows, the micro-batches consist of
    windows of training images. The choice of images or windows is fixed, so the
    statistics depend only on the weights, not on stops and resumes.

    Attributes:
      setup: Setup of the run.
      dataset: Training split of the run.
      programs: For each phase, in order, its first step and the program that computes
        the statistics of a micro-batch.
    """

    setup: Setup
    dataset: Dataset
    programs: tuple[tuple[int, Compiled], ...]

    def of(self, state: TrainState, step: int) -> TrainState:
        """Return a state in which averaged weights have new batch-norm statistics."""
        programs = [program for start, program in self.programs if start <= step]
        if not programs:  # All batch-norm layers are frozen.
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
    """Create the `NewStatistics` of a run; None if no statistics are recomputed.

    Args:
      setup: Setup of the run.
      dataset: Training split of the run.
      plain: Evaluation preprocessing of images.
    """
    average = setup.average
    if average is None or average.of_batches:
        return None
    programs = []
    for phase in setup.phases:
        # Even if a phase fixes the statistics of the trained weights, the averaged
        # weights need recomputed statistics.
        frozen = replace(phase.frozen, statistics=False)
        momenta = {
            path: momentum
            for path, momentum in phase.momenta.items()
            if path.rpartition("/")[0] not in frozen.layers
        }
        if momenta:
            apply = partial(_batch_statistics, setup, plain, momenta, frozen)
            program = compiler(apply, setup.mesh, PURPOSE)(MEAN)
            programs.append((phase.start, program))
    if not programs:
        return None
    return NewStatistics(setup=setup, dataset=dataset, programs=tuple(programs))


def _batch_statistics(
    setup: Setup,
    plain: Preprocess,
    momenta: Mapping[str, float],
    frozen: Frozen,
    weights: Any,
    data: Any,
    batches: Batch,
) -> tuple[dict[str, jax.Array], Batch]:
    layout = setup.layout
    batch = prepare_plain(plain, data, batches)
    images = layout.images(setup.grid.cut(batch["image"], batch[WINDOW]))
    whole = layout.gather_params(weights[0]), weights[1]
    rest = images, momenta, frozen, layout.cpus
    return statistics_of_batch(setup.graphdef, *whole, *rest), batch
