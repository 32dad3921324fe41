"""The recipes of the speed runs: their parts together, in float64."""

from pathlib import Path

import numpy as np
import pytest

from tests.helpers.forked import ROOT
from tests.helpers.numerics import FP64, TOLERANCE
from tests.helpers.processes import Cli
from tests.helpers.runs import read_lines, read_summary
from tests.helpers.tiers import thinned

STEPS = 6
RECIPES = {"cifar10_fast": "32x32x3", "fashion_mnist_fast": "28x28x1"}
# As narrow as leaves each part something to do; steps of a rate at which a difference
# of rounding does not grow.
SMALL = {
    "precision": "fp64",
    "model.width": "0.0625",
    "data.batch-size": "32",
    "data.eval-batch-size": "32",
    "optimizer.learning-rate": "0.001",
    "train.epochs": "None",
    "train.steps": STEPS,
    "logging.every-steps": "1",
}


def run(folder: Path, name: str, devices: int, *words: object) -> Path:
    folder.mkdir(exist_ok=True)
    source = f"synthetic:{RECIPES[name]}/10/96"
    flags = [f"--{key}={value}" for key, value in SMALL.items()]
    result = Cli(folder)(
        *("--config", ROOT / f"configs/{name}.py", "--workdir", folder / "run"),
        *("--data.source", source, *flags, *words),
        JAX_NUM_CPU_DEVICES=str(devices),
        **FP64,
    )
    assert result.code == 0, result.stderr
    return folder / "run"


def losses(workdir: Path) -> list[float]:
    return [line["loss"] for line in read_lines(workdir, "train")]


@pytest.mark.parametrize("name", thinned(2, ["fashion_mnist_fast", "cifar10_fast"]))
def test_a_stop_and_four_devices_change_no_loss(name: str, tmp_path: Path):
    """Whitening, Muon, alternating flips, smoothed labels, averaged weights."""
    one = run(tmp_path / "one", name, 1)
    run(tmp_path / "four", name, 4, "--train.stop-after-steps", 3)
    four = run(tmp_path / "four", name, 4)
    assert len(losses(one)) == STEPS
    np.testing.assert_allclose(losses(four), losses(one), rtol=TOLERANCE)
    ours, theirs = read_summary(four), read_summary(one)
    assert (ours["num_devices"], theirs["num_devices"]) == (4, 1)
    found, expected = ours["eval"]["loss"], theirs["eval"]["loss"]
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE)
