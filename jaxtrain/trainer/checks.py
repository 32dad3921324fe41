"""What does not fit together in a config, its data and its devices: told at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax.numpy as jnp
from jax.sharding import Mesh

from jaxtrain import config as config_lib
from jaxtrain.config.base import default_of
from jaxtrain.errors import UserError, counted
from jaxtrain.evaluation.evaluate import eval_batch_size
from jaxtrain.parallel import data_sharding
from jaxtrain.parallel.mesh import SPATIAL_AXES
from jaxtrain.plugin import hints_on
from jaxtrain.tasks.base import Task
from jaxtrain.trainer.task_decoder import decoder_of
from jaxtrain.trainer.timetable import Timetable
from jaxtrain.training.precision import Policy

if TYPE_CHECKING:
    from jaxtrain.config import Config


def check_devices(config: Config, policy: Policy, mesh: Mesh) -> None:
    """Check what a config asks of the devices, before any data are opened."""
    check_batches(config, mesh)
    check_sums(config, policy, mesh)


def check_task(config: Config, task: Task, mesh: Mesh) -> None:
    """Check what a config does with examples, for the task."""
    check_whole_batch(config, task)
    check_hold_out(config, task)
    check_views(config, task)
    check_refused(config, task)
    check_required(config, task)
    check_mixing(config, mesh, task)


def check_profile_steps(config: Config, timetable: Timetable) -> None:
    """Refuse to profile steps that no start of the run has."""
    steps, total = config.train.profile_steps, timetable.total_steps
    if steps is not None and steps[1] > total:
        raise UserError(
            f"train.profile_steps = {steps}: the run has {counted(total, 'step')}; "
            "profile earlier ones, or make it longer"
        )


def check_batches(config: Config, mesh: Mesh) -> None:
    """Check that the devices can share the batches, and the groups of batch norm."""
    if config.data.batch_size % config.data.repeats:
        raise UserError(
            f"data.repeats = {config.data.repeats} does not divide data.batch_size = "
            f"{config.data.batch_size}"
        )
    num_shards = data_sharding.num_batch_shards(mesh)
    reason = "the devices that share a batch (parallel.data x parallel.fsdp)"
    name = "data.batch_size"
    if config.train.accumulate_steps > 1:
        name += " / train.accumulate_steps"
    data_sharding.check_divisible(name, config.micro_batch_size, num_shards, reason)
    name = "data.eval_batch_size" if config.data.eval_batch_size else "data.batch_size"
    data_sharding.check_divisible(
        name, eval_batch_size(config.data), num_shards, reason
    )
    if config.norm_groups > 1 and config.norm_groups % num_shards:
        largest = config.micro_batch_size // num_shards
        raise UserError(
            f"parallel.batch_norm = {config.parallel.batch_norm} makes "
            f"{config.norm_groups} groups of {config.micro_batch_size} examples, which "
            f"{num_shards} devices cannot share without splitting one: {largest} or a "
            f"divisor of it would fit, or global"
        )


def check_sums(config: Config, policy: Policy, mesh: Mesh) -> None:
    """Refuse a dtype of gradient sums that parts of images would not go by."""
    asked, compute = config.parallel.reduce_dtype, jnp.dtype(policy.compute_dtype)
    if asked not in (None, compute.name) and data_sharding.num_image_parts(mesh) > 1:
        sizes = {axis: mesh.shape[axis] for axis in SPATIAL_AXES}
        axes = " and ".join(f"parallel.{a} = {n}" for a, n in sizes.items() if n > 1)
        raise UserError(
            f"parallel.reduce_dtype = {asked!r} with {axes}: XLA sums the gradients of "
            f"the parts of an image in what the layers compute in, {compute.name}; "
            "leave parallel.reduce_dtype out, or have the devices share the batch alone"
        )


def check_mixing(config: Config, mesh: Mesh, task: Task) -> None:
    """Check that examples can be mixed, those of a group on one device."""
    augment = config.data.augment
    if not augment.mixes:
        return
    if augment.mosaic and type(task).mosaic is Task.mosaic:
        raise UserError(
            f"data.augment.mosaic: task = {config.task!r} does not say what the target "
            "of a mosaic of four images is; leave it out, or give the task a method "
            "mosaic (docs/tasks.md)"
        )
    fields = [f"data.augment.{n}" for n in ("mixup", "cutmix") if getattr(augment, n)]
    pastes = task.can_paste and not augment.mixup
    if augment.mixes_pairs and type(task).mix is Task.mix and not pastes:
        raise UserError(
            f"{' and '.join(fields)}: task = {config.task!r} does not say what the "
            "target of two mixed examples is; leave it out, or give the task a method "
            "mix (docs/tasks.md)"
        )
    group = augment.group
    divisor = group * config.data.repeats * data_sharding.num_batch_shards(mesh)
    reason = (
        f"as groups of {group} examples are mixed, each on one device: {group} x "
        "data.repeats x parallel.data x parallel.fsdp"
    )
    size = config.data.batch_size
    data_sharding.check_divisible("data.batch_size", size, divisor, reason)


def check_refused(config: Config, task: Task) -> None:
    """Refuse fields that have no meaning for the task."""
    for path, reason in task.refused.items():
        section, _, name = path.rpartition(".")
        part = config_lib.get(config, section)
        value = getattr(part, name)
        if value != default_of(part, name):
            raise UserError(
                f"{path} = {value!r} with task = {config.task!r}: {reason}; leave it "
                "out"
            )


def check_required(config: Config, task: Task) -> None:
    """Refuse values of fields that are not what the task asks for."""
    for path, required in task.required.items():
        value = config_lib.get(config, path)
        if not required.holds(value):
            raise UserError(
                f"{path} = {value!r} with task = {config.task!r}: {required.reason}; "
                f"{required.fix}"
            )


def check_unfreezing(config: Config, timetable: Timetable) -> None:
    """Check that the layers that are frozen at first are trained in the end."""
    start, steps = timetable.unfreeze_step, timetable.total_steps
    if start is not None and start >= steps:
        train = config.train
        default = " (the default of train.fine_tune)" * (train.freeze_epochs is None)
        raise UserError(
            f"train.freeze_epochs = {train.first_epochs:g}{default} are {start} steps, "
            f"and the run has {steps}: lengthen it, "
            "or set train.freeze alone to freeze layers throughout"
        )


def check_rounded(config: Config, task: Task) -> None:
    """Refuse to round the outputs of a model whose numbers need more than 256 steps."""
    in_units = decoder_of(config, task).in_units
    if config.model.quantize is not None and in_units is not None:
        raise UserError(
            f"model.quantize = {config.model.quantize!r} with task = {config.task!r}: "
            "its outputs have the units of the data, and would be rounded to 256 "
            "steps: leave model.quantize out"
        )


def check_whole_batch(config: Config, task: Task) -> None:
    """Refuse micro-batches where the loss compares all examples of a batch."""
    asked = {
        "train.accumulate_steps": config.train.accumulate_steps,
        "parallel.pipeline_stages": config.parallel.pipeline_stages,
    }
    for path, num in asked.items():
        if num > 1 and task.needs_whole_batch:
            raise UserError(
                f"{path} = {num}: the loss of task = {config.task!r} compares each "
                "example with others of its batch, and a micro-batch has only some "
                f"of them: set {path} to 1, and data.batch_size to what fits"
            )


def check_hold_out(config: Config, task: Task) -> None:
    """Refuse to hold out classes from a task that only knows those it has learnt."""
    if config.data.hold_out == "classes" and not task.embeds:
        raise UserError(
            f"data.hold_out = 'classes': task = {config.task!r} cannot tell classes "
            "that it was not trained on; hold out examples"
            + hints_on("held-out classes", before=", or ")
        )


def check_views(config: Config, task: Task) -> None:
    """Refuse to average the probabilities of a task that has none."""
    if config.train.tta is not None and not task.one_class_an_image:
        raise UserError(
            f"train.tta = {config.train.tta!r}: task = {config.task!r} has no classes "
            "whose probabilities could be averaged; leave it out"
        )
    if config.data.sliding_size is not None and not task.class_maps:
        raise UserError(
            f"data.sliding_size = {config.data.sliding_size}: task = {config.task!r} "
            "has no classes of pixels, which windows of an image could tell; leave it "
            "out"
        )
