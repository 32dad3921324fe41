"""Compiled programs of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain import keys
from jaxtrain.data.batch import Preprocess
from jaxtrain.data.batch_specs import eval_spec
from jaxtrain.data.datasets import Dataset
from jaxtrain.data.pixel_normalization import Normalization
from jaxtrain.data.preprocess import make_preprocess
from jaxtrain.evaluation.reducers import TaskMetrics
from jaxtrain.models.remat import compiler_options
from jaxtrain.parallel import data_sharding
from jaxtrain.plugin import resolve
from jaxtrain.tasks.outputs import abstract_outputs
from jaxtrain.tasks.target_transforms import transform_of
from jaxtrain.trainer.run_data import RunData
from jaxtrain.trainer.setup import Setup
from jaxtrain.training import views
from jaxtrain.training.compiled import Compiled, Program
from jaxtrain.training.phase import Phase

if TYPE_CHECKING:
    from jaxtrain.config import Config
    from jaxtrain.trainer.new_statistics import NewStatistics

# Imported only by runs that average weights.
NEW_STATISTICS = "jaxtrain.trainer.new_statistics:make_new_statistics"


@dataclass(frozen=True, kw_only=True)
class Programs:
    """Compiled functions of a run, and the input arrays of its training method.

    Attributes:
      weights: Program that initializes the weights, `root_key -> weights`.
      begin: Program that creates the train state, `weights -> state`.
      train: Pairs (first step of a phase, training program of the phase). A program is
        `(state, root_key, data, batches, **method_arrays) -> (state, metrics)`.
      eval: Program that evaluates a batch, `((params, model_state), data, batches) ->
        result` (see `jaxtrain.evaluation.evaluate.reduce_batch`).
      method_arrays: Input arrays of the training method, as keyword arguments.
      statistics: Programs that recompute the batch-norm statistics of averaged weights;
        None if not needed.
    """

    weights: Program
    begin: Program
    train: tuple[tuple[int, Program], ...]
    eval: Program
    method_arrays: dict[str, Any]
    statistics: NewStatistics | None = None

    def train_at(self, step: int) -> Program:
        """Training program of the phase that contains a step."""
        return [program for start, program in self.train if start <= step][-1]

    def compile_seconds(self) -> float:
        return sum(program.seconds for program in self._all())

    def compiling(self) -> bool:
        return any(program.compiling for program in self._all())

    def _all(self) -> list[Program]:
        train = [program for _, program in self.train]
        found = self.statistics.programs if self.statistics else ()
        others = [program for _, program in found]
        return [self.weights, self.begin, *train, self.eval, *others]


def make_programs(setup: Setup, run_data: RunData) -> Programs:
    """Jit the programs of a run, and load the inputs of its training method."""
    train_set, mean, std = run_data.train_set, run_data.mean, run_data.std
    dtype = setup.policy.compute_dtype
    augmenting = [augmented(setup, phase, mean, std, dtype) for phase in setup.phases]
    plain = unaugmented(setup, mean, std, dtype)
    with jax.default_matmul_precision(setup.policy.products):
        normalization = Normalization(mean, std)
        four = setup.execution.programs(setup, augmenting, plain, normalization)
        statistics = None
        if setup.average is not None:
            statistics = resolve(NEW_STATISTICS)(setup, train_set, plain)
    weights, begin, train, evaluate = four
    stored = eval_spec(setup.splits.test).batch(1)
    root = jax.eval_shape(lambda: keys.root_key(0))
    batch = jax.eval_shape(plain, {}, stored, root, np.int32(0))
    _check_metrics(setup, batch)
    return Programs(
        weights=weights,
        begin=begin,
        train=tuple(zip((p.start for p in setup.phases), train, strict=True)),
        eval=evaluate,
        method_arrays=_method_inputs(setup, train_set, augmenting[0], normalization),
        statistics=statistics,
    )


def _method_inputs(
    setup: Setup, train_set: Dataset, prepare: Preprocess, seen: Normalization
) -> dict[str, Any]:
    """Load the training method's inputs, as keyword arguments of the training step."""
    inputs = setup.method_inputs
    if inputs is None:
        return {}
    found = inputs.load(setup.config.data, train_set, setup.mesh, prepare, seen)
    return {"method_arrays": found}


def augmented(
    setup: Setup,
    phase: Phase,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    dtype: Any,
) -> Preprocess:
    """Create the preprocessing function for the training batches of a phase."""
    return make_preprocess(
        mean,
        std,
        dtype,
        phase.augment,
        transform_of(setup.task),
        repeats=setup.config.data.repeats,
        size=phase.image_size or setup.splits.size,
        fit=setup.splits.fit,
        input=setup.splits.train.input,
    )


def unaugmented(
    setup: Setup,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    dtype: Any,
) -> Preprocess:
    """Create the preprocessing function for evaluation batches.

    Args:
      setup: Setup of the run.
      mean: Mean of each channel, in 0..1.
      std: Standard deviation of each channel, in 0..1.
      dtype: Dtype of the preprocessed images.
    """
    splits, follow = setup.splits, transform_of(setup.task)
    return make_preprocess(
        mean,
        std,
        dtype,
        follow=follow,
        size=splits.seen_size,
        fit=splits.fit,
        input=splits.train.input,
    )


def compiled_step(setup: Setup, step: Callable[..., Any]) -> Compiled:
    """Jit the training step of a single-mesh run; its first call compiles it."""
    remat, platform = setup.config.train.remat, setup.layout.platform
    return Compiled(
        step,
        "a training step",
        out_shardings=(setup.state_formats, data_sharding.replicated(setup.mesh)),
        donate_argnums=0,
        compiler_options=compiler_options(remat, platform),
    )


def view_of(config: Config) -> views.View:
    """View that evaluations use: sliding windows or test-time augmentation."""
    if config.data.sliding_size is not None:
        return views.sliding_windows
    return views.named(config.train.tta)


def _check_metrics(setup: Setup, batch: Any) -> None:
    """Trace the evaluation metrics, so that errors in metrics occur before training."""
    task, dtype = setup.task, setup.policy.output_dtype

    def apply(images: jax.Array) -> Any:
        shapes = abstract_outputs(task, images.shape[:1], dtype)
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    def metrics(batch: Any) -> Any:
        view, size = view_of(setup.config), setup.splits.input_shape[:2]
        outputs = view(apply, batch["image"], size)
        batch = {**batch, "target": task.target(batch)}
        return TaskMetrics(task).update(outputs, batch)

    jax.eval_shape(metrics, batch)
