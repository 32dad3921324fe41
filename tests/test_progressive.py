"""Images that grow over the run: one program a size, the same on resuming."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from jaxtrain import keys
from jaxtrain.cli import main
from jaxtrain.config import AugmentConfig, DataConfig
from jaxtrain.config.recipe import load_config
from jaxtrain.data import images
from jaxtrain.data.preprocess import IMAGE_SIZE, make_preprocess, told_size
from jaxtrain.errors import UserError
from jaxtrain.run.attempt import Attempt
from jaxtrain.run.loop import Run
from jaxtrain.run.setup import build_setup
from jaxtrain.training.compiled import Compiled
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import assert_same_run, read_lines

RUN = recipe(
    data='DataConfig(source="synthetic:16x16x1/4/96", batch_size=12, image_size=16, '
    "progressive_sizes=(8, 12, 16), validation_fraction=0)",
    model='ModelConfig(name="tests.helpers.pooled:Pooled")',
    train="TrainConfig(epochs=4)",
    checkpoint="CheckpointConfig(every_steps=9)",
    logging="LoggingConfig(every_steps=4, tensorboard=False)",
)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_recipe(tmp_path / "run.py", RUN)


def test_each_size_takes_an_equal_part_of_the_epochs(config: Path):
    timetable = build_setup(load_config(config)).timetable
    assert timetable.steps_per_epoch == 8 and timetable.total_steps == 32
    sizes = [timetable.image_size(step) for step in range(32)]
    assert sizes == [8] * 8 + [12] * 16 + [16] * 8
    # No call goes over a change.
    for steps_per_call in (1, 3, 5):
        step = 0
        for num_steps, size in timetable.calls(0, steps_per_call):
            assert set(sizes[step : step + num_steps]) == {size}
            step += num_steps
        assert step == 32


def test_the_model_sees_images_resized_as_pillow_does():
    stored = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 1), np.uint8)
    batch = {"image": stored, "target": np.zeros(4, np.int32), "index": np.arange(4)}
    preprocess = make_preprocess(
        (0.0,), (1 / 255,), np.float32, AugmentConfig(), fit=images.Fit()
    )
    for size in (8, 12, 16):
        told = {**batch, IMAGE_SIZE: told_size(size, 4)}
        seen = preprocess({}, told, keys.root_key(0), jnp.int32(0))["image"]
        for one, image in zip(np.asarray(seen), stored, strict=True):
            picture = Image.fromarray(image[..., 0])
            expected = picture.resize((size, size), Image.Resampling.BILINEAR)
            assert np.abs(one[..., 0] - np.asarray(expected)).max() <= 1.001


def test_one_program_a_size_is_compiled(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    attempts: list[Attempt] = []
    init = Run.__init__

    def spy(self: Run, attempt: Attempt) -> None:
        attempts.append(attempt)
        init(self, attempt)

    monkeypatch.setattr(Run, "__init__", spy)
    words = f"--config {config} --workdir {tmp_path / 'run'}"
    assert main(words.split()) == 0
    (attempt,) = attempts
    program = attempt.job.programs.train
    assert isinstance(program, Compiled) and len(program.programs) == 3
    losses = [line["loss"] for line in read_lines(tmp_path / "run", "train")]
    assert np.isfinite(losses).all() and len(losses) == 8


@pytest.mark.parametrize(
    "words",
    [
        "",
        pytest.param(
            "--data.cache stream --train.accumulate-steps 2 --train.steps-per-call 3",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_stopped_run_ends_like_an_undisturbed_one(
    words: str, config: Path, tmp_path: Path
):
    head = f"--config {config} {words} --workdir"
    assert main(f"{head} {tmp_path / 'whole'}".split()) == 0
    for stop in ("--train.stop-after-steps 15", ""):
        assert main(f"{head} {tmp_path / 'parts'} {stop}".split()) == 0
    assert_same_run(tmp_path / "parts", tmp_path / "whole", step=32)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--train.epochs 2", "give fewer sizes"),
        ("--model.name convnet", "takes images of 16x16 pixels only"),
    ],
)
def test_what_does_not_fit_is_refused(
    words: str,
    message: str,
    config: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    head = f"--config {config} --workdir {tmp_path / 'run'}"
    assert main(f"{head} {words}".split()) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((8, 12), "another size than data.image_size = 16"),
        ((12, 8, 16), "expected rising sizes"),
        ((16,), "expected rising sizes"),
    ],
)
def test_sizes_that_do_not_rise_to_the_last_are_refused(
    sizes: tuple[int, ...], message: str
):
    with pytest.raises(UserError, match=message):
        DataConfig(image_size=16, progressive_sizes=sizes)
