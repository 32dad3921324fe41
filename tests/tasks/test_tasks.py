"""The seam of tasks: another one, through the command line, on one device and many."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxtrain import own
from jaxtrain.config import Config, CustomConfig
from jaxtrain.config.base import Section
from jaxtrain.errors import UserError
from jaxtrain.tasks.base import Task
from jaxtrain.tasks.build import build_task
from jaxtrain.tasks.classification import Classification
from jaxtrain.tasks.pictures import COLOURS, outlines, overlay
from tests.helpers.numerics import FP64, TOLERANCE
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import assert_same_run, read_lines, read_summary
from tests.helpers.tiers import of_plugins, thinned

AUTOENCODER = "tests.helpers.autoencoder:AutoEncoder"
STEPS = 12
CONFIG = recipe(
    task=f"CustomConfig(name={AUTOENCODER!r})",
    data='DataConfig(source="digits", batch_size=64, eval_batch_size=56, '
    "augment=AugmentConfig(crop_padding=1, horizontal_flip=True, cutout_size=2))",
    train=f"TrainConfig(steps={STEPS}, ema_decay=0.9, accumulate_steps=2, "
    "eval_every_steps=4)",
    checkpoint="CheckpointConfig(every_steps=4)",
    logging="LoggingConfig(every_steps=1)",
)
# On 8 devices: the words, and the folder of the run.
MESHES = {
    "stages": "--parallel.pipeline-stages 2",
    "fsdp": "--parallel.preset fsdp",
}


def run(folder: Path, name: str, words: str = "", devices: int = 1) -> None:
    """Train in float64 in `folder/NAME`."""
    config = write_recipe(folder / "recipe.py", CONFIG)
    command = ["--config", config, "--workdir", name, "--precision", "fp64"]
    env = {**FP64, "JAX_NUM_CPU_DEVICES": str(devices)}
    Cli(folder).done(*command, *words.split(), **env)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the autoencoder on one device."""
    folder = tmp_path_factory.mktemp("autoencoder")
    run(folder, "one")
    return folder / "one"


@pytest.mark.slow
def test_it_learns_and_tells_its_own_metrics(one: Path):
    lines, summary = read_lines(one, "train"), read_summary(one)
    assert lines[-1]["loss"] < 0.8 * lines[0]["loss"]
    assert np.isclose(lines[-1]["rmse"], np.sqrt(lines[-1]["loss"]), rtol=0.02)
    names = {"loss", "rmse", "pixel_errors", "num_examples"}
    test = summary["eval"]
    assert set(test) == names
    assert np.isclose(test["rmse"], np.sqrt(test["loss"]))
    assert np.isclose(np.mean(test["pixel_errors"]), test["loss"])
    assert summary["best"]["metric"] == "rmse"
    validations = read_lines(one, "eval")[:-1]
    assert all("pixel_errors" not in line for line in validations)
    assert summary["best"]["value"] == min(line["rmse"] for line in validations)


@pytest.mark.slow
def test_stopped_and_resumed_it_ends_the_same(one: Path, tmp_path: Path):
    run(tmp_path, "half", "--train.stop-after-steps 6")
    run(tmp_path, "half")
    events = [line["event"] for line in read_lines(tmp_path / "half", "event")]
    assert events == ["stopped: train.stop_after_steps", "resumed"]
    assert_same_run(one, tmp_path / "half", STEPS)


@pytest.mark.parametrize("mesh", thinned(2, of_plugins(MESHES, "stages")))
def test_on_eight_devices_it_is_the_same(one: Path, tmp_path: Path, mesh: str):
    run(tmp_path, "many", MESHES[mesh], devices=8)
    many = tmp_path / "many"
    assert read_summary(many)["num_devices"] == 8
    for kind, name in (("train", "loss"), ("train", "grad_norm"), ("eval", "rmse")):
        expected = [line[name] for line in read_lines(one, kind)]
        found = [line[name] for line in read_lines(many, kind)]
        np.testing.assert_allclose(found, expected, rtol=TOLERANCE)
    np.testing.assert_allclose(
        read_summary(many)["eval"]["pixel_errors"],
        read_summary(one)["eval"]["pixel_errors"],
        rtol=TOLERANCE,
    )


@each_row(
    ("words", "message"),
    [
        (
            "--checkpoint.best-metric accuracy",
            "checkpoint.best_metric = 'accuracy': expected loss, rmse",
        ),
        ("--task.label-smoothing 0.1", "--task.label-smoothing"),
        (
            f"--task {AUTOENCODER.replace('AutoEncoder', 'Followed')} "
            "--data.image-size 12",
            "data.image_size = 12 resizes the images, but not the targets of this task",
        ),
        ("--task regression --task.label-smoothing 0.1", "--task.label-smoothing"),
        ("--task.options scale 2", "does not accept its arguments"),
    ],
)
def test_what_the_task_does_not_know_is_refused(
    words: str, message: str, tmp_path: Path
):
    config = write_recipe(tmp_path / "recipe.py", CONFIG)
    command = ["--config", config, "--workdir", "run", *words.split()]
    result = Cli(tmp_path)(*command)
    assert result.code == 2
    assert message in result.stderr
    assert not (tmp_path / "run").exists()


OWN_OPTION = """
from dataclasses import dataclass
from jaxtrain.config.base import Section
from jaxtrain.tasks.classification import Classification


class Scaled(Classification):
    def __init__(self, image_shape, facts, scale=1.0):
        super().__init__(image_shape, facts, label_smoothing=0.0)
        self.scale = scale

    def loss(self, outputs, target, *, training):
        return self.scale * super().loss(outputs, target, training=training)
"""


DECLARED = """

@dataclass(frozen=True, kw_only=True)
class Options(Section):
    scale: float = 1.0


class Declared(Scaled):
    Options = Options
"""


def test_declared_options_are_checked(tmp_path: Path):
    (tmp_path / "declared.py").write_text(OWN_OPTION + DECLARED)
    config = write_recipe(tmp_path / "recipe.py", recipe())
    command = ["--config", config, "--workdir", "run", "--task", "declared.py:Declared"]
    for words, told in (
        ("--task.options scales 2", "takes scale, not 'scales'"),
        ("--task.options scale two", "scale = 'two': expected float"),
        ("--task.options label_smoothing 0.1", "takes scale, not 'label_smoothing'"),
    ):
        result = Cli(tmp_path)(*command, *words.split())
        assert result.code == 2 and told in result.stderr


HERE = "tests.tasks.test_tasks"
own.allow(f"{HERE}:{name}" for name in ("Inherits", "Demanding"))


class Inherits(Classification):
    """Has the constructor, and so the options, of classification."""


@dataclass(frozen=True, kw_only=True)
class MustBeGiven(Section):
    scale: float = 0.0

    def validate(self) -> None:
        self._positive("scale")


class Demanding(Task):
    Options = MustBeGiven

    def __init__(self, image_shape: Any, facts: Any, *, scale: float):
        self.num_outputs, self.scale = 1, scale


def test_a_default_may_be_what_must_be_replaced():
    name = f"{HERE}:Demanding"
    with pytest.raises(UserError, match=r"scale = 0.0: expected a value above 0"):
        build_task(Config(task=CustomConfig(name=name)), (8, 8, 1), {})
    task = CustomConfig(name=name, options={"scale": 2})
    made = build_task(Config(task=task), (8, 8, 1), {})
    assert isinstance(made, Demanding) and made.scale == 2


def test_a_task_of_ones_own_inherits_options():
    facts, name = {"num_classes": 3}, f"{HERE}:Inherits"
    task = CustomConfig(name=name, options={"label_smoothing": 0.1})
    build_task(Config(task=task), (8, 8, 1), facts)
    task = CustomConfig(name=name, options={"scale": 2})
    with pytest.raises(UserError, match=r"takes label_smoothing, .*, not 'scale'"):
        build_task(Config(task=task), (8, 8, 1), facts)


@pytest.mark.slow
def test_a_task_of_ones_own_gets_its_options(cli: Cli, write_config):
    """In training, in a resumed run, and in an evaluation."""
    (cli.directory / "scaled.py").write_text(OWN_OPTION)
    every = "LoggingConfig(every_steps=1)"
    config = write_config(recipe(train="TrainConfig(steps=4)", logging=every))
    words = ["--config", config, "--task", "scaled.py:Scaled"]
    losses = {}
    for scale in 1, 4:
        workdir = cli.directory / f"run{scale}"
        scaled = [*words, "--workdir", workdir, "--task.options", "scale", scale]
        assert cli(*scaled, "--train.stop-after-steps", 2).code == 0
        cli.done(*scaled)
        cli.done("evaluate", "--workdir", workdir, "--trust")
        summary = read_summary(workdir)
        report = json.loads((workdir / "evaluation.json").read_text())
        assert report["metrics"]["loss"] == summary["eval"]["loss"]
        model = json.loads((workdir / "model.json").read_text())
        assert model["task_options"] == {"scale": scale}
        losses[scale] = read_lines(workdir, "train")[0]["loss"]
    assert losses[4] == 4 * losses[1]


@pytest.mark.parametrize("channels", [1, 5])
def test_a_mask_colours_all_but_what_is_around(channels: int):
    image = np.full((4, 6, channels), 101, np.uint8)
    mask = np.zeros((4, 6), np.uint8)
    mask[0, 0], mask[1, 1], mask[2, 2] = 1, 2, 1 + len(COLOURS)
    drawn = overlay(image, mask)
    assert drawn.shape == (4, 6, 3) and drawn.dtype == np.uint8
    np.testing.assert_array_equal(drawn[0, 0], 50 + COLOURS[0] // 2)
    np.testing.assert_array_equal(drawn[1, 1], 50 + COLOURS[1] // 2)
    np.testing.assert_array_equal(drawn[2, 2], drawn[0, 0])
    assert (drawn[mask == 0] == 101).all()
    # What is to be ignored is often -1.
    assert (overlay(image, -1 * mask.astype(int)) == 101).all()


def test_boxes_are_outlines_also_where_they_leave_the_image():
    image = np.zeros((20, 30, 1), np.uint8)
    boxes = [[3, 4, 12, 10], [25, 15, -1e9, 1e30], [np.nan, 0, 1, 1]]
    drawn = outlines(image, np.array(boxes))
    assert drawn.shape == (20, 30, 3)
    corners = drawn[[4, 4, 10, 10], [3, 12, 3, 12]]
    np.testing.assert_array_equal(corners, [COLOURS[0]] * 4)
    assert not drawn[5:10, 4:12].any()
    # The second one has its corners in another order, and two sides outside.
    np.testing.assert_array_equal(drawn[15, :26], [COLOURS[1]] * 26)
    assert not drawn[14, 13:].any() and not drawn[0].any()
    assert not outlines(image, np.zeros((0, 4))).any()
