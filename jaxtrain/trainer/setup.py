"""Setup of a run: its components, built from the config and checked before training.

Only this module reads the full config; lower-level modules receive config sections.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
from flax import nnx
from jax.sharding import Mesh

from jaxtrain import data as data_lib
from jaxtrain.config.checking import check_names
from jaxtrain.data.window_grid import WindowGrid, grid_of
from jaxtrain.models.annotations import make_specs
from jaxtrain.models.blueprint import Blueprint
from jaxtrain.models.projection import Projection
from jaxtrain.parallel.layout import Layout
from jaxtrain.problems import ProblemList
from jaxtrain.tasks.base import Task
from jaxtrain.tasks.metrics import Goal
from jaxtrain.tasks.task_metrics import goal
from jaxtrain.trainer import checks, data_checks, model_checks
from jaxtrain.trainer.execution import Execution, kind_of_execution
from jaxtrain.trainer.learning_rate import build_schedule
from jaxtrain.trainer.periods import make_timetable
from jaxtrain.trainer.phases import build_phases
from jaxtrain.trainer.resolve import resolve_config, resolve_options, resolve_statistics
from jaxtrain.trainer.state_sharding import copies, make_meshes, order_of_kernels, place
from jaxtrain.trainer.timetable import Timetable
from jaxtrain.training import precision
from jaxtrain.training.averages import Average
from jaxtrain.training.create import CreateState
from jaxtrain.training.methods.base import Method
from jaxtrain.training.methods.inputs import MethodContext, MethodInputs
from jaxtrain.training.phase import Phase
from jaxtrain.training.precision import Policy
from jaxtrain.training.schedules import Schedule
from jaxtrain.training.state import TrainState, split_model
from jaxtrain.training.transforms.average import WeightAverage

if TYPE_CHECKING:
    from jaxtrain.config import Config
    from jaxtrain.data.sources import Splits
    from jaxtrain.weights.stored import Weights


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Components of a run.

    `recipe` is the unresolved config, `config` the resolved config, and `trained` the
    pretrained weights that supplied values. `layout` is for the mesh that receives the
    data (of a pipeline, the first stage). `best` is the metric that ranks checkpoints,
    `watched` the metric for early stopping, and `plateau` the metric for the plateau
    schedule (None for other schedules). Phases differ in trainable layers or image
    size. Arrays in `abstract_state` have shardings.
    """

    config: Config
    recipe: Config
    trained: Weights | None
    layout: Layout
    execution: Execution
    policy: Policy
    splits: Splits
    task: Task
    method: Method
    method_inputs: MethodInputs | None
    best: Goal
    watched: Goal
    plateau: Goal | None
    timetable: Timetable
    phases: tuple[Phase, ...]
    graphdef: Any
    create: CreateState
    abstract_state: TrainState

    def evaluated_after(self, step: int) -> float:
        """Number of batches, possibly fractional, in all evaluations after a step."""
        splits, num = self.splits, self.timetable.evaluations_after(step)
        each = len(splits.validation) if splits.validation else 0
        return (num * each + len(splits.test)) / self.timetable.batch_size

    @property
    def mesh(self) -> Mesh:
        return self.layout.mesh

    @property
    def average(self) -> Average | None:
        """Weight average that evaluations use; None without averaging."""
        found = [
            one for one in self.create.transforms if isinstance(one, WeightAverage)
        ]
        return found[0].average if found else None

    @property
    def num_devices(self) -> int:
        """Number of devices of the run."""
        return self.execution.num_devices

    @property
    def grid(self) -> WindowGrid:
        """Sliding windows of evaluations."""
        return grid_of(self.splits.input_shape[:2], self.config.data.sliding_size)

    @property
    def method_arrays(self) -> dict[str, Any]:
        """Abstract inputs of the training method, as keyword arguments of the step."""
        inputs = self.method_inputs
        return {} if inputs is None else {"method_arrays": inputs.abstract}

    @property
    def state_formats(self) -> Any:
        """Memory layouts and shardings of the state."""
        return jax.tree.map(lambda x: x.format, self.abstract_state)


def build_setup(
    config: Config,
    schedule: Schedule | None = None,
    *,
    devices: Sequence[Any] | None = None,
    workdir: Path | None = None,
    sets_rate: bool = False,
) -> Setup:
    """Resolve and check a config, open its data, and build an abstract model.

    Args:
      config: Unresolved config, as given by the recipe.
      schedule: Learning-rate schedule. Defaults to the schedule of the config.
      devices: Devices of the run. Defaults to `jax.devices()`.
      workdir: Workdir of a run to resume; its config has the resolved values.
      sets_rate: Whether a callback scales the learning rate.

    Raises:
      UserError: A name is unknown, or data, model, batch and devices are incompatible.
        The message lists all problems.
    """
    problems, recipe = ProblemList(), config
    problems.check(check_names, recipe)
    resolved = problems.build(resolve_config, recipe, workdir=workdir)
    config = recipe if resolved is None else resolved.config
    kind = problems.build(kind_of_execution, config.parallel)
    meshes = problems.build(make_meshes, kind, config, devices=devices, pixels=0)
    mesh = None if meshes is None else meshes[0]
    policy = problems.build(precision.parse, config.precision)
    problems.check(checks.check_batches, config, mesh)
    problems.check(checks.check_sums, config, policy, mesh)
    if sets_rate:
        problems.check(checks.check_rate_factor, config)
    splits = problems.build(data_lib.load, config.data, config.seed)
    if splits is None:
        problems.stop()
    assert splits is not None
    shape = splits.input_shape
    pixels = config.data.batch_size * math.prod(shape[:2])
    meshes = problems.build(make_meshes, kind, config, devices=devices, pixels=pixels)
    mesh = None if meshes is None else meshes[0]
    if resolved is not None:
        config = resolve_statistics(config, resolved.trained, shape[-1])
    task = problems.build(data_checks.task_of_data, config, splits)
    if task is not None:
        config = resolve_options(config, task.inferred)
    for check in checks.OF_TASK:
        problems.check(check, config, task)
    if resolved is not None:
        problems.check(resolved.method.check, task, config.task.name)
    if kind is not None:
        problems.check(kind.check_task, config, task)
    problems.check(checks.check_mixing, config, mesh, task)
    for check in data_checks.CHECKS.values():
        problems.check(check, config, splits, task)
    timetable = problems.build(
        make_timetable,
        config,
        len(splits.train),
        has_validation=splits.validation is not None,
    )
    problems.check(checks.check_profile_steps, config, timetable)
    rates: tuple[Schedule | None] | None = (schedule,)
    if schedule is None:
        problems.check(checks.check_unfreezing, config, timetable)
        # Optimizers with a line search have no schedule.
        rates = problems.build(lambda *x: (build_schedule(*x),), config, timetable)
    blueprint = problems.build(_blueprint_of_task, config, policy, shape, task)
    model = problems.build(Blueprint.abstract, blueprint)
    model_checks.check_all(problems, config, blueprint, model, task, mesh)
    kernel_order = None if meshes is None else order_of_kernels(meshes)
    phases = problems.build(
        lambda config, timetable, model, rates: build_phases(
            config, timetable, model, rates[0], kernel_order, sets_rate=sets_rate
        ),
        *(config, timetable, model, rates),
    )
    problems.stop()
    assert resolved and kind and meshes and mesh and policy and task is not None
    assert timetable and blueprint and model is not None and phases
    method, trained = resolved.method, resolved.trained
    transforms = phases[-1].transforms
    create = CreateState(blueprint, phases[-1].tx, transforms)
    ranked_from = max(one.settled_after for one in transforms)
    timetable = replace(timetable, ranked_from=ranked_from)
    shard_params = config.parallel.preset != "zero1"
    specs = make_specs(model, mesh.shape)
    layouts = [
        Layout(
            mesh,
            specs,
            shard_params,
            copies(config, policy, model, mesh),
            kernel_order,
            phases[-1].tx,
            {one.name: one.sharded_as for one in transforms},
        )
        for mesh in meshes
    ]
    # Reuse the abstract model: building it again takes as long as tracing a step.
    abstract = jax.eval_shape(create.begin, split_model(model)[1:])
    micro = blueprint.images(config.micro_batch_size)
    method, method_inputs = method.plan_inputs(
        MethodContext(config, task, splits.train, layouts[0], micro)
    )
    execution = kind.build(model, micro, layouts, config.train.accumulate_steps)
    return Setup(
        config=config,
        recipe=recipe,
        trained=trained,
        layout=layouts[0],
        execution=execution,
        policy=policy,
        splits=splits,
        task=task,
        method=method,
        method_inputs=method_inputs,
        best=goal(
            task,
            "checkpoint.best_metric",
            config.checkpoint.best_metric or task.best_metric,
        ),
        watched=goal(task, "train.early_stop_metric", config.train.early_stop_metric),
        plateau=_plateau_goal(config, task),
        timetable=timetable,
        phases=phases,
        graphdef=nnx.graphdef(model),
        create=create,
        abstract_state=place(abstract, layouts[0], execution, config),
    )


def _blueprint_of_task(
    config: Config, policy: Policy, shape: tuple[int, int, int], task: Task
) -> Blueprint:
    return make_blueprint(
        config,
        policy,
        shape,
        task.num_outputs,
        task.output_spec,
        task.num_centres,
        task.projection,
    )


def _plateau_goal(config: Config, task: Task) -> Goal | None:
    if config.optimizer.schedule.name != "plateau":
        return None
    return goal(task, "optimizer.schedule", "loss")


def make_blueprint(
    config: Config,
    policy: Policy,
    image_shape: tuple[int, int, int],
    num_outputs: int,
    output_spec: Any = None,
    num_centres: int = 0,
    projection: Projection | None = None,
) -> Blueprint:
    """Create the blueprint of a config's model."""
    return Blueprint(
        config=config.model,
        policy=policy,
        image_shape=image_shape,
        num_outputs=num_outputs,
        output_spec=output_spec,
        norm_groups=config.norm_groups,
        num_centres=num_centres,
        projection=projection,
    )
