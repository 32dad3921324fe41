"""Everything that changes images, in whole runs: the same on any devices."""

from pathlib import Path

import numpy as np
import pytest

from tests.helpers.numerics import FP64, TOLERANCE
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import assert_same_run, read_lines, read_summary

STEPS = 4
CONFIG = recipe(
    data='DataConfig(source="synthetic:20x24x3/4/96", batch_size=32, image_size=16, '
    "augment=AugmentConfig(random_resized_crop=True, alternating_flip=True, "
    "rotation=10.0, hue=0.1, brightness=0.3, randaugment=2, erasing=0.3, mixup=0.3, "
    "cutmix=1.0))",
    task='ClassificationConfig(label_smoothing=0.1, class_weights="balanced", '
    'loss="binary_cross_entropy")',
    train=f"TrainConfig(steps={STEPS}, accumulate_steps=2, eval_every_steps=2)",
    checkpoint="CheckpointConfig(every_steps=2)",
    logging="LoggingConfig(every_steps=1)",
)


def run(folder: Path, name: str, words: str = "", devices: int = 1) -> Path:
    """Train in float64 in `folder/NAME`."""
    config = write_recipe(folder / "recipe.py", CONFIG)
    command = ["--config", config, "--workdir", name, "--precision", "fp64"]
    env = {**FP64, "JAX_NUM_CPU_DEVICES": str(devices)}
    Cli(folder).done(*command, *words.split(), **env)
    return folder / name


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("augmented"), "one")


@pytest.mark.slow
@pytest.mark.plugins
def test_streamed_on_many_devices_it_is_the_same(one: Path, tmp_path: Path):
    words = "--parallel.pipeline-stages 2 --data.cache stream"
    many = run(tmp_path, "many", words, devices=8)
    assert read_summary(many)["num_devices"] == 8
    for kind, name in (("train", "loss"), ("train", "grad_norm"), ("eval", "loss")):
        expected = [line[name] for line in read_lines(one, kind)]
        found = [line[name] for line in read_lines(many, kind)]
        assert len(found) == len(expected) > 1
        np.testing.assert_allclose(found, expected, rtol=TOLERANCE)


@pytest.mark.slow
def test_stopped_and_resumed_it_ends_the_same(one: Path, tmp_path: Path):
    run(tmp_path, "half", "--train.stop-after-steps 2")
    assert_same_run(one, run(tmp_path, "half"), STEPS)
