"""The command `scale`: what it measures, writes and refuses."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import pytest

from jaxtrain.cli import main
from jaxtrain.config import (
    Config,
    ConvNetConfig,
    DataConfig,
    SGDConfig,
    TrainConfig,
)
from jaxtrain.config.recipe import load_config
from jaxtrain.errors import UserError
from jaxtrain.plugins.plan import measure
from jaxtrain.plugins.plan.scale import (
    Mode,
    at_devices,
    describe_run,
    scale,
)
from jaxtrain.plugins.plan.stand_in import stand_in
from jaxtrain.trainer.programs import make_programs
from jaxtrain.trainer.run_data import load_data
from jaxtrain.trainer.setup import Setup, build_setup
from tests.helpers.processes import ROOT, Cli
from tests.helpers.recipes import recipe
from tests.helpers.rows import each_row
from tests.plugins.plan.fake_plans import facts, use_fake_compiler

DIGITS = str(ROOT / "configs" / "digits.py")
TINY = recipe(model='ConvNetConfig(name="convnet", width=0.125)')
TINY_CONFIG = Config(
    data=DataConfig(source="synthetic:8x8x1/4", batch_size=16),
    model=ConvNetConfig(name="convnet", width=0.125),
    optimizer=SGDConfig(learning_rate=0.1),
    train=TrainConfig(steps=1),
)
# An array of the convnet that fsdp shares: float32 (3, 3, 64, 64).
KERNEL_BYTES = 4 * 3 * 3 * 64 * 64


def read(folder: Path) -> dict[str, Any]:
    assert (folder / "scaling.png").read_bytes().startswith(b"\x89PNG")
    return json.loads((folder / "scaling.json").read_text())


def make_task(cache: Literal["device", "stream"] = "device") -> Setup:
    return build_setup(
        Config(
            data=DataConfig(batch_size=64, cache=cache, mean=(0.5,), std=(0.5,)),
            model=ConvNetConfig(name="convnet"),
            optimizer=SGDConfig(learning_rate=0.1),
        )
    )


@pytest.mark.slow
def test_compile_only(cli: Cli, write_config):
    """The whole file: of SGD with an average of the weights, shared by fsdp."""
    config = write_config(recipe(model='ConvNetConfig(name="convnet")'))
    words = ["--devices", "2,1", "--preset", "fsdp", "--compile-only"]
    result = cli.done("scale", "--config", config, *words)
    assert "times are meaningless" in result.stdout
    result = read(cli.directory / "runs" / "recipe")
    one, two = result.pop("runs")
    assert result == {
        "config": "recipe",
        "mode": "weak",
        "preset": "fsdp",
        "simulated": True,
        "target": None,
    }
    params = measure.bytes_per_device(make_task().abstract_state.params)
    assert list(one) == list(two)
    assert one == {
        "devices": 1,
        "step_seconds": None,
        "images_per_second": None,
        "efficiency": None,
        "state_bytes_per_device": one["state_bytes_per_device"],
        "peak_bytes_per_device": one["peak_bytes_per_device"],
        "collectives": {},
        "wire_bytes_per_device": 0,
        "minimum_collective_bytes": 0,
    }
    # Parameters, momentum and average; the rest is batch-norm statistics and counters.
    assert 3 * params < one["state_bytes_per_device"] < 3.05 * params
    saved = one["state_bytes_per_device"] - two["state_bytes_per_device"]
    assert saved == 3 * KERNEL_BYTES / 2
    assert one["peak_bytes_per_device"] > one["state_bytes_per_device"]
    assert two["minimum_collective_bytes"] == 3 / 2 * params
    assert two["collectives"]["all-gather"]["bytes"] >= KERNEL_BYTES


@pytest.mark.slow
def test_timed_with_a_fixed_batch(cli: Cli, write_config):
    words = ["--devices", "1,2", "--mode", "strong", "--out", "out"]
    cli.done("scale", "--config", write_config(TINY), *words)
    assert not (cli.directory / "runs").exists()
    one, two = read(cli.directory / "out")["runs"]
    assert one["step_seconds"] > 0 and two["step_seconds"] > 0
    # Half of the batch each, and the same state.
    assert two["peak_bytes_per_device"] < one["peak_bytes_per_device"]
    assert two["state_bytes_per_device"] == one["state_bytes_per_device"]


@pytest.mark.parametrize(("mode", "size"), [("weak", 64), ("strong", 16)])
def test_the_batch_grows_with_the_devices_or_stays(mode: Mode, size: int):
    assert at_devices(TINY_CONFIG, 4, mode).data.batch_size == size


def timed(*runs: tuple[int, float]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for num_devices, seconds in runs:
        step = facts(num_devices=num_devices, batch_size=32 * num_devices)
        found.append(describe_run(step, seconds, *found[:1]))
    return found


def test_efficiency_is_speed_by_device():
    runs = timed((1, 0.1), (4, 0.125), (8, 0.2))
    assert [run["images_per_second"] for run in runs] == pytest.approx(
        [320, 1024, 1280]
    )
    assert [run["efficiency"] for run in runs] == pytest.approx([1, 0.8, 0.5])
    runs = timed((4, 0.1), (8, 0.2))
    assert [run["efficiency"] for run in runs] == pytest.approx([1, 0.5])


def test_a_larger_batch_does_not_make_steps_per_call_an_error():
    """Eight times the batch: two steps an epoch, of which each ends a call."""
    data = DataConfig(source="synthetic:8x8x1/10/1280", batch_size=64)
    train = TrainConfig(epochs=1, steps_per_call=10)
    config = Config(
        data=data,
        train=train,
        model=ConvNetConfig(width=0.125),
        optimizer=SGDConfig(learning_rate=0.1),
    )
    assert build_setup(config).timetable.steps_per_epoch == 18
    assert build_setup(at_devices(config, 8, "weak")).timetable.steps_per_epoch == 2


@pytest.mark.slow
def test_the_step_is_that_of_a_run():
    setup = make_task("stream")
    state, key, data, batches = measure.create_inputs(setup)
    copy = jax.tree.map(lambda x: x.copy(), state)
    ours, metrics = measure.compile_step(setup)(state, key, data, batches)
    programs = make_programs(setup, load_data(setup))
    theirs, expected = programs.train_at(0)(copy, key, data, batches)
    assert math.isfinite(metrics["loss"][0]) and int(ours.step) == 1
    jax.tree.map(np.testing.assert_array_equal, metrics, expected)
    jax.tree.map(np.testing.assert_array_equal, ours.params, theirs.params)


@each_row(
    ("words", "named"),
    [
        (["--devices", "1,x"], "--devices 1,x: expected"),
        (["--devices", "0"], "--devices 0: expected"),
        (
            ["--devices", "1", "--out", "/dev/null/out"],
            "--out /dev/null/out: not writable",
        ),
        (
            ["--devices", "1", "--target", "h100"],
            "h100 requires --compile-only",
        ),
        (
            ["--devices", "1", "--target", "h100x8"],
            "give the numbers of GPUs with --devices",
        ),
        (
            ["--devices", "1", "--target", "h100", "--platform", "cpu"],
            "--target h100 --platform cpu: steps are compiled either for",
        ),
    ],
)
def test_bad_input(
    words: list[str],
    named: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    assert main(["scale", "--config", DIGITS, *words]) == 2
    assert named in capsys.readouterr().err


def test_gpus_that_are_not_here(
    cli: Cli, write_config: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Each number is compiled with a batch that grows, and nothing is timed."""
    use_fake_compiler(monkeypatch, tmp_path, lambda c: c.data.batch_size)
    words = ["--devices", "4,1", "--compile-only", "--target", "h100"]
    result = cli.done("scale", "--config", write_config(TINY), *words)
    assert "simulated" not in result.stdout
    found = read(cli.directory / "runs" / "recipe")
    assert found["target"] == "h100" and not found["simulated"]
    peaks = {run["devices"]: run["peak_bytes_per_device"] for run in found["runs"]}
    assert peaks[4] == 4 * peaks[1]
    assert [run["step_seconds"] for run in found["runs"]] == [None, None]


@pytest.mark.slow
def test_config_that_does_not_fit_is_told_once(cli: Cli):
    words = ["--config", DIGITS, "--devices", "3", "--mode", "strong"]
    result = cli.process("scale", *words)  # And the processes that it starts.
    assert result.code == 2, result.stderr
    assert result.stderr.count("data.batch_size = 64 is not divisible by 3") == 1
    assert "63 or 66" in result.stderr and "Traceback" not in result.stderr


def test_more_devices_than_gpus(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("JAX_PLATFORMS")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    with pytest.raises(UserError, match=r"--devices 4: this machine has 2 GPUs.*cpu"):
        scale(Config(), [1, 4], "weak", "auto", timed=False)


def test_stand_in_has_the_shape_of_a_set_that_is_not_prepared(tmp_path: Path):
    imagenet = load_config(ROOT / "configs" / "imagenet_resnet50.py").data
    nowhere = str(tmp_path)
    imagenet = replace(imagenet, data_dir=nowhere)
    mnist = DataConfig(source="tfds:mnist", data_dir=nowhere)
    assert stand_in(mnist).source == "synthetic:28x28x1/10/1048576"
    # Canvases of twice the size of the images.
    assert stand_in(imagenet).source == "synthetic:448x448x3/1000/1048576"
    digits = DataConfig(source="digits")
    assert stand_in(digits) is digits
    with pytest.raises(UserError, match=r"set data\.image_size"):
        stand_in(DataConfig(source="tfds:imagenet2012", data_dir=nowhere))
