"""The compiled programs of a run, and the data that they read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxtrain import keys
from jaxtrain.config import Config, ParallelConfig
from jaxtrain.data import loader
from jaxtrain.data.batch import Preprocess
from jaxtrain.data.batch_specs import eval_spec
from jaxtrain.data.datasets import Dataset, make_datasets, should_cache
from jaxtrain.data.image_statistics import mean_and_std
from jaxtrain.data.normalization import Normalization
from jaxtrain.data.order import DataOrder
from jaxtrain.data.preprocess import make_preprocess
from jaxtrain.models.base import Model
from jaxtrain.models.remat import compiler_options
from jaxtrain.parallel import sharding
from jaxtrain.parallel.mesh import make_mesh
from jaxtrain.parallel.sharding import Layout
from jaxtrain.tasks.base import Sums
from jaxtrain.trainer.execution import Execution, Four
from jaxtrain.trainer.new_statistics import NewStatistics, make_new_statistics
from jaxtrain.trainer.setup import Setup
from jaxtrain.training import views
from jaxtrain.training.compiled import Compiled, Program
from jaxtrain.training.eval_step import make_eval_step
from jaxtrain.training.phase import Phase
from jaxtrain.training.state import TrainState
from jaxtrain.training.step import make_train_step

# What the programs are for that make the first state, and what takes less memory.
FIRST_STATE = (
    "the first state of the run",
    "set parallel.fsdp or a smaller model",
)


@dataclass(frozen=True, kw_only=True)
class Programs:
    """The compiled functions, and the data that they read.

    `weights` is `root_key -> weights` and `begin` is `weights -> state`.
    `train` has for each phase, `(state, root_key, data, batches, **beside) -> (state,
    metrics)`, where `beside` are arrays that the method reads beside the model;
    `eval` is `(params, model_state, sums, data, batches) -> (sums, kept)`, from
    `zero_sums` on. `statistics` computes those of averaged weights; None where the
    average has its own, or the weights have none.
    """

    weights: Program
    begin: Program
    train: tuple[tuple[int, Program], ...]
    eval: Program
    beside: dict[str, Any]
    zero_sums: Sums
    order: DataOrder
    train_set: Dataset
    validation_set: Dataset | None
    test_set: Dataset
    mean: tuple[float, ...]
    std: tuple[float, ...]
    statistics: NewStatistics | None = None

    def train_at(self, step: int) -> Program:
        """Return the program of the steps that follow `step` steps."""
        return [program for start, program in self.train if start <= step][-1]

    def datasets(self) -> list[Dataset]:
        """Return the splits that there are."""
        parts = (self.train_set, self.validation_set, self.test_set)
        return [part for part in parts if part is not None]

    def compile_seconds(self) -> float:
        return sum(program.seconds for program in self._all())

    def compiling(self) -> bool:
        return any(program.compiling for program in self._all())

    def _all(self) -> list[Program]:
        train = [program for _, program in self.train]
        found = self.statistics.programs if self.statistics else ()
        others = [program for _, program in found]
        return [self.weights, self.begin, *train, self.eval, *others]


def make_programs(setup: Setup) -> Programs:
    """Load data and the method's inputs, or open streams, and jit the steps."""
    config, mesh = setup.config, setup.mesh
    cache = should_cache(config.data, setup.splits)
    train_set, validation_set, test_set = make_datasets(
        setup.splits, mesh, cache, config.data.max_bad_fraction
    )
    mean, std = mean_and_std(config.data, setup.splits, train_set.source)
    dtype = setup.policy.compute_dtype
    augmenting = [augmented(setup, phase, mean, std, dtype) for phase in setup.phases]
    plain = unaugmented(setup, mean, std, dtype)
    with jax.default_matmul_precision(setup.policy.products):
        normalization = Normalization(mean, std)
        four = setup.execution.programs(setup, augmenting, plain, normalization)
        statistics = make_new_statistics(setup, train_set, plain)
    weights, begin, train, evaluate = four
    stored = eval_spec(setup.splits.test).batch(1)
    root = jax.eval_shape(lambda: keys.root_key(0))
    batch = jax.eval_shape(plain, {}, stored, root, np.int32(0))
    return Programs(
        weights=weights,
        begin=begin,
        train=tuple(zip((p.start for p in setup.phases), train, strict=True)),
        eval=evaluate,
        beside=_beside(setup, train_set, augmenting[0], Normalization(mean, std)),
        zero_sums=_zero_sums(setup, batch),
        order=loader.make_order(config.data, train_set.source, config.seed),
        train_set=train_set,
        validation_set=validation_set,
        test_set=test_set,
        mean=mean,
        std=std,
        statistics=statistics,
    )


def _beside(
    setup: Setup, train_set: Dataset, prepare: Preprocess, seen: Normalization
) -> dict[str, Any]:
    """Return the inputs of the method, which a step takes by keyword."""
    inputs = setup.method_inputs
    if inputs is None:
        return {}
    found = inputs.load(setup.config.data, train_set, setup.mesh, prepare, seen)
    return {"beside": found}


def augmented(
    setup: Setup,
    phase: Phase,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    dtype: Any,
) -> Preprocess:
    """Return what prepares the training batches of a phase."""
    return make_preprocess(
        mean,
        std,
        dtype,
        phase.augment,
        setup.task.follow,
        join=setup.task.mix,
        paste=setup.task.paste if setup.task.can_paste else None,
        join_tiles=setup.task.mosaic,
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
    """Return what prepares the batches of evaluations, of whole images.

    Args:
      setup: Setup of the run.
      mean: Mean of each channel, in 0..1.
      std: Standard deviation of each channel, in 0..1.
      dtype: Dtype of the prepared images.
    """
    splits, follow = setup.splits, setup.task.follow
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
    """Return the program of a train step of the whole model."""
    remat, platform = setup.config.train.remat, setup.layout.platform
    return Compiled(
        step,
        "a training step",
        out_shardings=(setup.state_formats, sharding.replicated(setup.mesh)),
        donate_argnums=0,
        compiler_options=compiler_options(remat, platform),
    )


def _whole(
    setup: Setup,
    augmenting: Sequence[Preprocess],
    plain: Preprocess,
    normalization: Normalization,
) -> Four:
    states, create, config = setup.state_formats, setup.create, setup.config
    weights = (states.params, states.model_state)
    train = tuple(
        compiled_step(
            setup,
            make_train_step(
                setup.task,
                setup.graphdef,
                phase,
                preprocess,
                setup.layout,
                mixes=config.data.augment.mixes,
                method=setup.method,
                normalization=normalization,
            ),
        )
        for phase, preprocess in zip(setup.phases, augmenting, strict=True)
    )
    evaluate = Compiled(
        make_eval_step(
            setup.task,
            setup.graphdef,
            plain,
            setup.layout,
            _view(config),
            setup.splits.input_shape[:2],
        ),
        "an evaluation",
        "set a smaller data.eval_batch_size, or more devices",
        out_shardings=sharding.replicated(setup.mesh),
        donate_argnums=2,
    )
    return (
        Compiled(create.weights, *FIRST_STATE, out_shardings=weights),
        Compiled(create.begin, *FIRST_STATE, out_shardings=states, donate_argnums=0),
        train,
        evaluate,
    )


def _view(config: Config) -> views.View:
    """Return what evaluations show the model of an image."""
    if config.data.sliding_size is not None:
        return views.sliding_windows
    return views.named(config.train.tta)


def _zero_sums(setup: Setup, batch: Any) -> Sums:
    """Return the sums over no examples, of a prepared batch of an evaluation."""
    task, dtype = setup.task, setup.policy.output_dtype

    def apply(images: jax.Array) -> Any:
        shapes = task.abstract_outputs(images.shape[:1], dtype)
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    def outputs(images: jax.Array) -> Any:
        return _view(setup.config)(apply, images, setup.splits.input_shape[:2])

    shapes = jax.eval_shape(outputs, batch["image"])
    return task.zero_sums(batch, dtype, shapes)


@dataclass(frozen=True)
class Whole(Execution):
    """One mesh holds the whole model: each step is a single program."""

    layout: Layout

    @classmethod
    def make_meshes(
        cls, config: ParallelConfig, devices: Sequence[Any] | None = None
    ) -> list[Mesh]:
        return [make_mesh(config, devices)]

    @classmethod
    def build(
        cls,
        model: Model,
        images: jax.ShapeDtypeStruct,
        layouts: Sequence[Layout],
        num_micro: int,
    ) -> Self:
        (layout,) = layouts
        return cls(layout)

    @property
    def num_devices(self) -> int:
        return self.layout.mesh.size

    def formats(self, abstract: TrainState) -> tuple[Any, Any]:
        return self.layout.formats(abstract), self.layout.state(abstract)

    def programs(
        self,
        setup: Setup,
        augmenting: Sequence[Preprocess],
        plain: Preprocess,
        normalization: Normalization,
    ) -> Four:
        return _whole(setup, augmenting, plain, normalization)
