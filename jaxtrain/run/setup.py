"""Everything a run needs, built and checked from its config before any work is done."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from flax import nnx
from jax.sharding import Mesh

from jaxtrain import keys
from jaxtrain.config import Config
from jaxtrain.data import loader, sources
from jaxtrain.data.loader import Dataset
from jaxtrain.data.preprocess import Preprocess, make_preprocess
from jaxtrain.errors import UserError
from jaxtrain.models.layers import Model
from jaxtrain.parallel import sharding
from jaxtrain.parallel.mesh import make_stage_meshes
from jaxtrain.parallel.sharding import Layout
from jaxtrain.training import precision
from jaxtrain.training.compiled import Compiled, Program
from jaxtrain.training.evaluate import eval_batch_size
from jaxtrain.training.optimizers import make_optimizer
from jaxtrain.training.precision import Policy
from jaxtrain.training.schedules import make_schedule
from jaxtrain.training.stages import steps as stage_steps
from jaxtrain.training.stages.cut import Stages, build_stages
from jaxtrain.training.state import TrainState, build_abstract_model, make_create_state
from jaxtrain.training.step import make_eval_step, make_train_step
from jaxtrain.training.timetable import Plan, make_plan
from jaxtrain.training.update import Update, make_update

# What creates the state, trains and evaluates.
Programs = tuple[Program, Program, Program]


@dataclass(frozen=True, kw_only=True)
class Task:
    """The parts of a run. `abstract_state` carries the shardings.

    With pipeline stages `layout` is that of the first, which the data go to.
    """

    config: Config
    layout: Layout
    stages: Stages | None
    policy: Policy
    splits: sources.Splits
    plan: Plan
    update: Update
    graphdef: Any
    create: Callable[[jax.Array], TrainState]
    abstract_state: TrainState

    @property
    def mesh(self) -> Mesh:
        return self.layout.mesh

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

    create: Program
    train: Program
    eval: Program
    train_set: Dataset
    validation_set: Dataset | None
    test_set: Dataset
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def compile_seconds(self) -> float:
        return self.create.seconds + self.train.seconds + self.eval.seconds

    def compiling(self) -> bool:
        return self.create.compiling or self.train.compiling or self.eval.compiling


def build_task(config: Config) -> Task:
    """Load the sources and shape the run; nothing large is allocated yet.

    Raises:
      UserError: a name is unknown, or data, model, batch and devices do not fit.
    """
    layouts = [
        Layout(mesh, shard_params=config.parallel.preset != "zero1")
        for mesh in make_stage_meshes(config.parallel)
    ]
    _check_batches(config, layouts[0].mesh)
    _check_clocks(config)
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
    model = build_abstract_model(config, policy, shape, num_classes)
    _check_image_shape(shape, model, layouts[0].mesh)
    abstract = jax.eval_shape(create, keys.root_key(config.seed))
    stages = None
    if len(layouts) > 1:
        stages = build_stages(config, model, shape, policy.compute_dtype, layouts)
    return Task(
        config=config,
        layout=layouts[0],
        stages=stages,
        policy=policy,
        splits=splits,
        plan=plan,
        update=make_update(config, tx, schedule),
        graphdef=nnx.graphdef(model),
        create=create,
        abstract_state=_place(abstract, layouts[0], stages, config),
    )


def _place(
    abstract: TrainState, layout: Layout, stages: Stages | None, config: Config
) -> TrainState:
    """Return the abstract state with its shardings."""
    if stages is None:
        shardings = layout.state(abstract)
    else:
        shardings = stages.merge(stages.shardings(abstract))
    model = layout.mesh.shape["model"]
    if model > 1 and not sharding.splits_channels(shardings):
        raise UserError(
            f"parallel.model = {model} divides the channels of no layer of "
            f"{config.model.name}"
        )
    return jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s),
        abstract,
        shardings,
    )


def make_steps(task: Task) -> Steps:
    """Load the data onto the devices, or open its streams, and jit the steps."""
    config, mesh = task.config, task.mesh
    cache = loader.should_cache(config.data, task.splits)
    train_set, validation_set, test_set = loader.make_datasets(task.splits, mesh, cache)
    mean, std = config.data.mean, config.data.std
    if mean is None or std is None:
        mean, std = sources.statistics(train_set.source)
    dtype = task.policy.compute_dtype
    augmenting = make_preprocess(mean, std, dtype, config.data.augment)
    plain = make_preprocess(mean, std, dtype)
    make = _programs if task.stages is None else _pipeline_programs
    with jax.default_matmul_precision(task.policy.products):
        create, train, evaluate = make(task, augmenting, plain)
    return Steps(
        create=create,
        train=train,
        eval=evaluate,
        train_set=train_set,
        validation_set=validation_set,
        test_set=test_set,
        mean=mean,
        std=std,
    )


def _programs(task: Task, augmenting: Preprocess, plain: Preprocess) -> Programs:
    states, everywhere = task.state_shardings, sharding.replicated(task.mesh)
    create = Compiled(task.create, out_shardings=states)
    train = Compiled(
        make_train_step(
            task.config.train, task.graphdef, task.update, augmenting, task.layout
        ),
        out_shardings=(states, everywhere),
        donate_argnums=0,
    )
    evaluate = Compiled(
        make_eval_step(task.graphdef, plain, task.layout),
        out_shardings=everywhere,
        donate_argnums=2,
    )
    return create, train, evaluate


def _pipeline_programs(
    task: Task, augmenting: Preprocess, plain: Preprocess
) -> Programs:
    stages, abstract = task.stages, task.abstract_state
    assert stages is not None
    create = stage_steps.Create(task.create, stages, abstract)
    train = stage_steps.TrainStep(
        task.config.train,
        stages,
        task.update,
        augmenting,
        abstract,
        task.policy.output_dtype,
    )
    return create, train, stage_steps.EvalStep(stages, plain)


def _check_clocks(config: Config) -> None:
    if config.checkpoint.every_minutes is not None and jax.process_count() > 1:
        raise UserError(
            f"checkpoint.every_minutes = {config.checkpoint.every_minutes}: the clocks "
            "of several processes differ; use every_steps or every_epochs"
        )


def _check_batches(config: Config, mesh: Mesh) -> None:
    num_shards = sharding.num_batch_shards(mesh)
    reason = "the devices that share a batch (parallel.data x parallel.fsdp)"
    name = "data.batch_size"
    if config.train.accumulate_steps > 1:
        name += " / train.accumulate_steps"
    sharding.check_divisible(name, config.micro_batch_size, num_shards, reason)
    name = "data.eval_batch_size" if config.data.eval_batch_size else "data.batch_size"
    sharding.check_divisible(name, eval_batch_size(config.data), num_shards, reason)
    if config.norm_groups > 1 and config.norm_groups % num_shards:
        largest = config.micro_batch_size // num_shards
        raise UserError(
            f"parallel.batch_norm = {config.parallel.batch_norm} makes "
            f"{config.norm_groups} groups of {config.micro_batch_size} examples, which "
            f"{num_shards} devices cannot share without splitting one: {largest} or a "
            f"divisor of it would fit, or global"
        )


def _check_image_shape(shape: tuple[int, ...], model: Model, mesh: Mesh) -> None:
    sides = ("height", "spatial"), ("width", "spatial_width")
    for size, (side, axis) in zip(shape, sides, strict=False):
        devices = mesh.shape[axis]
        if devices > 1:
            sharding.check_divisible(
                f"image {side}",
                size,
                devices * model.stride,
                f"parallel.{axis} = {devices} times the model's stride of "
                f"{model.stride}; see data.image_size",
            )
            least = devices * model.stride * model.min_share
            if size < least:
                raise UserError(
                    f"image {side} = {size} is too small for parallel.{axis} = "
                    f"{devices}: each device needs {model.min_share} rows or columns "
                    f"of the last layer, {least} pixels in all; see data.image_size"
                )


def _check_statistics(config: Config, channels: int) -> None:
    for name in ("mean", "std"):
        values = getattr(config.data, name)
        if values is not None and len(values) != channels:
            raise UserError(
                f"data.{name} = {values} has {len(values)} value(s), the images have "
                f"{channels} channel(s)"
            )
