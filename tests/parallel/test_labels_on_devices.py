"""Several labels an image: the same run on any devices, also where it goes on."""

from pathlib import Path

import numpy as np
import pytest

from tests.helpers.composed import compose, write
from tests.helpers.numerics import FP64, TOLERANCE
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import read_lines, read_summary

pytestmark = pytest.mark.slow


def run(folder: Path, devices: int, *words: str) -> Path:
    """Train with missing and mixed labels, weights and the asymmetric loss."""
    folder.mkdir(exist_ok=True)
    made = {"train": compose(64), "test": compose(16, split="test")}
    if not (folder / "set").exists():
        table = write(folder / "set", made)
        table.write_text(
            table.read_text().replace("000003.png,train,0", "000003.png,train,")
        )
    expression = recipe(
        task='"multilabel"',
        task_options='{"loss": "asymmetric", "positive_weights": "balanced"}',
        precision='"fp64"',
        data=f'DataConfig(source="csv:set/list.csv", targets={made["train"].names}, '
        "image_size=16, channels=1, batch_size=32, eval_batch_size=16, "
        "validation_fraction=0.25, augment=AugmentConfig(mixup=0.2))",
        optimizer='OptimizerConfig(name="sgd", learning_rate=0.01)',
        train="TrainConfig(steps=8, eval_every_steps=4)",
        checkpoint="CheckpointConfig(every_steps=4)",
        logging="LoggingConfig(every_steps=1)",
    )
    config = write_recipe(folder / "recipe.py", expression)
    result = Cli(folder)(
        *("--config", config, "--workdir", folder / "run"),
        *[f"--{word}" for word in words],
        JAX_NUM_CPU_DEVICES=str(devices),
        **FP64,
    )
    assert result.code == 0, result.stderr
    return folder / "run"


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("one"), 1)


def assert_same(one: Path, other: Path) -> None:
    losses = [
        [line["loss"] for line in read_lines(workdir, "train")]
        for workdir in (one, other)
    ]
    assert len(losses[0]) == 8
    np.testing.assert_allclose(*losses, rtol=TOLERANCE)
    tests = [read_summary(workdir)["eval"] for workdir in (one, other)]
    for name, value in tests[0].items():
        ours = np.array(value, float)
        np.testing.assert_allclose(ours, np.array(tests[1][name], float), TOLERANCE)


@pytest.mark.parametrize("preset", ["fsdp", "2d"])
def test_a_run_that_goes_on_elsewhere(alone: Path, tmp_path: Path, preset: str):
    run(tmp_path / "many", 8, f"parallel.preset={preset}", "train.stop-after-steps=5")
    assert_same(alone, run(tmp_path / "many", 1))
