"""Checks of a data set against config and task: `CHECKS`.

`build_setup` and `data --check` report all problems; single images are checked by
`jaxtrain.data.defects`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from jaxtrain import config as config_lib, tasks
from jaxtrain.config.part import TASKS, make_part
from jaxtrain.data.augment import check_augmentations
from jaxtrain.data.loader import check_sampling
from jaxtrain.data.pixel_classes import PIXEL_CLASSES
from jaxtrain.errors import counted
from jaxtrain.problems import Problem, ProblemList
from jaxtrain.tasks.base import Task
from jaxtrain.tasks.build import build_task
from jaxtrain.tasks.target_transforms import moves_targets
from jaxtrain.trainer.periods import check_split_sizes
from jaxtrain.trainer.training_facts import training_facts

if TYPE_CHECKING:
    from jaxtrain.config import Config
    from jaxtrain.data.sources import Splits

# Kind of problem: the task does not support the data.
TASK = "task"


def task_of_data(config: Config, splits: Splits) -> Task:
    """Create the task of a config, with the metadata of the training split.

    Raises:
      UserError: The data are incompatible with the task, or have no labels.
    """
    facts = training_facts(config, splits.train)
    return build_task(config, splits.input_shape, facts)


def check_statistics(config: Config, splits: Splits, task: Task) -> Iterator[Problem]:
    """Check that mean and standard deviation have one value per channel."""
    del task
    channels = splits.input_shape[-1]
    for name in ("mean", "std"):
        values = getattr(config.data, name)
        if values is not None and len(values) != channels:
            yield Problem(
                f"data.{name} = {values} has {counted(len(values), 'value')}, but the "
                f"images have {counted(channels, 'channel')}: set one value per "
                "channel",
                (f"data.{name}",),
            )


def check_augment(config: Config, splits: Splits, task: Task) -> list[Problem]:
    """Check that the augmentations support the images."""
    del task
    return check_augmentations(config.data.augment, splits.input_shape)


def check_targets(config: Config, splits: Splits, task: Task) -> Iterator[Problem]:
    """Check the targets of the splits against the task.

    The host crops and resizes targets like images only if the store supports it.
    Augmentations, in the training step, transform images and targets.
    """
    data = config.data
    on_device = splits.size is not None and not splits.train.canvas_shape
    resized = data.image_size is not None and not on_device
    if resized and not splits.train.transforms_targets and moves_targets(task):
        yield Problem(
            f"data.image_size = {data.image_size} resizes the images, but not the "
            "targets of this task: prepare images and targets in the same size, and "
            "leave data.image_size out",
            ("data.image_size",),
        )
    if data.augment.augmix and moves_targets(task):
        yield Problem(
            f"data.augment.augmix = {data.augment.augmix} mixes copies of an image "
            "with different geometric transforms, but a target of this task can "
            "match only one transform; leave data.augment.augmix out",
            ("data.augment.augmix",),
        )
    problems = ProblemList()
    named = (
        (data.train_split, splits.train),
        (data.validation_split or "validation", splits.validation),
        (data.test_split, splits.test),
    )
    for text, source in named:
        if source is not None:
            where = f"split {text!r} of {data.source}"
            problems.check(task.check_targets, source.targets_to_check(), where)
    yield from problems.found


def check_several_classes(
    config: Config, splits: Splits, task: Task
) -> Iterator[Problem]:
    """Check that the training split has several classes.

    Skipped if counting the classes would read the images.
    """
    train = splits.train
    has_several = getattr(train.store, "has_several_classes", None)
    if task.classes_fact == PIXEL_CLASSES and has_several is not None:
        several = has_several(train.indices)
        fewer = "the masks of the training split have pixels of fewer than two classes"
        fix = "add masks of other classes"
    elif task.one_class_an_image and isinstance(
        labels := train.all_targets(), np.ndarray
    ):
        several = len(np.unique(labels[labels >= 0])) > 1
        fewer = "the training split has images of fewer than two classes"
        fix = "add images of other classes"
    else:
        return
    if not several:
        yield Problem(
            f"data.source = {config.data.source!r}: {fewer}: {fix}, or set another "
            "data.train_split",
            ("data.source",),
        )


def check_order(config: Config, splits: Splits, task: Task) -> None:
    """Check that the training split supports the configured sampling of examples."""
    del task
    check_sampling(config.data, splits.train)


def check_sizes(config: Config, splits: Splits, task: Task) -> Iterator[Problem]:
    """Check that the required splits exist, with enough examples."""
    del task
    return check_split_sizes(
        config, len(splits.train), has_validation=splits.validation is not None
    )


# Kind of problem -> check function.
CHECKS: Mapping[str, Callable[[Config, Splits, Task], Iterable[Problem] | None]] = {
    "channels": check_statistics,
    "augment": check_augment,
    "targets": check_targets,
    "one_class": check_several_classes,
    "sampling": check_order,
    "split_sizes": check_sizes,
}
# Kinds of problems whose check requires a recipe.
OF_RECIPE = frozenset({"split_sizes"})


def judge(
    config: Config, splits: Splits, *, with_recipe: bool = True
) -> tuple[str | None, list[tuple[str, str]]]:
    """Check the data of a run; return its task and all problems.

    The caller must first allow the custom code that the config names (`own.allow`).

    Args:
      config: Config of the run.
      splits: Splits of the data.
      with_recipe: Whether the config is from a recipe. If not, and if the config sets
        no task, the task is inferred from the data.

    Returns:
      Name of the task (None if no task supports the data), and list of problems
      (kind, message).
    """
    if not with_recipe and config.task == config_lib.Config().task:
        train = splits.train
        suitable = tasks.suitable(train.facts, train.strata())
        if suitable is None:
            return None, []
        config = config_lib.replace(config, "task", make_part(TASKS, suitable))
    of_task = ProblemList()
    task = of_task.build(task_of_data, config, splits)
    found = [(TASK, problem.text) for problem in of_task.found]
    if task is None:
        return config.task.name, found
    for kind, check in CHECKS.items():
        if with_recipe or kind not in OF_RECIPE:
            problems = ProblemList()
            problems.check(check, config, splits, task)
            found += [(kind, problem.text) for problem in problems.found]
    return config.task.name, found
