"""The number of devices, and what they share, does not change the result."""

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import Cli, read_lines, read_summary, recipe, write_recipe

STEPS = 20
CONFIG = recipe(
    data='DataConfig(source="digits", batch_size=64, eval_batch_size=64, '
    "image_size=16, augment=AugmentConfig(crop_padding=1, horizontal_flip=True))",
    model='ModelConfig(name="resnet18", width=0.125, dropout=0.1, stem="cifar")',
    # Small steps: at a rate of 0.1 a difference of rounding, or the one activation that
    # it moves past a ReLU's corner, grows tenfold in a step, whatever the devices.
    optimizer='OptimizerConfig(name="sgd", learning_rate=0.001)',
    train=f"TrainConfig(steps={STEPS}, ema_decay=0.9, eval_every_steps=10)",
    logging="LoggingConfig(every_steps=1)",
)
GROUPS = "parallel.batch_norm=8"

# Devices, and flags. The width of the model leaves every kind of array some to share.
GLOBAL_NORM = [
    (2, ""),
    (8, ""),
    (8, "parallel.preset=fsdp"),
    (4, "parallel.preset=zero1"),
    (2, "parallel.preset=tensor"),
    (2, "parallel.preset=spatial"),
    (8, "parallel.data=-1 parallel.spatial=2 parallel.spatial_width=2"),
    (8, "parallel.preset=2d"),
]
GROUP_NORM = [
    (4, ""),
    (8, ""),
    (8, "parallel.preset=fsdp"),
    (4, "parallel.preset=2d"),
    (4, "parallel.preset=fsdp parallel.fsdp=2 parallel.spatial=2"),
]


def run(folder: Path, devices: int, *words: object) -> Path:
    config = write_recipe(folder / "recipe.py", CONFIG)
    flags = [f"--{word}" for text in words for word in str(text).split()]
    result = Cli(folder)(
        "--config",
        config,
        "--workdir",
        folder / "run",
        *flags,
        JAX_NUM_CPU_DEVICES=str(devices),
    )
    assert result.code == 0, result.stderr
    return folder / "run"


@pytest.fixture(scope="module")
def global_norm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("one"), 1)


@pytest.fixture(scope="module")
def group_norm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("one"), 1, GROUPS)


@pytest.mark.parametrize(("devices", "flags"), GLOBAL_NORM)
def test_losses_are_those_of_one_device(
    global_norm: Path, tmp_path: Path, devices: int, flags: str
):
    check_same(global_norm, run(tmp_path, devices, flags), devices)


@pytest.mark.parametrize(("devices", "flags"), GROUP_NORM)
def test_losses_with_batch_norm_groups_are_those_of_one_device(
    group_norm: Path, tmp_path: Path, devices: int, flags: str
):
    check_same(group_norm, run(tmp_path, devices, GROUPS, flags), devices)


def test_run_goes_on_with_another_number_of_devices(global_norm: Path, tmp_path: Path):
    run(tmp_path, 4, "parallel.preset=fsdp train.stop-after-steps=10")
    check_same(global_norm, run(tmp_path, 2, "parallel.preset=tensor"), 2)


def test_streamed_data_give_the_same_run(global_norm: Path, tmp_path: Path):
    words = "data.cache=stream train.steps-per-call=2"
    check_same(global_norm, run(tmp_path, 1, words), 1)


def check_same(reference: Path, workdir: Path, devices: int) -> None:
    ours, theirs = losses(workdir), losses(reference)
    assert len(ours) == STEPS
    # Sums over the batch in another order: float32 rounding, which grows with steps.
    np.testing.assert_allclose(ours[:5], theirs[:5], rtol=1e-5)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    one, many = read_summary(reference), read_summary(workdir)
    assert (one["num_devices"], many["num_devices"]) == (1, devices)
    assert many["eval"]["num_examples"] == one["eval"]["num_examples"]
    np.testing.assert_allclose(many["eval"]["loss"], one["eval"]["loss"], rtol=1e-3)


def losses(workdir: Path) -> np.ndarray:
    return np.array([line["loss"] for line in read_lines(workdir, "train")])
