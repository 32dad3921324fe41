"""The command `find-batch`: what it tries, recommends, writes and refuses."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import pytest

from jaxtrain.config import (
    AugmentConfig,
    Config,
    DataConfig,
    ParallelConfig,
    SGDConfig,
)
from jaxtrain.errors import UserError
from jaxtrain.parallel.gpus import GPUS
from jaxtrain.plugins.plan import batch_trial, gpu_compiler
from jaxtrain.plugins.plan.batch_search import (
    batch_unit,
    micro_batch_counts,
    with_micro_batches,
)
from jaxtrain.plugins.plan.memory import parse_bytes
from tests.helpers.needs import need
from tests.helpers.processes import Cli
from tests.helpers.rows import each_row
from tests.plugins.plan.fake_plans import use_fake_compiler

TINY = """Config(
    data=DataConfig(source="synthetic:8x8x1/4/512", batch_size=16),
    model=ConvNetConfig(name="convnet", width=0.125),
    optimizer=SGDConfig(learning_rate=0.1),
    train=TrainConfig(epochs=10),
)"""
CONFIG = Config(
    data=DataConfig(source="synthetic:8x8x1/4/512", batch_size=24),
    optimizer=SGDConfig(learning_rate=0.1),
)
MICRO = ["--vary", "accumulate_steps"]
GIB = 2**30


def read(cli: Cli) -> dict[str, Any]:
    return json.loads((cli.directory / "runs/recipe/find_batch.json").read_text())


@each_row(
    ("config", "num_devices", "counts"),
    [
        (CONFIG, 1, [1, 2, 3, 4, 6, 8, 12, 24]),
        (CONFIG, 8, [1, 3]),
        (replace(CONFIG, parallel=ParallelConfig(batch_norm=4)), 1, [1, 2, 3, 6]),
        (replace(CONFIG, parallel=ParallelConfig(batch_norm=4)), 2, [1, 3]),
        (replace(CONFIG, parallel=ParallelConfig(preset="tensor")), 8, 8),
        (
            replace(
                CONFIG, data=replace(CONFIG.data, augment=AugmentConfig(mixup=0.2))
            ),
            4,
            [1, 2, 3, 6],
        ),
    ],
)
def test_micro_batches_are_shared_by_devices_and_groups(
    config: Config, num_devices: int, counts: Any
):
    found = micro_batch_counts(config, num_devices)
    assert found == counts or len(found) == counts
    for count in found:
        unit = batch_unit(with_micro_batches(config, count), num_devices)
        assert config.data.batch_size % unit == 0


@each_row(
    ("text", "size"),
    [
        ("200MB", 200 * 10**6),
        ("16GiB", 16 * GIB),
        ("1.5 g", 15 * 10**8),
        ("4096", 4096),
    ],
)
def test_sizes_of_memory(text: str, size: int):
    assert parse_bytes("--memory", text) == size


@each_row("text", ["", "0", "-1GB", "16 bytes", "GB", "0.1", "1e9", "1_000"])
def test_sizes_that_are_none(text: str):
    with pytest.raises(UserError, match=r"--memory .*: expected a size such as 200MB"):
        parse_bytes("--memory", text)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run trials in this process, and keep what the system kills first as it is."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(gpu_compiler, "call", lambda _, function, *job: function(*job))
    monkeypatch.setattr(batch_trial, "OOM_SCORE", tmp_path / "oom_score_adj")
    monkeypatch.setattr("jaxtrain.plugins.plan.measure.TIMED_SECONDS", 0.0)


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_steps_are_tried_here(
    cli: Cli, write_config: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Up to --largest, or to what the device runs out of memory with."""
    words = ["find-batch", "--config", write_config(TINY), "--largest", "48"]
    result = cli.done(*words)
    assert "set --data.batch-size 48" in result.stdout
    assert "90 steps instead of 280" in result.stdout
    assert "learning_rate = 0.1 is for a batch of 16" in result.stdout
    assert (tmp_path / "oom_score_adj").read_text() == "1000"
    found = read(cli)
    small, large = found["trials"]
    assert found["measured"] and found["recommended"] == large
    assert large["batch_size"] == 48 and large["images_per_second"] > 0
    assert 0 < small["peak_bytes"] < large["peak_bytes"] < found["usable_bytes"]

    # A process that is killed, or has no memory left, has tried too large a batch.
    def run_out(setup: Any, program: Any) -> Any:
        if setup.config.data.batch_size > 16:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")
        return {"peak_bytes": 1000, "step_seconds": 0.5}

    monkeypatch.setattr(batch_trial, "measure_steps", run_out)
    result = cli.done(*words, "--largest", "17")
    assert "set --data.batch-size 16" in result.stdout
    assert read(cli)["trials"][1]["reason"] == batch_trial.RAN_OUT


def test_a_killed_trial_does_not_fit(
    cli: Cli, write_config: Any, monkeypatch: pytest.MonkeyPatch
):
    """What the plan says is above the limit is not run at all."""

    def call(_: object, function: Any, *job: Any) -> Any:
        if function is not batch_trial.try_steps:
            return 2, "cpu", GIB
        config, usable = job
        assert usable == 10**6
        if config.train.accumulate_steps < 4:
            raise gpu_compiler.KilledError("killed")
        speed = {4: 100.0, 8: 120.0}[config.train.accumulate_steps]
        return {"peak_bytes": 10, "images_per_second": speed}

    monkeypatch.setattr(gpu_compiler, "call", call)
    words = ["find-batch", "--config", write_config(TINY), *MICRO, "--memory", "1MB"]
    result = cli.done(*words)
    assert "set --train.accumulate-steps 8" in result.stdout
    assert "batch norm, if the model has any, computes statistics over 2 exam" in (
        result.stdout
    )
    trials = {t["accumulate_steps"]: t for t in read(cli)["trials"]}
    assert trials[1]["reason"] == batch_trial.KILLED and not trials[1]["fits"]
    assert trials[1]["peak_bytes"] is None and trials[4]["fits"]


def test_for_gpus_the_largest_batch_is_planned(
    cli: Cli, write_config: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    use_fake_compiler(monkeypatch, tmp_path, lambda c: c.data.batch_size * 10**9)
    words = ["find-batch", "--config", write_config(TINY), "--target", "h100x4"]
    assert cli(*words).code == 0
    found = read(cli)
    assert not found["measured"] and found["num_devices"] == 4
    assert found["device_kind"] == GPUS["h100"].device_kind
    assert found["recommended"]["batch_size"] == 60  # Of 63.7 GB.
    assert cli(*words, "--memory", "33GB").code == 0
    assert read(cli)["recommended"]["batch_size"] == 32


def test_for_gpus_micro_batches_are_planned(
    cli: Cli, write_config: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """The first that fits, as the bound of the others is the same; or none fits."""
    micro = lambda c: 10**9 * c.data.batch_size // c.train.accumulate_steps  # noqa: E731
    use_fake_compiler(monkeypatch, tmp_path, micro)
    path = write_config(TINY)
    words = ["find-batch", "--config", path, "--target", "h100x2", *MICRO]
    result = cli.done(*words, "--memory", "5GB")
    assert "set --train.accumulate-steps 4" in result.stdout
    assert read(cli)["recommended"]["micro_batch_size"] == 4
    result = cli(*words, "--memory", "1GB")
    assert (
        result.code == 2
        and "a micro-batch of 2, the smallest possible" in result.stderr
    )
    assert read(cli)["recommended"] is None


@each_row(
    ("words", "told"),
    [
        (["--memory", "much"], "--memory much: expected a size"),
        ([*MICRO, "--largest", "9"], "--largest 9 has no effect with --vary"),
        (
            [*MICRO, "--data.batch-size", "15"],
            "batch_size = 15: expected a multiple of 2",
        ),
    ],
)
def test_bad_input(
    words: list[str],
    told: str,
    cli: Cli,
    write_config: Any,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(gpu_compiler, "call", lambda *_: (2, "cpu", GIB))
    result = cli("find-batch", "--config", write_config(TINY), *words)
    assert result.code == 2 and told in result.stderr, result.stderr


@pytest.mark.slow
def test_each_trial_is_a_process_of_its_own(cli: Cli, write_config: Any):
    """On two simulated devices."""
    words = ["--config", write_config(TINY), "--target", "cpux2"]
    cli.done("find-batch", *words, *MICRO, "--memory", "200MB")
    found = read(cli)
    assert found["num_devices"] == 2 and found["recommended"]["fits"]
    assert found["recommended"]["peak_bytes"] < 200 * 10**6


@pytest.mark.slow
@pytest.mark.gpu_compiler
def test_micro_batches_with_the_gpu_compiler(
    cli: Cli, write_config: Any, tmp_path: Path
):
    need(gpu_compiler.COMPILER)
    words = ["--config", write_config(TINY), "--target", "h100", *MICRO]
    cli.done("find-batch", *words, XDG_CACHE_HOME=str(tmp_path))
    first, second = read(cli)["trials"]
    # A tiny step is bound by its launches, which each micro-batch adds to.
    assert read(cli)["recommended"] == first and first["accumulate_steps"] == 1
    assert first["images_per_second"] > second["images_per_second"]
