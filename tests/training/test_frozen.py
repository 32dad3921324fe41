"""Frozen layers: found by patterns, without gradients, unchanged to the last bit."""

import shlex
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxtrain import keys
from jaxtrain.cli import main
from jaxtrain.config import Config, ResNetConfig, TrainConfig, to_json
from jaxtrain.errors import UserError
from jaxtrain.models.layer_paths import find_layers
from jaxtrain.tasks.build import build_task
from jaxtrain.trainer.phases import build_phases, find_frozen
from jaxtrain.trainer.setup import make_blueprint
from jaxtrain.trainer.timetable import Timetable
from jaxtrain.training import precision
from jaxtrain.training.create import CreateState
from jaxtrain.training.step import make_train_step
from tests.helpers.elsewhere import ElsewhereLayout
from tests.helpers.layered import by_path, layered, take_steps
from tests.helpers.parts import optimizer_config
from tests.helpers.recipes import write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import assert_same_run
from tests.helpers.trial import LAYOUT, as_given
from tests.helpers.words import quoted

SHAPE, BATCH = (32, 32, 3), 4
RESNET = ResNetConfig(name="resnet18", width=0.125)
STAGES = ("stem*", "stage1*", "stage2*", "stage3*")


def resnet(train: dict[str, Any] | None = None, **optimizer: Any) -> Config:
    return Config(
        model=RESNET,
        optimizer=optimizer_config("adamw", learning_rate=0.1, **optimizer),
        train=TrainConfig(**{"steps": 9, **(train or {})}),
    )


def model_of(config: Config) -> Any:
    policy = precision.parse(config.precision)
    return make_blueprint(config, policy, SHAPE, 5).abstract()


@pytest.mark.slow
@each_row(
    ("pattern", "num", "example"),
    [
        ("backbone", 48, "stage4_block2/conv2"),
        ("stem*", 2, "stem_norm"),
        ("stage1_block1", 5, "stage1_block1/norm1"),
        ("stage1_block*", 10, "stage1_block2/conv1"),
        ("*/norm?", 16, "stage4_block1/norm2"),
        ("*/shortcut_*", 6, "stage2_block1/shortcut_conv"),
        ("head", 2, "head/linear"),
    ],
)
def test_patterns_name_layers(pattern: str, num: int, example: str):
    found = find_layers(model_of(resnet()), "train.freeze", pattern)
    # Layers that drop something at random have no parameters.
    layers = [path for path in found if "drop" not in path]
    assert example in found and len(layers) == num


@each_row(
    ("pattern", "message"),
    [
        (
            "stage5_block1",
            r"'stage5_block1' matches no layer .*perhaps you meant stage",
        ),
        ("backbon", "perhaps you meant backbone"),
        ("head/dropout", "matches no layer with parameters"),
        ("conv1", r"matches stem_conv, stem_norm, .*such as stage1_block1/conv1"),
    ],
)
def test_a_pattern_that_matches_nothing_is_refused(pattern: str, message: str):
    with pytest.raises(UserError, match=message):
        find_layers(model_of(resnet()), "train.freeze", pattern)


def test_a_tree_is_parted_and_put_together():
    config = resnet({"freeze": ("stage1*", "*/conv1", "head/linear")})
    frozen = find_frozen(config, model_of(config))
    tree = {
        "stage1_block1": {"conv1": {"kernel": 1}},
        "stage2_block1": {"conv1": {"kernel": 2}, "conv2": {"kernel": 3}},
        "head": {"linear": {"kernel": 4, "bias": 5}},
    }
    trained, rest = frozen.partition(tree)
    assert trained == {"stage2_block1": {"conv2": {"kernel": 3}}}
    assert frozen.partition(rest) == ({}, rest)
    everything = resnet({"freeze": ("*",)})
    with pytest.raises(UserError, match="leaves no layer to train"):
        find_frozen(everything, model_of(everything))


def step_of(config: Config) -> tuple[Any, Any]:
    """Return the step of a run's first phase, and its abstract arguments."""
    policy = precision.parse(config.precision)
    blueprint = make_blueprint(config, policy, SHAPE, 5)
    model = blueprint.abstract()
    timetable: Any = Timetable(
        num_examples=BATCH,
        batch_size=BATCH,
        steps_per_epoch=1,
        total_steps=9,
        warmup_steps=0,
        eval_every_steps=None,
        save_every_steps=9,
        log_every_steps=1,
        stop_after_steps=9,
    )
    rate: Any = lambda step: jnp.float32(0.1)  # noqa: E731
    (phase,) = build_phases(config, timetable, model, rate)
    update = phase
    create = CreateState(blueprint, update.tx, update.transforms)
    task = build_task(config, SHAPE, {"num_classes": 5})
    layout = ElsewhereLayout(LAYOUT.mesh, {})
    step = make_train_step(task, nnx.graphdef(model), phase, as_given, layout)
    batch = {
        "image": jax.ShapeDtypeStruct((1, BATCH, *SHAPE), jnp.float32),
        "target": jax.ShapeDtypeStruct((1, BATCH), jnp.int32),
    }
    root = jax.eval_shape(lambda: keys.root_key(0))
    return step, (jax.eval_shape(create, root), root, {}, batch)


@pytest.mark.parametrize(
    ("freeze", "backward"),
    [
        (("backbone",), 0),
        # Nothing before stage 4: of its 5, the first two see frozen features.
        pytest.param(STAGES, 2 * 5 - 2, marks=pytest.mark.slow),
        # All gradients go through, to the stem; the last stage has none of its own.
        pytest.param(("stage4*",), 2 * 20 - 1 - 5, marks=pytest.mark.slow),
    ],
)
def test_frozen_layers_have_no_gradients(freeze: tuple[str, ...], backward: int):
    step, arguments = step_of(resnet({"freeze": freeze}))
    jaxpr = str(jax.make_jaxpr(step)(*arguments))
    assert jaxpr.count("conv_general_dilated[") == 20 + backward
    state = arguments[0]
    moments = by_path(jax.tree.map(lambda x: np.zeros(x.shape[:0]), state.opt_state))
    if freeze == ("backbone",):
        assert not any("stage" in path or "stem" in path for path in moments)
        assert any("mu/head/linear/kernel" in path for path in moments)


@each_row(
    ("train", "optimizer", "message"),
    [
        ({"freeze_epochs": 1}, {}, "freeze_epochs = 1 has no effect without"),
        (
            {"freeze": ("stem*",), "freeze_epochs": 2},
            {},
            r"freeze_epochs = 2 freezes layers for 6 steps, but the run has 6",
        ),
        ({"fine_tune": True}, {"schedule": "cosine"}, "sets a schedule of two cycles"),
        ({"fine_tune": True}, {"warmup_steps": 1}, "sets a schedule of two cycles"),
        ({"fine_tune": True}, {"learning_rate": None}, "set optimizer.learning_rate"),
        (
            {"fine_tune": True, "steps": 1},
            {},
            r"1 \(the default of train.fine_tune\) freezes layers for 3 steps",
        ),
        (
            {"freeze": ("stem*",), "freeze_epochs": 1, "steps_per_call": 4},
            {},
            "steps_per_call = 4: a call ends at the next",
        ),
        (
            {"freeze": ("stem*",), "freeze_epochs": 1},
            {"name": "tests.training.test_frozen:own_optimizer"},
            "may need the gradients of all layers",
        ),
        ({}, {"layer_decay": 1.5}, "expected 0 < value <= 1"),
    ],
)
def test_what_does_not_fit_is_refused(
    train: dict[str, Any], optimizer: dict[str, Any], message: str
):
    with pytest.raises(UserError, match=message):
        take_steps(layered(train, optimizer))


def own_optimizer(schedule: Any, weight_decay: float) -> Any:
    raise NotImplementedError


@pytest.mark.slow
def test_a_run_stopped_in_either_phase_ends_like_an_undisturbed_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = layered(
        {"fine_tune": True, "ema_decay": 0.9, "steps_per_call": 2},
        {"name": "adamw"},
        precision="fp32",
    )
    recipe = write_recipe(tmp_path / "run.py", f"from_json({to_json(config)!r})")
    head = f"--config {quoted(recipe)} --workdir"
    assert main(shlex.split(f"{head} {quoted(tmp_path / 'whole')}")) == 0
    for stop in (2, 5, 6):
        words = f"{head} {quoted(tmp_path / 'parts')} --train.stop-after-steps {stop}"
        assert main(shlex.split(words)) == 0
    assert_same_run(tmp_path / "parts", tmp_path / "whole", step=6)
    # A longer run has a schedule of its own, and goes on. Its seventh step is at half
    # of the second cycle, and 0.81 of its peak; the sixth was at two thirds, and 0.46.
    capsys.readouterr()
    assert (
        main(shlex.split(f"{head} {quoted(tmp_path / 'parts')} --train.steps 9")) == 0
    )
    assert "the fine_tune schedule spans the full run" in capsys.readouterr().err
    words = (
        f"{head} {quoted(tmp_path / 'parts')} --train.steps 9 --train.freeze-epochs 2"
    )
    assert main(shlex.split(words)) == 2
    assert "train.freeze_epochs: None -> 2" in capsys.readouterr().err
