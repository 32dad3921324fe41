"""The number of devices does not change the result."""

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import Cli, read_lines, read_summary, recipe

CONFIG = recipe(
    data='DataConfig(source="digits", batch_size=64, eval_batch_size=64, '
    "augment=AugmentConfig(crop_padding=1, horizontal_flip=True))",
    train="TrainConfig(steps=20, ema_decay=0.9, eval_every_steps=10)",
    logging="LoggingConfig(every_steps=1)",
)


@pytest.fixture(scope="module")
def one_device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("one"), 1)


def run(folder: Path, devices: int, *words: object) -> Path:
    config = folder / "recipe.py"
    config.write_text(
        f"from jaxtrain.config import *\n\n\ndef get_config():\n    return {CONFIG}\n"
    )
    result = Cli(folder)(
        "--config",
        config,
        "--workdir",
        folder / "run",
        *words,
        JAX_NUM_CPU_DEVICES=str(devices),
    )
    assert result.code == 0, result.stderr
    return folder / "run"


def losses(workdir: Path) -> np.ndarray:
    return np.array([line["loss"] for line in read_lines(workdir, "train")])


@pytest.mark.parametrize("devices", [2, 8])
def test_losses_are_those_of_one_device(one_device: Path, tmp_path: Path, devices: int):
    workdir = run(tmp_path, devices)
    assert read_summary(workdir)["num_devices"] == devices
    ours, reference = losses(workdir), losses(one_device)
    assert len(ours) == 20
    # Sums over the batch in another order: float32 rounding, which grows with steps.
    np.testing.assert_allclose(ours[:5], reference[:5], rtol=1e-5)
    np.testing.assert_allclose(ours, reference, rtol=1e-4)
    mine, theirs = read_summary(workdir)["eval"], read_summary(one_device)["eval"]
    assert mine["num_examples"] == theirs["num_examples"] == 360
    np.testing.assert_allclose(mine["loss"], theirs["loss"], rtol=1e-4)


def test_run_goes_on_with_another_number_of_devices(one_device: Path, tmp_path: Path):
    run(tmp_path, 4, "--train.stop-after-steps", 10)
    workdir = run(tmp_path, 2)
    np.testing.assert_allclose(losses(workdir), losses(one_device), rtol=1e-4)


def test_streamed_data_give_the_same_run(one_device: Path, tmp_path: Path):
    workdir = run(tmp_path, 1, "--data.cache", "stream", "--train.steps-per-call", 2)
    np.testing.assert_allclose(losses(workdir)[:5], losses(one_device)[:5], rtol=1e-5)
    np.testing.assert_allclose(losses(workdir), losses(one_device), rtol=1e-4)
