"""Freezing, rates by layer and `fine_tune` with every other choice of a run."""

import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxtrain.cli import main
from jaxtrain.config import Config, DataConfig, ParallelConfig, to_json
from jaxtrain.errors import UserError
from tests.helpers.command import float64
from tests.helpers.layered import EPOCH, by_path, layered, take_steps
from tests.helpers.recipes import write_recipe
from tests.helpers.runs import read_lines, read_summary
from tests.helpers.tiers import thinned
from tests.helpers.words import quoted

AT_FIRST: dict[str, Any] = {"freeze": ("backbone",), "freeze_epochs": 1}
BY_LAYER: dict[str, Any] = {"layer_decay": 0.5}

# Name -> `train`, `optimizer`, and other sections beside those above.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "averages, micro-batches, clipping, several a call, spikes": (
        {
            "ema_decay": 0.9,
            "accumulate_steps": 2,
            "steps_per_call": 2,
            "spike_sigma": 9.0,
        },
        {"name": "lamb", "clip_norm": 0.01, "weight_decay": 0.1},
        {},
    ),
    "fp16, groups": (
        {"ema_decay": 0.9},
        {"momentum": 0.9, "nesterov": True},
        {"precision": "fp16", "parallel": ParallelConfig(batch_norm=4)},
    ),
    "fine_tune, pure_bf16": (
        {"fine_tune": True, "ema_decay": 0.9},
        {"name": "muon"},
        {"precision": "pure_bf16"},
    ),
}


def config_of(case: str, **sections: Any) -> Config:
    train, optimizer, others = CASES[case]
    return layered(
        {**AT_FIRST, **train},
        {"learning_rate": 0.05, **BY_LAYER, **optimizer},
        **{**others, **sections},
    )


def is_head(path: str) -> bool:
    return "/head/" in path


def is_weight(path: str) -> bool:
    return path.startswith(("params/", "extras/average/params/"))


@pytest.mark.parametrize("case", thinned(2, CASES))
def test_frozen_arrays_stay_to_the_bit_and_then_change(case: str):
    found = take_steps(config_of(case))
    starts = np.cumsum([0, *_call_sizes(config_of(case))]).tolist()
    states = {step: by_path(s) for step, s in zip(starts, found.states, strict=True)}
    first, boundary, last = (states[step] for step in (0, EPOCH, 2 * EPOCH))
    assert first.keys() == last.keys()
    owned = [path for path in first if "/stem" in path or "/block" in path]
    for step in range(EPOCH + 1):
        for path in owned if step in states else ():
            assert states[step][path].tobytes() == first[path].tobytes(), path
    for path in filter(is_weight, first):
        assert (boundary[path] != first[path]).any() == is_head(path), path
        assert (last[path] != boundary[path]).any(), path
    assert np.isfinite(found.metrics["loss"]).all()


def _call_sizes(config: Config) -> list[int]:
    # Two, then one up to the end of the epoch, with `steps_per_call` of 2.
    return [1] * 6 if config.train.steps_per_call == 1 else [2, 1, 1, 2]


@pytest.mark.slow
def test_lbfgs_searches_among_the_trained_layers_alone():
    whole = DataConfig(
        source="synthetic:4x4x1/3/24", batch_size=24, validation_fraction=0.0
    )
    optimizer = {"name": "lbfgs", "learning_rate": None}
    found = take_steps(layered({"freeze": ("backbone",)}, optimizer, data=whole))
    first, last = by_path(found.states[0]), by_path(found.states[-1])
    changed = {p for p in first if is_weight(p) and (first[p] != last[p]).any()}
    assert changed == {"params/head/linear/kernel", "params/head/linear/bias"}
    with pytest.raises(UserError, match="the L-BFGS history of gradients"):
        take_steps(layered({**AT_FIRST}, optimizer, data=whole))
    with pytest.raises(UserError, match="takes no options"):
        take_steps(layered({}, {**optimizer, "layer_decay": 0.5}, data=whole))


def write(folder: Path, config: Config) -> Path:
    return write_recipe(folder / "run.py", f"from_json({to_json(config)!r})")


@pytest.mark.slow
def test_find_lr_looks_at_the_first_phase(tmp_path: Path):
    config = layered({"fine_tune": True}, {"name": "adamw"}, precision="fp32")
    path = write(tmp_path, config)
    words = (
        f"--config {quoted(path)} --out {quoted(tmp_path)} --steps 30 --start "
        "1e-4 --end 10"
    )
    # As `take_steps`: the random numbers of dropout have the widest type there is.
    with float64(enable=True):
        assert main(["find-lr", *shlex.split(words)]) == 0
    losses = json.loads((tmp_path / "find_lr.json").read_text())["loss"]
    # The first steps of a run in which the head alone is ever trained.
    alone = layered(
        {"freeze": ("backbone",)},
        {"name": "adamw", "learning_rate": 1e-4},
        precision="fp32",
    )
    found = take_steps(alone)
    assert losses[0] == pytest.approx(found.metrics["loss"][0], rel=1e-5)
    assert losses[1] == pytest.approx(found.metrics["loss"][1], rel=1e-3)


@pytest.mark.slow
def test_kept_features_go_with_stops_evaluations_and_early_stopping(tmp_path: Path):
    config = layered(
        {
            "freeze": ("backbone",),
            "ema_decay": 0.9,
            "early_stop_patience": 9,
            "steps": 12,
        },
        precision="fp32",
        data=DataConfig(source="synthetic:4x4x1/3/60", batch_size=8),
    )
    head = f"--config {quoted(write(tmp_path, config))} --workdir"
    assert main(shlex.split(f"{head} {quoted(tmp_path / 'whole')}")) == 0
    words = f"{head} {quoted(tmp_path / 'parts')}"
    for more in ("--train.stop-after-steps 5", ""):
        assert main(shlex.split(f"{words} {more}")) == 0
    one, other = tmp_path / "whole", tmp_path / "parts"
    assert read_lines(one, "train") == read_lines(other, "train")
    assert read_lines(one, "eval") == read_lines(other, "eval")
    assert len(read_lines(one, "eval")) > 1
    assert main(["evaluate", "--workdir", str(one), "--trust"]) == 0
    again = json.loads((one / "evaluation.json").read_text())["metrics"]
    found = read_summary(one)["eval"]
    # Another program may round logits of a few units otherwise, by some 1e-7 each, and
    # the loss is 0.2. The rest is made of counts.
    assert again.pop("loss") == pytest.approx(found.pop("loss"), rel=1e-5)
    assert again == found
