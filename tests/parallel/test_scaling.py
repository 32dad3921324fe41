"""The number of devices, and what they share, does not change the result."""

from pathlib import Path

import numpy as np
import pytest

from tests.helpers.numerics import FP64, TOLERANCE
from tests.helpers.processes import Cli
from tests.helpers.recipes import recipe, write_recipe
from tests.helpers.runs import read_lines, read_summary

STEPS = 8
CONFIG = recipe(
    precision='"fp64"',
    data='DataConfig(source="digits", batch_size=64, eval_batch_size=64, '
    'test_split="test[:100]", validation_fraction=0.02, image_size=16, '
    "augment=AugmentConfig(crop_padding=1, horizontal_flip=True))",
    # As wide as leaves every kind of array some to share.
    model='ModelConfig(name="convnet", width=0.5, dropout=0.1)',
    # Small steps: at a rate of 0.1 a difference of rounding grows tenfold in a step,
    # whatever the devices.
    optimizer='OptimizerConfig(name="sgd", learning_rate=0.001)',
    train=f"TrainConfig(steps={STEPS}, ema_decay=0.9, eval_every_steps=4)",
    logging="LoggingConfig(every_steps=1)",
)
GROUPS = "parallel.batch_norm=8"


# Devices, and flags. One step of every mesh is compared in test_axes.py, also of deep
# models; here the preset 2d splits channels, and the mesh with both axes splits pixels.
GLOBAL_NORM = [
    (8, "parallel.preset=fsdp"),
    (8, "parallel.data=-1 parallel.spatial=2 parallel.spatial_width=2"),
]
GROUP_NORM = [(8, ""), (4, "parallel.preset=2d")]


def run(folder: Path, devices: int, *words: object) -> Path:
    folder.mkdir(exist_ok=True)
    config = write_recipe(folder / "recipe.py", CONFIG)
    flags = [f"--{word}" for text in words for word in str(text).split()]
    result = Cli(folder)(
        "--config",
        config,
        "--workdir",
        folder / "run",
        *flags,
        JAX_NUM_CPU_DEVICES=str(devices),
        **FP64,
    )
    assert result.code == 0, result.stderr
    return folder / "run"


@pytest.fixture(scope="module")
def global_norm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("one"), 1)


@pytest.fixture(scope="module")
def group_norm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("one"), 1, GROUPS)


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "flags"), GLOBAL_NORM)
def test_losses_are_those_of_one_device(
    global_norm: Path, tmp_path: Path, devices: int, flags: str
):
    check_same(global_norm, run(tmp_path, devices, flags), devices)


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "flags"), GROUP_NORM)
def test_losses_with_batch_norm_groups_are_those_of_one_device(
    group_norm: Path, tmp_path: Path, devices: int, flags: str
):
    check_same(group_norm, run(tmp_path, devices, GROUPS, flags), devices)


@pytest.mark.slow
def test_run_goes_on_with_another_number_of_devices(global_norm: Path, tmp_path: Path):
    run(tmp_path, 4, "parallel.preset=zero1 train.stop-after-steps=4")
    check_same(global_norm, run(tmp_path, 2, "parallel.preset=tensor"), 2)


@pytest.mark.slow
def test_streamed_data_give_the_same_run(global_norm: Path, tmp_path: Path):
    check_same(global_norm, run(tmp_path, 1, "data.cache=stream"), 1)


@pytest.mark.exhaustive
def test_float32_is_near_on_eight_devices(tmp_path: Path):
    """Loosely: a gradient may differ by 1e-3, and with it the small steps."""
    one, eight = (run(tmp_path / str(n), n, "precision=fp32") for n in (1, 8))
    np.testing.assert_allclose(losses(eight), losses(one), rtol=1e-3)


def check_same(reference: Path, workdir: Path, devices: int) -> None:
    ours, theirs = losses(workdir), losses(reference)
    assert len(ours) == STEPS
    np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE)
    one, many = read_summary(reference), read_summary(workdir)
    assert (one["num_devices"], many["num_devices"]) == (1, devices)
    assert many["eval"]["num_examples"] == one["eval"]["num_examples"]
    np.testing.assert_allclose(
        many["eval"]["loss"], one["eval"]["loss"], rtol=TOLERANCE
    )


def losses(workdir: Path) -> np.ndarray:
    return np.array([line["loss"] for line in read_lines(workdir, "train")])
