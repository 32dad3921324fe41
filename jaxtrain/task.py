"""Everything a run needs, built and checked from its config before any work is done."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jmp
import optax
from jax.sharding import Mesh

from jaxtrain import precision, random
from jaxtrain.compiled import Compiled
from jaxtrain.config import Config
from jaxtrain.data import pipeline, sources
from jaxtrain.data.pipeline import Dataset
from jaxtrain.data.preprocess import make_preprocess
from jaxtrain.errors import UserError
from jaxtrain.evaluate import eval_batch_size
from jaxtrain.optim import make_optimizer
from jaxtrain.parallel import sharding
from jaxtrain.parallel.mesh import make_mesh
from jaxtrain.plan import Plan, make_plan
from jaxtrain.schedule import Schedule, make_schedule
from jaxtrain.state import TrainState, build_graph, make_create_state
from jaxtrain.step import make_eval_step, make_train_step


@dataclass(frozen=True, kw_only=True)
class Task:
    """The parts of a run. `abstract_state` carries the shardings."""

    config: Config
    mesh: Mesh
    policy: jmp.Policy
    splits: sources.Splits
    plan: Plan
    tx: optax.GradientTransformationExtraArgs
    schedule: Schedule | None
    graphdef: Any
    create: Callable[[jax.Array], TrainState]
    abstract_state: TrainState

    @property
    def state_shardings(self) -> Any:
        return jax.tree.map(lambda x: x.sharding, self.abstract_state)


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The compiled functions, and the data that they read.

    `create` is `root_key -> state`,
    `train` is `(state, root_key, data, batches) -> (state, metrics)` and
    `eval` is `(params, model_state, sums, data, batches) -> sums`.
    """

    create: Compiled
    train: Compiled
    eval: Compiled
    train_set: Dataset
    validation_set: Dataset | None
    test_set: Dataset
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def compile_seconds(self) -> float:
        return self.create.seconds + self.train.seconds + self.eval.seconds


def build_task(config: Config) -> Task:
    """Load the sources and shape the run; nothing large is allocated yet.

    Raises:
      UserError: a name is unknown, or data, model, batch and devices do not fit.
    """
    mesh = make_mesh(config.parallel)
    micro_batch = config.data.batch_size // config.train.accumulate_steps
    name = "data.batch_size"
    if config.train.accumulate_steps > 1:
        name += " / train.accumulate_steps"
    sharding.check_batch_size(name, micro_batch, mesh)
    name = "data.eval_batch_size" if config.data.eval_batch_size else "data.batch_size"
    sharding.check_batch_size(name, eval_batch_size(config.data), mesh)
    if config.checkpoint.every_minutes is not None and jax.process_count() > 1:
        raise UserError(
            f"checkpoint.every_minutes = {config.checkpoint.every_minutes}: the clocks "
            "of several processes differ; use every_steps or every_epochs"
        )
    policy = precision.parse(config.precision)
    splits = sources.load(config.data, config.seed)
    train = splits.train
    _check_statistics(config, train.image_shape[-1])
    plan = make_plan(config, len(train), has_validation=splits.validation is not None)
    schedule = None
    if config.optimizer.learning_rate is not None:
        schedule = make_schedule(
            config.optimizer,
            total_steps=plan.total_steps,
            warmup_steps=plan.warmup_steps,
        )
    tx = make_optimizer(config.optimizer, schedule)
    shape, num_classes = train.image_shape, train.num_classes
    create = make_create_state(config, policy, shape, num_classes, tx)
    graphdef = build_graph(config, policy, shape, num_classes)
    abstract = jax.eval_shape(create, random.root_key(config.seed))
    abstract_state = jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
        abstract,
        sharding.infer(abstract, mesh),
    )
    return Task(
        config=config,
        mesh=mesh,
        policy=policy,
        splits=splits,
        plan=plan,
        tx=tx,
        schedule=schedule,
        graphdef=graphdef,
        create=create,
        abstract_state=abstract_state,
    )


def make_steps(task: Task) -> Steps:
    """Load the data onto the devices, or open its streams, and jit the steps."""
    config, mesh = task.config, task.mesh
    cache = pipeline.should_cache(config.data, task.splits)
    train_set, validation_set, test_set = pipeline.make_datasets(
        task.splits, mesh, cache
    )
    mean, std = config.data.mean, config.data.std
    if mean is None or std is None:
        mean, std = sources.statistics(train_set.source)
    dtype = task.policy.compute_dtype
    train_preprocess = make_preprocess(mean, std, dtype, config.data.augment)
    eval_preprocess = make_preprocess(mean, std, dtype)
    states, everywhere = task.state_shardings, sharding.replicated(mesh)
    return Steps(
        create=Compiled(task.create, out_shardings=states),
        train=Compiled(
            make_train_step(
                config.train, task.graphdef, task.tx, task.schedule, train_preprocess
            ),
            out_shardings=(states, everywhere),
            donate_argnums=0,
        ),
        eval=Compiled(
            make_eval_step(task.graphdef, eval_preprocess),
            out_shardings=everywhere,
            donate_argnums=2,
        ),
        train_set=train_set,
        validation_set=validation_set,
        test_set=test_set,
        mean=mean,
        std=std,
    )


def _check_statistics(config: Config, channels: int) -> None:
    for name in ("mean", "std"):
        values = getattr(config.data, name)
        if values is not None and len(values) != channels:
            raise UserError(
                f"data.{name} = {values} has {len(values)} value(s), the images have "
                f"{channels} channel(s)"
            )
