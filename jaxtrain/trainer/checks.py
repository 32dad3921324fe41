"""Checks of a config against devices, task and run length."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jax.sharding import Mesh

from jaxtrain import config as config_lib
from jaxtrain.config.base import default_of
from jaxtrain.config.metadata import with_metadata
from jaxtrain.config.optimizer import DISTANCE_NAMES, LINE_SEARCH, SCHEDULE_FREE_NAMES
from jaxtrain.data.target_changes import Mixing, Mosaic, Pasting
from jaxtrain.errors import counted
from jaxtrain.evaluation.evaluate import eval_batch_size
from jaxtrain.parallel import data_sharding
from jaxtrain.parallel.mesh import SPATIAL_AXES
from jaxtrain.plugin import hints_on
from jaxtrain.problems import Problem
from jaxtrain.tasks.base import Task
from jaxtrain.tasks.target_transforms import handles
from jaxtrain.trainer.timetable import Timetable
from jaxtrain.training.precision import Policy

if TYPE_CHECKING:
    from jaxtrain.config import Config


def check_profile_steps(config: Config, timetable: Timetable) -> Iterator[Problem]:
    """Check that the profiled steps are within the run."""
    steps, total = config.train.profile_steps, timetable.total_steps
    if steps is not None and steps[1] > total:
        yield Problem(
            f"train.profile_steps = {steps}: the run has {counted(total, 'step')}; "
            "profile earlier steps, or lengthen the run",
            ("train.profile_steps",),
        )


def check_batches(config: Config, mesh: Mesh) -> Iterator[Problem]:
    """Check that the number of devices divides batch sizes and batch-norm groups."""
    if config.data.batch_size % config.data.repeats:
        yield Problem(
            f"data.repeats = {config.data.repeats} does not divide data.batch_size = "
            f"{config.data.batch_size}: set data.batch_size to a multiple of "
            f"{config.data.repeats}",
            ("data.repeats", "data.batch_size"),
        )
    num_shards = data_sharding.num_batch_shards(mesh)
    reason = "the devices that share a batch (parallel.data x parallel.fsdp)"
    name = "data.batch_size"
    if config.train.accumulate_steps > 1:
        name += " / train.accumulate_steps"
    yield from data_sharding.check_divisible(
        name, config.micro_batch_size, num_shards, reason, "data.batch_size"
    )
    name = "data.eval_batch_size" if config.data.eval_batch_size else "data.batch_size"
    yield from data_sharding.check_divisible(
        name, eval_batch_size(config.data), num_shards, reason, name
    )
    if config.norm_groups > 1 and config.norm_groups % num_shards:
        largest = config.micro_batch_size // num_shards
        yield Problem(
            f"parallel.batch_norm = {config.parallel.batch_norm} divides "
            f"{config.micro_batch_size} examples into {config.norm_groups} groups, "
            f"which {num_shards} devices cannot share without splitting a group: set "
            f"parallel.batch_norm to {largest}, to a divisor of {largest}, or to "
            "global",
            ("parallel.batch_norm",),
        )


def check_sums(config: Config, policy: Policy, mesh: Mesh) -> Iterator[Problem]:
    """Check that spatial sharding supports `parallel.reduce_dtype`."""
    asked, compute = config.parallel.reduce_dtype, jnp.dtype(policy.compute_dtype)
    if asked not in (None, compute.name) and data_sharding.num_image_parts(mesh) > 1:
        sizes = {axis: mesh.shape[axis] for axis in SPATIAL_AXES}
        axes = " and ".join(f"parallel.{a} = {n}" for a, n in sizes.items() if n > 1)
        yield Problem(
            f"parallel.reduce_dtype = {asked!r} with {axes}: XLA sums the gradients of "
            f"image shards in the compute dtype of the layers, {compute.name}; "
            "leave parallel.reduce_dtype out, or shard only the batch",
            ("parallel.reduce_dtype",),
        )


def check_rate_factor(config: Config) -> Iterator[Problem]:
    """Check that the optimizer supports callbacks that scale the learning rate."""
    name = config.optimizer.name
    if name in (*SCHEDULE_FREE_NAMES, *DISTANCE_NAMES, LINE_SEARCH):
        yield Problem(
            f"optimizer.name = {name!r} does not support a callback that scales the "
            "learning rate (sets_rate); use another optimizer, such as adamw, or leave "
            "the callback out"
        )


def check_mixing(config: Config, mesh: Mesh, task: Task) -> Iterator[Problem]:
    """Check that the task can mix images, and that mixed images share a device."""
    augment = config.data.augment
    if not augment.mixes:
        return
    if augment.mosaic and not handles(task, Mosaic):
        yield Problem(
            f"data.augment.mosaic: task = {config.task.name!r} does not define the "
            "target of a mosaic of four images; leave data.augment.mosaic out, or add "
            "Mosaic to the target_changes of the task (docs/tasks.md)",
            ("data.augment.mosaic",),
        )
    fields = [f"data.augment.{n}" for n in ("mixup", "cutmix") if getattr(augment, n)]
    change = Mixing if augment.mixup else Pasting
    if augment.mixes_pairs and not handles(task, change):
        yield Problem(
            f"{' and '.join(fields)}: task = {config.task.name!r} does not define the "
            f"target of two mixed examples; leave {' and '.join(fields)} out, or add "
            "Mixing to the target_changes of the task (docs/tasks.md)",
            tuple(fields),
        )
    group = augment.group
    divisor = group * config.data.repeats * data_sharding.num_batch_shards(mesh)
    reason = (
        f"{group} x data.repeats x parallel.data x parallel.fsdp, as groups of {group} "
        "examples are mixed on one device"
    )
    size = config.data.batch_size
    yield from data_sharding.check_divisible(
        "data.batch_size", size, divisor, reason, "data.batch_size"
    )


def check_refused(config: Config, task: Task) -> Iterator[Problem]:
    """Check that the task supports all config fields that differ from their default."""
    unusual = with_metadata(config_lib.Config, "unusual")
    unusual = {p: why for p, why in unusual.items() if p not in task.supports}
    for path, reason in {**unusual, **task.refused}.items():
        section, _, name = path.rpartition(".")
        part = config_lib.get(config, section)
        value = getattr(part, name)
        if value != default_of(part, name):
            yield Problem(
                f"{path} = {value!r} with task = {config.task.name!r}: {reason}; leave "
                f"{path} out" + hints_on(path, before=", or "),
                (path,),
            )


def check_required(config: Config, task: Task) -> Iterator[Problem]:
    """Check that config fields meet the requirements of the task."""
    for path, required in task.required.items():
        value = config_lib.get(config, path)
        if not required.holds(value):
            yield Problem(
                f"{path} = {value!r} with task = {config.task.name!r}: "
                f"{required.reason}; {required.fix}",
                (path,),
            )


def check_unfreezing(config: Config, timetable: Timetable) -> Iterator[Problem]:
    """Check that the run does not end before frozen layers are unfrozen."""
    start, steps = timetable.unfreeze_step, timetable.total_steps
    if start is not None and start >= steps:
        train = config.train
        default = " (the default of train.fine_tune)" * (train.freeze_epochs is None)
        yield Problem(
            f"train.freeze_epochs = {train.first_epochs:g}{default} freezes layers "
            f"for {start} steps, but the run has {steps}: lengthen the run, or set "
            "only train.freeze to freeze layers for the entire run",
            ("train.freeze_epochs",),
        )


def check_rounded(config: Config, task: Task) -> Iterator[Problem]:
    """Check that int8 outputs (`model.quantize`) suffice for the task."""
    if config.model.quantize is None:
        return
    from jaxtrain.trainer.task_decoder import decoder_of

    in_units = decoder_of(config, task).in_units
    if in_units is not None:
        yield Problem(
            f"model.quantize = {config.model.quantize!r} with task = "
            f"{config.task.name!r}: int8 would round the outputs, which are in units "
            "of the data, to 256 levels; leave model.quantize out",
            ("model.quantize",),
        )


def check_whole_batch(config: Config, task: Task) -> Iterator[Problem]:
    """Check that a loss over the full batch is not used with micro-batches."""
    asked = {
        "train.accumulate_steps": config.train.accumulate_steps,
        "parallel.pipeline_stages": config.parallel.pipeline_stages,
    }
    for path, num in asked.items():
        if num > 1 and task.needs_whole_batch:
            yield Problem(
                f"{path} = {num}: the loss of task = {config.task.name!r} compares all "
                "examples of a batch, but a micro-batch has only some of the examples: "
                f"set {path} = 1, and a data.batch_size that fits in memory",
                (path,),
            )


# Checks of the config against the task.
OF_TASK: tuple[Callable[[Config, Task], Iterator[Problem] | None], ...] = (
    check_rounded,
    check_whole_batch,
    check_refused,
    check_required,
)
