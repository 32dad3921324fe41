"""What does not fit together in a config, its data and its devices: told at once."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from jaxtrain import config as config_lib
from jaxtrain import own
from jaxtrain.config import Config, DataConfig
from jaxtrain.config.base import default_of
from jaxtrain.data.pixel_classes import MAX_VALUE
from jaxtrain.data.slices import UNLABELLED
from jaxtrain.data.sources import Source
from jaxtrain.engine.passes import eval_batch_size
from jaxtrain.errors import UserError, counted
from jaxtrain.models.base import Model
from jaxtrain.parallel import sharding
from jaxtrain.parallel.mesh import SPATIAL_AXES
from jaxtrain.plugin import hints_on
from jaxtrain.tasks.base import Task
from jaxtrain.trainer.task_decoder import decoder_of
from jaxtrain.trainer.timetable import Timetable
from jaxtrain.training.precision import Policy
from jaxtrain.training.state import split_model
from jaxtrain.training.step import predict


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


def check_model(
    config: DataConfig,
    model: Model,
    images: jax.ShapeDtypeStruct,
    task: Task,
    mesh: Mesh,
) -> None:
    """Check that a model fits images (B, H, W, C), the task and the devices."""
    check_image_shape(images.shape[1:], model, mesh)
    check_outputs(model, images, task)
    check_groups(model, mesh)
    check_training_sizes(config, model, images, mesh)


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


def check_sums(config: Config, policy: Policy, mesh: Mesh) -> None:
    """Refuse a dtype of gradient sums that parts of images would not go by."""
    asked, compute = config.parallel.reduce_dtype, jnp.dtype(policy.compute_dtype)
    if asked not in (None, compute.name) and sharding.num_image_parts(mesh) > 1:
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
    divisor = group * config.data.repeats * sharding.num_batch_shards(mesh)
    reason = (
        f"as groups of {group} examples are mixed, each on one device: {group} x "
        "data.repeats x parallel.data x parallel.fsdp"
    )
    size = config.data.batch_size
    sharding.check_divisible("data.batch_size", size, divisor, reason)


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


def training_facts(config: Config, train: Source) -> dict[str, Any]:
    """Return the facts of a set, with functions that look at its training split."""
    return {
        **train.facts,
        # Of others, examples without a label are left out or refused.
        "all_labelled": not own.is_own(config.data.source)
        and UNLABELLED not in config.data.train_split,
        "class_counts": partial(class_counts, config, train),
        "training_targets": partial(training_targets, config, train),
        "pixel_counts": partial(pixel_counts, config, train),
    }


def class_counts(config: Config, train: Source) -> np.ndarray:
    """Return how often the classes come in training, relative to each other, (C,).

    Raises:
      UserError: the targets are not classes.
    """
    strata, ends = train.strata(), np.array([0, len(train) - 1])
    if strata.ndim > 1 or not np.array_equal(train.targets(ends), strata[ends]):
        raise UserError(f"{config.data.source} does not group its examples by class")
    known = strata[strata >= 0]
    counts = np.bincount(known, minlength=train.facts.get("num_classes", 0))
    if config.data.sampling == "balanced":
        return (counts > 0).astype(np.int64)
    return counts


def pixel_counts(config: Config, train: Source) -> np.ndarray:
    """Return how many pixels of each value the masks of training have, int64 (256,).

    They are those of the stored masks, in their own sizes; unreadable ones have none.

    Raises:
      UserError: the set does not tell its masks.
    """
    if (count := getattr(train.store, "count_pixels", None)) is not None:
        return count(train.indices)
    targets = training_targets(config, train)
    return np.bincount(np.ravel(targets), minlength=MAX_VALUE + 1)


def training_targets(config: Config, train: Source) -> Any:
    """Return the stored targets of all training examples, (N, ...), to be counted.

    Raises:
      UserError: all images would have to be read for them.
    """
    targets = train.all_targets()
    if targets is None:
        raise UserError(
            f"{config.data.source} does not tell its targets without its images: give "
            "its store a method targets (docs/extending.md)"
        )
    return targets


def check_image_shape(shape: tuple[int, ...], model: Model, mesh: Mesh) -> None:
    """Check that the devices can share the rows and columns of (H, W, C) images."""
    sides = ("height", "spatial"), ("width", "spatial_width")
    for size, (side, axis) in zip(shape, sides, strict=False):
        devices, stride = mesh.shape[axis], model.stride
        if devices == 1:
            continue
        reason = f"parallel.{axis} = {devices} times the model's stride of {stride}"
        hint, divisor = "; see data.image_size", devices * stride
        sharding.check_divisible(f"image {side}", size, divisor, reason + hint)
        least = divisor * model.min_share
        if size < least:
            raise UserError(
                f"image {side} = {size} is too small for parallel.{axis} = {devices}: "
                f"each device needs {model.min_share} rows or columns of the last "
                f"layer, {least} pixels in all{hint}"
            )


def check_groups(model: Model, mesh: Mesh) -> None:
    """Check that the `model` axis splits the convolutions of groups evenly.

    If images share the other devices, and their channels are whole, XLA (jax 0.10.2)
    multiplies the gradient of such a kernel by the size of this axis.
    """
    devices = mesh.shape["model"]
    if devices == 1:
        return
    for path, layer in nnx.iter_modules(model):
        if not isinstance(layer, nnx.Conv) or layer.feature_group_count == 1:
            continue
        split = layer.kernel.get_metadata("split_dim", None) == -1
        if not split or layer.out_features % devices:
            raise UserError(
                f"parallel.model = {devices} does not split the {layer.out_features} "
                f"channels of {'/'.join(map(str, path))}, a convolution of groups, and "
                "XLA then computes its gradient wrongly; "
                + ("set another" if split else "set parallel.model = 1")
            )


def check_outputs(model: Model, images: jax.ShapeDtypeStruct, task: Task) -> None:
    """Check that an abstract model puts out what the task says, for some images."""
    graphdef, params, model_state = split_model(model)
    found = jax.eval_shape(partial(predict, graphdef), params, model_state, images)
    wanted = task.abstract_outputs(images.shape[:1], images.dtype)
    shapes, expected = (jax.tree.map(np.shape, tree) for tree in (found, wanted))
    if shapes != expected:
        raise UserError(
            f"the model puts out {shapes} for images {images.shape}: expected "
            f"{expected}, as the task says; choose another model.name, or one of your "
            "own that takes output_spec (docs/extending.md)"
        )


def check_training_sizes(
    config: DataConfig, model: Model, images: jax.ShapeDtypeStruct, mesh: Mesh
) -> None:
    """Check that a model takes images (B, H, W, C) of each size of the run."""
    graphdef, params, model_state = split_model(model)
    name = "progressive_sizes" if config.progressive_sizes else "train_image_size"
    for size in config.training_sizes:
        if size < model.min_size:
            raise UserError(
                f"data.{name} = {getattr(config, name)}: the model takes images from "
                f"{model.min_size}x{model.min_size} pixels up"
            )
        shape = (size, size, images.shape[-1])
        check_image_shape(shape, model, mesh)
        smaller = jax.ShapeDtypeStruct((images.shape[0], *shape), images.dtype)
        try:
            jax.eval_shape(partial(predict, graphdef), params, model_state, smaller)
        except (TypeError, ValueError) as error:
            raise UserError(
                f"data.{name} = {getattr(config, name)}: the model takes images of "
                f"{images.shape[1]}x{images.shape[2]} pixels only; choose another "
                "model.name, or leave it out"
            ) from error


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
