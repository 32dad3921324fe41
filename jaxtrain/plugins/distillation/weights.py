"""Weights of the teacher: loading, checks against the task, placement on the devices.

The weights are arguments of the compiled step rather than constants. They are not part
of the TrainState: checkpoints do not contain them, and a resumed run loads them again.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from jaxtrain.config import Config, DataConfig
from jaxtrain.data.batch import Batch, Preprocess
from jaxtrain.data.datasets import Dataset
from jaxtrain.data.input_kind import InputKind
from jaxtrain.data.pixel_normalization import Normalization
from jaxtrain.errors import UserError, counted
from jaxtrain.parallel.data_sharding import replicated
from jaxtrain.parallel.layout import Layout, add_fsdp
from jaxtrain.plugins.distillation.imitations import teacher_options
from jaxtrain.plugins.distillation.teacher import Teacher
from jaxtrain.tasks.base import Task
from jaxtrain.tasks.outputs import abstract_outputs
from jaxtrain.trainer import cached_outputs
from jaxtrain.training.eval_step import prepare_plain
from jaxtrain.training.forward import predict
from jaxtrain.training.methods.inputs import MethodContext, MethodInputs
from jaxtrain.training.precision import Policy, parse
from jaxtrain.trees import by_path, num_bytes
from jaxtrain.weights import NUM_SHOWN
from jaxtrain.weights.description import Description
from jaxtrain.weights.stored import Transfer, Weights, abstract_weights

# Maximum number of class names in a message.
MAX_NAMED = 3


@dataclass(frozen=True, eq=False)
class TeacherWeights(MethodInputs):
    """Teacher of a training step, before its weights or cached outputs are loaded.

    Attributes:
      trained: Resolved weights of the teacher.
      weights: Abstract parameters and model state, with shardings.
      teacher: Forward pass of the teacher.
      cached: Abstract cached outputs for all training examples; None if outputs are
        computed in each step.
      reason: Reason why outputs are not cached, or empty.
    """

    trained: Weights
    weights: tuple[Any, Any]
    teacher: Teacher
    cached: Any = None
    reason: str = ""

    @property
    def abstract(self) -> Any:
        return self.weights if self.cached is None else self.cached

    def read(self) -> tuple[Any, Any]:
        """Load the weights onto the devices.

        Raises:
          UserError: The weights are damaged.
        """
        return Transfer(self.trained).fill(self.weights)

    def load(
        self,
        data: DataConfig,
        dataset: Dataset,
        mesh: Mesh,
        prepare: Preprocess,
        seen: Normalization,
    ) -> Any:
        weights = self.read()
        if self.cached is None:
            return weights

        def ask(weights: Any, data: Any, batches: Batch) -> tuple[Any, Batch]:
            batch = prepare_plain(prepare, data, batches)
            return self.teacher.ask(weights, batch, seen), batch

        return cached_outputs.of_each_example(
            ask, weights, self.cached, data, dataset, mesh
        )

    def describe(self) -> dict[str, str]:
        about, digest = self.trained.about, self.trained.digest()
        height, width, channels = about.image_shape
        text = f"{about.model.name} at {height}x{width}x{channels}, {about.precision}"
        if self.cached is None:
            how = f"computed in each step: {self.reason}"
        else:
            size = num_bytes(self.cached) / 1e6
            how = f"computed once, {size:,.1f} MB on each device"
        return {
            "teacher": f"{self.trained.where}: {text}, sha256 {digest[:NUM_SHOWN]}",
            "teacher outputs": how,
        }


def plan_teacher(
    trained: Weights,
    named: str,
    context: MethodContext,
    *,
    precision: str | None,
    caches: bool,
) -> tuple[TeacherWeights, Any]:
    """Return a training step's teacher, and its abstract outputs for a micro-batch.

    Args:
      trained: Resolved weights of the teacher.
      named: Name of the teacher in messages.
      context: Context of the student's run.
      precision: Precision policy of the teacher; None means the policy that it was
        trained with.
      caches: Whether to cache outputs if the images are the same in every epoch.

    Raises:
      UserError: The teacher is incompatible with the task or the images.
    """
    about, config, task = trained.about, context.config, context.task
    source, layout, images = context.source, context.layout, context.images
    if precision is not None:
        about = dataclasses.replace(about, precision=precision)
    _check_task(about, config, task, named)
    _check_images(about, source.input, images.shape, named)
    about.check_is_one(named)
    weights = abstract_weights(about)
    trained.check_whole(weights, f"{named} does not match its model description")
    policy = parse(about.precision)
    specs = {
        path: add_fsdp([None] * x.ndim, x.shape, layout.mesh.shape["fsdp"])
        for path, x in by_path(weights).items()
    }
    alone = dataclasses.replace(layout, specs=specs, copies=None)
    teacher = Teacher(
        apply=partial(_apply, nnx.graphdef(about.abstract), policy, alone),
        layout=alone,
        normalization=Normalization(about.mean, about.std),
        image_shape=about.image_shape,
        interpolation=about.interpolation,
        dtype=policy.compute_dtype,
        order=_order_of_classes(about, task, named),
    )
    outputs = _abstract_outputs(teacher, weights, images)
    _check_outputs(task, outputs, images, named)
    placed = jax.tree.map(
        lambda x, f: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=f),
        weights,
        alone.weights(weights),
    )
    cached = _abstract_cache(outputs, len(source), layout)
    obstacles = {
        "the method may need outputs for other images": not caches,
        **cached_outputs.changes_of_images(config.data, source.input),
        **cached_outputs.too_large(cached),
    }
    reason = next((why for why, holds in obstacles.items() if holds), "")
    planned = TeacherWeights(
        trained, placed, teacher, cached=None if reason else cached, reason=reason
    )
    return planned, outputs


def _abstract_cache(outputs: Any, num: int, layout: Layout) -> Any:
    """Return an abstract, replicated cache of outputs for `num` examples."""
    everywhere = replicated(layout.mesh)
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(
            (num, *x.shape[1:]), x.dtype, sharding=everywhere
        ),
        outputs,
    )


def _apply(
    graphdef: Any,
    policy: Policy,
    layout: Layout,
    weights: Any,
    images: jax.Array,
) -> Any:
    params, model_state = weights
    with jax.default_matmul_precision(policy.products):
        return predict(graphdef, params, model_state, images, mesh=layout.mesh)


def _abstract_outputs(
    teacher: Teacher, weights: Any, images: jax.ShapeDtypeStruct
) -> Any:
    some = Normalization((0.5,) * images.shape[-1], (0.5,) * images.shape[-1])
    return jax.eval_shape(partial(teacher.ask, seen=some), weights, {"image": images})


def _check_task(about: Description, config: Config, task: Task, named: str) -> None:
    if about.task != config.task.name:
        raise UserError(
            f"{named} was trained on task = {about.task!r}, but this run has task = "
            f"{config.task.name!r}: give a teacher of the same task"
        )
    for option in teacher_options(task):
        ours, theirs = (
            x.get(option) for x in (config.task.as_text(), about.task_options)
        )
        if str(ours) != str(theirs):
            raise UserError(
                f"{named} has task.{option} = {theirs}, but this run has {ours}: set "
                f"--task.{option.replace('_', '-')} {theirs}, so that teacher and "
                "student outputs are comparable"
            )


def _check_images(
    about: Description,
    input: InputKind,
    shape: tuple[int, ...],
    named: str,
) -> None:
    if about.input != input:
        sections = [f"data.{name}" for x in (input, about.input) for name in vars(x)]
        raise UserError(
            f"{named} was trained on {_described(about.input)}, but this run uses "
            f"{_described(input)}: give a teacher with the same {sections[0]}"
        )
    ours, theirs = shape[-1], about.image_shape[-1]
    if ours != theirs and {ours, theirs} != {1, 3}:
        raise UserError(
            f"{named} was trained on images with {counted(theirs, 'channel')}, but "
            f"this run has {ours}: only 1 and 3 channels can be converted into each "
            "other; give a teacher for images with the channels of this run"
        )


def _described(input: InputKind) -> str:
    return f"{input.noun}s" + (f" as {input.settings}" if input.settings else "")


def _check_outputs(
    task: Task, outputs: Any, images: jax.ShapeDtypeStruct, named: str
) -> None:
    wanted = abstract_outputs(task, images.shape[:1], images.dtype)
    shapes, expected = (jax.tree.map(np.shape, tree) for tree in (outputs, wanted))
    if shapes != expected:
        raise UserError(
            f"{named} has outputs of shape {shapes} for images of shape "
            f"{images.shape}, but outputs in this run have shape {expected}: give a "
            "teacher with the same output shape"
        )


def _order_of_classes(
    about: Description, task: Task, named: str
) -> tuple[int, ...] | None:
    """Match the classes of the run with the classes of the teacher, by name.

    Returns:
      Teacher's class index of each class of the run; None if the classes have the same
      order, or if the run or the teacher has no class names.

    Raises:
      UserError: The teacher and the run have different classes.
    """
    ours = task.class_names or task.column_names
    theirs = about.class_names or about.column_names
    if ours is None or theirs is None or ours == theirs:
        return None
    if sorted(ours) == sorted(theirs) and len({*ours}) == len(ours):
        return tuple(map(theirs.index, ours))
    unnamed = tuple(map(str, range(len(ours))))
    if len(ours) == len(theirs) and unnamed in (ours, theirs):
        return None
    missing = [name for name in ours if name not in theirs]
    more = [name for name in theirs if name not in ours]
    told = [f"lacks {_listed(missing)}"] * bool(missing)
    told += [f"also has {_listed(more)}"] * bool(more)
    raise UserError(
        f"{named} was trained on {counted(len(theirs), 'class', 'classes')}, but this "
        f"run has {len(ours)}: the teacher {' and '.join(told)}; fine-tune the teacher "
        "on the data of this run first (docs/fine-tuning.md), or give another teacher"
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(map(repr, names[:MAX_NAMED])) + more
