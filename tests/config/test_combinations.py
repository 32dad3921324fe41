"""Each combination that is declared is refused, and no more; the page says them all."""

import dataclasses
import functools
import json
from typing import Any

import pytest

from jaxtrain import config as config_lib
from jaxtrain.config import Config
from jaxtrain.config.base import Section
from jaxtrain.config.combinations import (
    Combination,
    Feature,
    Incompatible,
    Needs,
    check,
)
from jaxtrain.config.part import make_part, part_tables
from jaxtrain.config.root import COMBINATIONS
from jaxtrain.errors import UserError
from tests.helpers.rows import each_row

# A value of each field that counts as a use, where `value_of` finds none.
VALUES: dict[str, Any] = {
    "data.augment.cutmix": 1.0,
    "data.augment.mixup": 1.0,
    "data.augment.mosaic": 0.5,
    "data.augment.blur_sigma": [0.5, 1.0],
    "data.augment.crop_scale": [0.5, 1.0],
    "data.augment.erasing_value": "noise",
    "data.augment.scale_jitter": [0.5, 2.0],
    "data.crop_pct": 0.9,
    "data.data_dir": "sets",
    "data.boxes_drawn_on": "stored",
    "data.channels": 1,
    "data.sound.seconds": 0.5,
    "data.augment.hue": 0.1,
    "data.image_size": 32,
    "data.classes": "classes.txt",
    "data.images_dir": "images",
    "data.include": "list.txt",
    "data.interpolation": "bicubic",
    "data.crop_mode": "squash",
    "data.label_separator": ";",
    "data.progressive_sizes": [16, 32],
    "data.sliding_size": 64,
    "data.targets": ["size"],
    "data.train_image_size": 16,
    "data.workers": 2,
    "logging.options": {"url": "x"},
    "logging.writers": ["my.py:Writer"],
    "model.pretrained": "runs/other",
    "model.pretrained_digest": "0123456789abcdef",
    "model.quantize": "int8",
    "model.transform": "my.py:part",
    "optimizer.schedule": "cosine",
    "prune.layers": ["stage*"],
    "prune.pattern": "2:4",
    "task.class_weights": "balanced",
    "train.freeze": ["stem*"],
    "train.profile_steps": [2, 4],
    "train.tta": "flip",
}
# What two fields ask for that no row declares.
SMALLER = {"data.image_size": 32}
BESIDE: dict[str, Any] = dict.fromkeys(
    ("data.progressive_sizes", "data.train_image_size", "data.sliding_size"), SMALLER
)
EXAMPLES = {
    "= custom code": "my.py:part",
    "other than plain": "sam",
    "= prodigy or dadapt_adamw": "prodigy",
    "= schedule_free_sgd or schedule_free_adamw": "schedule_free_sgd",
    "= tfds:NAME": "tfds:mnist",
    "= folder:DIR or csv:FILE or audio:DIR_OR_FILE.csv": "csv:list.csv",
    "= csv:FILE": "csv:list.csv",
    "= csv:FILE or hf:NAME_OR_DIR or arrays:FILE.npz": "csv:list.csv",
}
PAIRS = [
    (row, first, second)
    for row in COMBINATIONS
    for first in row.first.paths
    for second in row.second.paths
]


def value_of(feature: Feature, path: str) -> Any:
    """Return a value of a field that counts as a use of the feature."""
    value = VALUES.get(path)
    if value is not None and (feature.counts is None or feature.counts(value)):
        return value
    if feature.when:
        return EXAMPLES.get(feature.when, feature.when.removeprefix("= "))
    default = config_lib.get(Config(), path)
    if isinstance(default, int):
        return True if default is False else default + 2
    return 2 if path.endswith("_steps") else 0.5


def with_parts(values: dict[str, Any]) -> tuple[Config, dict[str, Any]]:
    """Return a config with the parts that values name, and the other values."""
    config, others = Config(), dict(values)
    for path, table in part_tables(Config).items():
        # A value of the part itself, such as the schedule, is a name, too.
        name = others.pop(f"{path}.name", None) or others.pop(path, None)
        if name is not None:
            config = config_lib.replace(config, path, make_part(table, str(name)))
    return config, others


def made(values: dict[str, Any]) -> Config:
    """Return a config with values at some paths, read from JSON as a run's is."""
    config, values = with_parts(values)
    tree = dataclasses.asdict(config)
    for path, value in values.items():
        *sections, name = path.split(".")
        functools.reduce(dict.__getitem__, sections, tree)[name] = value
    return config_lib.from_json(json.dumps(tree))


def unchecked(values: dict[str, Any]) -> Config:
    """Return a config with values at some paths; `Section` must check nothing."""
    config, values = with_parts(values)
    for path, value in values.items():
        value = tuple(value) if isinstance(value, list) else value
        config = config_lib.replace(config, path, value)
    return config


def needed(path: str, but: Combination) -> dict[str, Any]:
    """Return values of what a field needs by other rows than one."""
    rows = [r for r in COMBINATIONS if isinstance(r, Needs) and path in r.first.paths]
    others = [row.second for row in rows if row is not but]
    return {f.paths[0]: value_of(f, f.paths[0]) for f in others}


@each_row(
    ("row", "first", "second"),
    PAIRS,
)
def test_a_pair_is_refused_with_both_named(
    row: Combination, first: str, second: str, monkeypatch: pytest.MonkeyPatch
):
    ours, theirs = {first: value_of(row.first, first)}, {}
    theirs[second] = value_of(row.second, second)
    excluded = isinstance(row, Incompatible)
    wrong = {**needed(first, row), **ours}
    if excluded:
        wrong |= {**BESIDE.get(second, {}), **needed(second, row), **theirs}
    with pytest.raises(UserError) as error:
        made(wrong)
    told = str(error.value)
    assert f"{first} = " in told and second in told and row.instead in told
    if excluded:
        assert f"{second} = " in told and row.reason in told
    # Of this row alone; most options need others, too.
    monkeypatch.setattr(Section, "__post_init__", lambda section: None)
    for allowed in (ours, theirs) if excluded else (theirs, {**ours, **theirs}):
        check(unchecked(allowed), [row])
