"""Target transforms declared by a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jaxtrain.data.augment.geometry import Geometry

if TYPE_CHECKING:
    from jaxtrain.data.target_changes import Follow
    from jaxtrain.tasks.base import Task


def transform_of(task: Task) -> Follow:
    """Return the function that transforms targets like their images.

    For augmentations in `task.target_changes`, it calls `task.transform_target`; other
    augmentations leave targets unchanged.
    """

    def follow(target: Any, change: Any) -> Any:
        if isinstance(change, task.target_changes):
            return task.transform_target(target, change)
        return target

    return follow


def moves_targets(task: Task) -> bool:
    """Whether a task transforms targets for geometric augmentations."""
    return handles(task, Geometry)


def handles(task: Task, change: type) -> bool:
    """Whether a task transforms targets for augmentations of the type `change`."""
    return issubclass(change, task.target_changes)
