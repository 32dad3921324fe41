"""Batch-norm statistics of averaged weights, computed anew before they are used."""

import contextlib
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np

from jaxtrain.data import loader
from jaxtrain.data.batch import Batch, Preprocess
from jaxtrain.data.datasets import Dataset
from jaxtrain.engine import passes
from jaxtrain.parallel import sharding
from jaxtrain.trainer.setup import Setup
from jaxtrain.training.compiled import Compiled
from jaxtrain.training.eval_step import prepare_plain
from jaxtrain.training.frozen import Frozen
from jaxtrain.training.norm_statistics import (
    NUM_IMAGES,
    WINDOW,
    chosen_windows,
    mean_statistics,
    statistics_of_batch,
)
from jaxtrain.training.state import AVERAGE, TrainState, with_extra
from jaxtrain.trees import by_path

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
        program = programs[-1]
        average = state.extras[AVERAGE]
        weights = average["params"], average["model_state"]
        with contextlib.closing(self._batches()) as batches:
            means = mean_statistics(
                program(*weights, self.dataset.on_device, batch) for batch in batches
            )

        def put(path: str, x: jax.Array) -> jax.Array:
            if path not in means:
                return x
            return jax.device_put(means[path].astype(x.dtype), x.sharding)

        tree = jax.tree.structure(average["model_state"])
        flat = by_path(average["model_state"])
        new = tree.unflatten(put(path, x) for path, x in flat.items())
        return with_extra(state, AVERAGE, {**average, "model_state": new})

    def _batches(self) -> Generator[Batch, None, None]:
        config, mesh = self.setup.config, self.setup.mesh
        num, size = len(self.dataset.source), config.micro_batch_size
        most, rows = max(NUM_IMAGES, size), sharding.local_rows(mesh, size)
        chosen, windows = chosen_windows(self.setup.grid, num, size, most)
        found = loader.chosen_batches(config.data, self.dataset, mesh, chosen)
        with contextlib.closing(found):
            for batch, own in zip(found, windows[:, rows], strict=True):
                batch[WINDOW] = own.astype(np.int32)
                yield passes.shared(mesh, batch, size)


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
    programs, everywhere = [], sharding.replicated(setup.mesh)
    for phase in setup.phases:
        # Where those of the weights stay, those of their average still change.
        frozen = replace(phase.frozen, statistics=False)
        keeps = {
            path: kept
            for path, kept in phase.momenta.items()
            if path.rpartition("/")[0] not in frozen.layers
        }
        if keeps:
            of_batch = partial(_of_batch, setup, plain, keeps, frozen)
            program = Compiled(of_batch, PURPOSE, out_shardings=everywhere)
            programs.append((phase.start, program))
    if not programs:
        return None
    return NewStatistics(setup=setup, dataset=dataset, programs=tuple(programs))


def _of_batch(
    setup: Setup,
    plain: Preprocess,
    keeps: Mapping[str, float],
    frozen: Frozen,
    params: Any,
    model_state: Any,
    data: Any,
    batches: Batch,
) -> dict[str, jax.Array]:
    layout = setup.layout
    batch = prepare_plain(plain, data, batches)
    images = layout.images(setup.grid.cut(batch["image"], batch[WINDOW]))
    weights = layout.whole_params(params), model_state
    return statistics_of_batch(
        setup.graphdef, *weights, images, keeps, frozen, layout.cpus
    )
