"""Images that grow over the run: one program a size, the same on resuming."""

import itertools
import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from PIL import Image

import jaxtrain
from jaxtrain import keys
from jaxtrain.cli import main
from jaxtrain.config import AugmentConfig, Config, DataConfig, TrainConfig
from jaxtrain.config.recipe import load_config
from jaxtrain.data.batch_specs import eval_spec
from jaxtrain.errors import UserError
from jaxtrain.trainer.programs import augmented, unaugmented
from jaxtrain.trainer.setup import build_setup
from tests.helpers.pooled import POOLED
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import assert_same_run, read_summary
from tests.helpers.words import quoted

RUN = recipe(
    data='DataConfig(source="synthetic:16x16x1/4/96", batch_size=12, image_size=16, '
    "progressive_sizes=(8, 12, 16), validation_fraction=0)",
    model=f'CustomModelConfig(name="{POOLED}")',
    train="TrainConfig(epochs=4)",
    checkpoint="CheckpointConfig(every_steps=9)",
    logging="LoggingConfig(every_steps=4, tensorboard=False)",
)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_recipe(tmp_path / "run.py", RUN)


def test_each_size_takes_an_equal_part_of_the_epochs(config: Path):
    setup = build_setup(load_config(config))
    timetable = setup.timetable
    assert timetable.steps_per_epoch == 8 and timetable.total_steps == 32
    phases = [(phase.start, phase.image_size) for phase in setup.phases]
    assert phases == [(0, 8), (8, 12), (24, 16)]
    # No call goes over a change.
    for steps_per_call in (1, 3, 5):
        calls = timetable.call_sizes(0, steps_per_call)
        starts = list(itertools.accumulate(calls, initial=0))
        assert {8, 24, 32} <= set(starts)


@pytest.mark.slow
def test_one_program_a_size_is_compiled(
    config: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    with jax.log_compiles():
        assert main(["--config", str(config), "--workdir", str(tmp_path / "run")]) == 0
    step = "Finished XLA compilation of jit(train_step)"
    assert sum(step in message for message in caplog.messages) == 3


@pytest.mark.slow
def test_a_stopped_run_ends_like_an_undisturbed_one(config: Path, tmp_path: Path):
    words = "--data.cache stream --train.accumulate-steps 2 --train.steps-per-call 3"
    head = f"--config {quoted(config)} {words} --workdir"
    assert main(shlex.split(f"{head} {quoted(tmp_path / 'whole')}")) == 0
    for stop in ("--train.stop-after-steps 15", ""):
        assert main(shlex.split(f"{head} {quoted(tmp_path / 'parts')} {stop}")) == 0
    assert_same_run(tmp_path / "parts", tmp_path / "whole", step=32)


@each_row(
    ("words", "message"),
    [
        ("--train.epochs 2", "give fewer sizes"),
        (
            "--model.name convnet --data.train-image-size 8 --data.progressive-sizes",
            "data.train_image_size = 8: the model supports only images of 16x16 pixels",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    words: str,
    message: str,
    config: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    head = f"--config {quoted(config)} --workdir {quoted(tmp_path / 'run')}"
    assert main(shlex.split(f"{head} {words}")) == 2
    assert message in capsys.readouterr().err


@each_row(
    ("fields", "message"),
    [
        (
            {"progressive_sizes": (8, 12)},
            "expected data.image_size = 16 as the last size",
        ),
        ({"progressive_sizes": (12, 8, 16)}, "expected increasing sizes"),
        (
            {"progressive_sizes": (8, 16), "train_image_size": 12},
            "expected data.train_image_size = 12 as the last size",
        ),
        ({"train_image_size": 16}, "expected less than data.image_size = 16"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(fields: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        DataConfig(**{"image_size": 16, **fields})


# What is changed of a source of 20x20 pixels. The step cuts windows of those that have
# one size, the host those of the others.
WAYS: dict[str, dict[str, Any]] = {
    "whole": {"cache": "device"},
    "windows": {"augment": AugmentConfig(random_resized_crop=True)},
    "windows by the host": {
        "source": "folder:photos",
        "test_fraction": 0.2,
        "augment": AugmentConfig(random_resized_crop=True),
    },
}


@pytest.fixture
def smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Config]:
    """Return what makes the config of a run that trains on 12x12 and tests on 16x16."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for i in range(60):
        folder = tmp_path / "photos" / "ab"[i % 2]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (20 + i % 3, 18, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")
    whole = load_config(write_recipe(tmp_path / "run.py", RUN))
    fixed = {"source": "synthetic:20x20x3/4/96", "batch_size": 12}

    def make(way: str) -> Config:
        sizes = {"image_size": 16, "train_image_size": 12}
        # The last weights are those that are evaluated.
        data = DataConfig(validation_fraction=0.0, **{**fixed, **sizes, **WAYS[way]})
        return replace(whole, data=data, train=TrainConfig(steps=4))

    return make


@pytest.mark.plugins
@pytest.mark.parametrize("way", WAYS)
def test_the_model_sees_smaller_images_in_training_alone(way: str, smaller: Any):
    from jaxtrain.plugins.plan.measure import abstract_inputs

    setup = build_setup(smaller(way))
    assert setup.splits.input_shape == (16, 16, 3)
    (phase,) = setup.phases
    data, batches = abstract_inputs(setup)
    batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), batches)
    constants = (0.5,) * 3, (0.5,) * 3, np.float32
    augmenting = augmented(setup, phase, *constants)
    plain = unaugmented(setup, *constants)
    key = jax.eval_shape(lambda: keys.root_key(0))
    seen = jax.eval_shape(augmenting, data, batch, key, 0)["image"]
    assert seen.shape == (12, 12, 12, 3)
    stored = eval_spec(setup.splits.test).batch(1)
    assert jax.eval_shape(plain, {}, stored, key, 0)["image"].shape == (1, 16, 16, 3)
    # The pixels that the host cuts are those that training needs.
    if way == "windows by the host":
        assert batch["image"].shape == (12, 24, 24, 3)


@pytest.mark.slow
def test_evaluate_repeats_the_evaluation_of_such_a_run(smaller: Any, tmp_path: Path):
    run = tmp_path / "run"
    jaxtrain.train(smaller("windows by the host"), run)
    assert json.loads((run / "model.json").read_text())["image_shape"] == [16, 16, 3]
    assert main(["evaluate", "--workdir", str(run), "--trust"]) == 0
    found = json.loads((run / "evaluation.json").read_text())
    expected = read_summary(run)["eval"]["loss"]
    assert found["metrics"]["loss"] == pytest.approx(expected, rel=1e-5)
