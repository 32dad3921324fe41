"""The number of devices and processes, and stops, change no run, whatever it does.

One step of every mesh is compared in `test_axes.py`, also of deep models; here each
feature of a run meets one way to share its work in the slow tests, and each way meets
some. All of them go on elsewhere, from what was saved in the middle.
"""

from pathlib import Path

import numpy as np
import pytest

from tests.helpers.features import STEPS, Runs, assert_near
from tests.helpers.runs import assert_same_run, read_lines

STOP = "--train.stop-after-steps 5"
# Devices and words of the starts of a run; of -2 devices two processes have two each.
WAYS: dict[str, list[tuple[int, str]]] = {
    "fsdp": [(8, f"--parallel.preset fsdp {STOP}"), (1, "")],
    "2d": [(8, f"--parallel.preset 2d {STOP}"), (2, "--parallel.preset tensor")],
    "zero1": [(4, f"--parallel.preset zero1 {STOP}"), (2, "")],
    "pixels": [
        (8, f"--parallel.spatial 2 --parallel.spatial-width 2 {STOP}"),
        (1, "--data.cache stream"),
    ],
    "stages": [(2, f"--parallel.pipeline-stages 2 {STOP}"), (1, "")],
    "processes": [(-1, STOP), (1, "")],
    "everywhere": [
        (8, "--parallel.preset 2d --train.stop-after-steps 3"),
        (-2, f"--parallel.preset fsdp --data.cache stream --data.workers 1 {STOP}"),
        (2, "--parallel.preset spatial --data.cache stream"),
    ],
}
CASES = {
    "slow": [
        ("digits", "pixels"),
        ("groups", "everywhere"),
        ("swa", "processes"),
        ("lookahead", "fsdp"),
        ("adan", "fsdp"),
        ("adopt", "stages"),
        ("pruned", "processes"),
        ("pruned", "fsdp"),
        ("pruned by a pattern", "2d"),
        ("frozen at first", "stages"),
        ("frozen", "2d"),
        ("arcface", "stages"),
        ("contrastive", "2d"),
        ("labels", "fsdp"),
        ("sam", "zero1"),
        ("distillation", "fsdp"),
        ("fashion_mnist_fast", "zero1"),
    ],
    "exhaustive": [
        ("groups", "processes"),
        ("swa", "fsdp"),
        ("schedule_free_sgd", "2d"),
        ("schedule_free_adamw", "zero1"),
        ("prodigy", "fsdp"),
        ("dadapt_adamw", "2d"),
        ("plateau", "processes"),
        ("ademamix", "zero1"),
        ("pruned", "zero1"),
        ("arcface", "fsdp"),
        ("labels", "2d"),
        ("trades", "fsdp"),
        ("adversarial", "2d"),
        ("cifar10_fast", "fsdp"),
        ("frozen at first", "fsdp"),
    ],
}
STOPPED = {
    "slow": ["plateau", "pruned", "int8"],
    "exhaustive": ["swa", "schedule_free_sgd", "lookahead", "pruned by a pattern"],
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("features"))


@pytest.mark.parametrize(
    ("name", "way"),
    [
        pytest.param(*row, marks=getattr(pytest.mark, tier))
        for tier, rows in CASES.items()
        for row in rows
    ],
)
def test_a_feature_does_not_depend_on_the_way(
    runs: Runs, tmp_path: Path, name: str, way: str
):
    for devices, words in WAYS[way]:
        runs.start(name, tmp_path / "run", devices, words)
    assert_near(tmp_path / "run", runs.whole(name))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(row, marks=getattr(pytest.mark, tier))
        for tier, rows in STOPPED.items()
        for row in rows
    ],
)
def test_a_stopped_run_ends_the_same_bit_for_bit(runs: Runs, tmp_path: Path, name: str):
    """Before, between and after what its feature does."""
    for stop in (1, 5, 8):
        runs.start(name, tmp_path / "run", 1, f"--train.stop-after-steps {stop}")
    runs.start(name, tmp_path / "run")
    assert_same_run(runs.whole(name), tmp_path / "run", STEPS)


@pytest.mark.exhaustive
def test_float32_is_near_on_eight_devices(runs: Runs, tmp_path: Path):
    """Loosely: a gradient may differ by 1e-3, and with it the small steps."""
    found = []
    for devices in (1, 8):
        workdir = tmp_path / str(devices)
        runs.start("digits", workdir, devices, "--precision fp32")
        found.append([line["loss"] for line in read_lines(workdir, "train")])
    np.testing.assert_allclose(*found, rtol=1e-3)
