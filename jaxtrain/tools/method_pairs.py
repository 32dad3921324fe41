"""The page docs/method-pairs.md: training methods with all that may stand beside them.

python -m jaxtrain.tools.method_pairs > docs/method-pairs.md

A method, or an option to try beside the methods, is a row of a table here.
"""

import dataclasses
import functools
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from jaxtrain import config as config_lib
from jaxtrain import tasks
from jaxtrain.config import Config
from jaxtrain.data import boxes, columns
from jaxtrain.data.pixel_classes import PIXEL_CLASSES
from jaxtrain.errors import UserError
from jaxtrain.training import methods

TEXT = """\
# Training methods with other options

This page is generated: `python -m jaxtrain.tools.method_pairs` prints it. Each cell is
what the checks of a config and of a task say. A number is the reason of a refusal, with
which a run ends before its first step, with exit code 2. All other pairs are trained by
`tests/training/test_method_pairs.py`, and meshes are compared with one device by
`tests/training/test_methods.py`; distillation of other tasks and on meshes by
`tests/training/test_distillation.py`.

{table}

{reasons}
"""


class Companion(NamedTuple):
    """What a method is tried with.

    Attributes:
      name: What the page calls it.
      changes: Path of a field of the config -> value.
    """

    name: str
    changes: Mapping[str, Any]


MESHES = (
    Companion("`parallel.data`", {"parallel.data": 2}),
    Companion("`parallel.fsdp`", {"parallel.fsdp": 2}),
    Companion("`parallel.model`", {"parallel.model": 2}),
    Companion("`parallel.spatial`", {"parallel.spatial": 2}),
)
OPTIONS = (
    Companion("`parallel.pipeline_stages`", {"parallel.pipeline_stages": 2}),
    Companion("`train.accumulate_steps`", {"train.accumulate_steps": 2}),
    Companion("`train.steps_per_call`", {"train.steps_per_call": 2}),
    Companion("`train.remat`", {"train.remat": "full"}),
    Companion("`train.freeze`", {"train.freeze": ["stem*"]}),
    Companion(
        "`train.freeze_epochs`",
        {"train.freeze": ["backbone"], "train.freeze_epochs": 1.0},
    ),
    Companion("`train.fine_tune`", {"train.fine_tune": True}),
    Companion("`train.ema_decay`", {"train.ema_decay": 0.9}),
    Companion("`prune.sparsity`", {"prune.sparsity": 0.5}),
    Companion("`prune.pattern`", {"prune.pattern": "2:4"}),
    Companion("`model.quantize`", {"model.quantize": "int8"}),
    Companion("`data.augment.mixup`", {"data.augment.mixup": 0.4}),
    Companion("`data.augment.cutmix`", {"data.augment.cutmix": 1.0}),
    Companion("`precision` = fp16, with its loss scale", {"precision": "fp16"}),
    Companion("`precision` = bf16", {"precision": "bf16"}),
    Companion("`optimizer.name` = lbfgs", {"optimizer.name": "lbfgs"}),
)
TASKS = tuple(Companion(f"`task` = {name}", {"task": name}) for name in tasks.TASKS)
# What a method takes from step to step is saved.
RESUME = Companion("a resume on another number of devices", {})
COMPANIONS = (*MESHES, *OPTIONS, *TASKS, RESUME)

# Options without which a method is refused.
METHOD_OPTIONS: dict[str, dict[str, Any]] = {
    "distillation": {"teacher": "runs/teacher"}
}
# Fields of the section `data` -> value, without which a method is refused.
METHOD_NEEDS: dict[str, dict[str, Any]] = {"free": {"echo": 2}}
IMAGE_SHAPE = (32, 32, 3)
# What data sets for these tasks say of themselves.
FACTS: dict[str, dict[str, Any]] = {
    "regression": {
        columns.NAMES: ("a",),
        "training_targets": lambda: np.arange(4, dtype=np.float32)[:, None],
    },
    "multilabel": {
        columns.NAMES: ("a", "b"),
        "training_targets": lambda: np.eye(2, dtype=np.float32),
    },
    "segmentation": {PIXEL_CLASSES: ("a", "b")},
    "detection": {boxes.NAMES: ("a", "b"), boxes.NUM_BOXES: 4},
}
CLASSES = {"num_classes": 4}


def config_of(method: str, changes: Mapping[str, Any]) -> Config:
    """Return a config with a method and what stands beside it.

    Raises:
      UserError: They do not go together.
    """
    tree = dataclasses.asdict(Config())
    options, needs = METHOD_OPTIONS.get(method, {}), METHOD_NEEDS.get(method, {})
    given = {"train.method": method, "train.method_options": options}
    given |= {f"data.{name}": value for name, value in needs.items()}
    given |= dict(changes)
    for path, value in given.items():
        *sections, name = path.split(".")
        functools.reduce(dict.__getitem__, sections, tree)[name] = value
    return config_lib.from_json(json.dumps(tree))


def refusal(method: str, changes: Mapping[str, Any]) -> str | None:
    """Return why a method does not go with something; None: it does."""
    try:
        config = config_of(method, changes)
        facts = FACTS.get(config.task, CLASSES)
        task = tasks.build(config, IMAGE_SHAPE, facts)
        methods.build(config.train).check(task, config.task)
    except UserError as error:
        return str(error)
    return None


def page() -> str:
    """Return the text of the page."""
    reasons: dict[str, int] = {}

    def cell(method: str, companion: Companion) -> str:
        found = refusal(method, companion.changes)
        if found is None:
            return "yes"
        reason = _reason(found)
        return f"no: {reasons.setdefault(reason, len(reasons) + 1)}"

    rows = [
        (companion.name, *(cell(name, companion) for name in methods.METHODS))
        for companion in COMPANIONS
    ]
    head = ("", *(f"`{name}`" for name in methods.METHODS))
    listed = "\n".join(f"{number}. {reason}" for reason, number in reasons.items())
    return TEXT.format(table=_table(head, rows), reasons=listed)


def _reason(message: str) -> str:
    """Return the reason of a refusal, without what was given and what to do."""
    return message.rpartition("; ")[0].rpartition(": ")[2]


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    print(page(), end="")
