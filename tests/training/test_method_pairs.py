"""Training methods with other options: each pair trains, or is refused."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxtrain import tasks
from jaxtrain.config import AugmentConfig, SamConfig, part as part_lib
from jaxtrain.config.part import make_part
from jaxtrain.config.root import SECTIONS
from jaxtrain.training.methods import METHODS
from tests.helpers import method_pairs
from tests.helpers.layered import MODEL, layered, take_steps
from tests.helpers.method_pairs import refusal
from tests.helpers.parts import model_config
from tests.helpers.task_sources import SETTINGS, data_of
from tests.helpers.taught import write_teacher
from tests.helpers.tiers import diagonal

# Method -> options that make its steps short; those of the others are the defaults.
QUICK: dict[str, dict[str, Any]] = {
    "adversarial": {"norm": "l2", "steps": 2, "epsilon": 0.1},
    "trades": {"norm": "l2", "steps": 2, "epsilon": 0.1},
}
METHOD_NAMES = [name for name in METHODS if name != "plain"]


def options_of(method: str, place: Path, size: int, classes: int) -> dict[str, Any]:
    """Return the options of a method, and write the teacher that it asks, if any.

    Args:
      method: Name of the method.
      place: Folder to write a teacher to.
      size: Height and width of its images, which are grey.
      classes: Number of its classes.
    """
    options = {**method_pairs.METHOD_OPTIONS.get(method, {}), **QUICK.get(method, {})}
    if "teacher" in options:
        if not place.exists():
            names = tuple(map(str, range(classes)))
            shape = {"image_shape": (size, size, 1), "num_outputs": classes}
            write_teacher(place, **shape, class_names=names)
        options["teacher"] = str(place)
    return options


def test_what_does_not_go_together_is_told():
    told = refusal("sam", {"parallel.pipeline_stages": 2})
    assert told is not None and "runs the full model" in told
    for method in METHOD_NAMES:
        for path, value in ("parallel.pipeline_stages", 2), ("optimizer.name", "lbfgs"):
            told = refusal(method, {path: value})
            assert told is not None and f"{path} = {value!r}" in told
    told = refusal("trades", {"task": "regression"})
    assert told is not None and "task = 'regression'" in told
    for options in (*TOGETHER.values(), [{"task": name} for name in SETTINGS]):
        assert not [x for x in options if refusal("plain", x) is not None]


def trained(method: str, place: Path, **sections: Any) -> dict[str, np.ndarray]:
    """Return the metrics of some steps of a tiny run, after looks at them."""
    part = make_part(part_lib.METHODS, method, options_of(method, place, 4, 3))
    metrics = take_steps(layered(method=part, **sections)).metrics
    assert np.isfinite(metrics["loss"]).all() and len({*metrics["loss"]}) > 4
    return metrics


# Several options a run; those that the method refuses are left out.
TOGETHER: dict[str, list[dict[str, Any]]] = {
    "memory": [
        {"train.accumulate_steps": 2},
        {"train.remat": "full"},
        {"train.freeze": ["stem*"]},
        {"train.ema_decay": 0.9},
        {"data.augment.mixup": 0.4},
        {"precision": "bf16"},
    ],
    "integers": [{"prune.pattern": "2:4"}, {"model.quantize": "int8"}],
    "tuned": [{"train.fine_tune": True}, {"prune.sparsity": 0.5}],
    "calls": [
        {"train.steps_per_call": 2},
        {"train.freeze": ["backbone"], "train.freeze_epochs": 1.0},
        {"data.augment.cutmix": 1.0},
        {"precision": "fp16"},
    ],
}


def changes_of(method: str, options: list[dict[str, Any]]) -> dict[str, Any]:
    kept = [changes for changes in options if refusal(method, changes) is None]
    return {path: value for changes in kept for path, value in changes.items()}


@pytest.mark.parametrize(("method", "together"), diagonal(METHOD_NAMES, TOGETHER))
def test_a_method_trains_with_options(method: str, together: str, tmp_path: Path):
    """With its metrics, and other losses than the plain method's."""
    changes = changes_of(method, TOGETHER[together])
    sections: dict[str, Any] = {"precision": changes.pop("precision", "fp64")}
    train, augment, prune, model = {}, {}, {}, {}
    for path, value in changes.items():
        section, _, name = path.rpartition(".")
        value = tuple(value) if isinstance(value, list) else value
        made = {"train": train, "data.augment": augment, "prune": prune, "model": model}
        made[section][name] = value
    if model:
        sections["model"] = model_config(MODEL, **model)
    data = layered().data
    data = dataclasses.replace(data, augment=AugmentConfig(**augment))
    sections["prune"] = SECTIONS["prune"](**prune)
    ours, plain = (
        trained(name, tmp_path / "teacher", train=train, data=data, **sections)
        for name in (method, "plain")
    )
    # In float16 a scale that was too large is halved.
    allowed = 1 if sections["precision"] == "fp16" else 0
    assert ours["skipped"].sum() <= allowed
    assert plain.keys() <= ours.keys()
    assert not np.array_equal(ours["loss"], plain["loss"])


@pytest.mark.parametrize(
    ("method", "task"),
    diagonal([n for n in METHOD_NAMES if n != "distillation"], SETTINGS),
)
def test_a_method_trains_a_task(method: str, task: str, tmp_path: Path):
    if refusal(method, {"task": task}) is not None:
        return
    options, _, model = SETTINGS[task]
    part = make_part(part_lib.TASKS, task, options)
    sections: dict[str, Any] = {"task": part, "model": model}
    # At 0.1 the squares of numbers grow without bound, by the plain method as well.
    sections["optimizer"] = {"learning_rate": 0.01}
    ours = trained(method, tmp_path / "teacher", data=data_of(task), **sections)
    assert not ours["skipped"].any()


def test_every_task_has_a_source():
    assert [*SETTINGS] == [*tasks.TASKS]
    assert method_pairs.config_of("sam", {}).method == SamConfig()
