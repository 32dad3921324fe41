"""How many CPU devices a run divides its batches among."""

import json
import os
import shlex
import types
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest

from jaxtrain.config import (
    ParallelConfig,
)
from jaxtrain.errors import UserError
from jaxtrain.parallel import cpu_devices
from tests.helpers.command import with_devices
from tests.helpers.numerics import FP64
from tests.helpers.processes import ROOT, Cli
from tests.helpers.words import quoted

# Fields of the section, numbers to divide, pixels of a batch -> devices, of eight.
MANY = 8 * cpu_devices.PIXELS_A_DEVICE
CHOICES: list[tuple[dict[str, Any], list[int], int, int]] = [
    ({}, [64, 128], MANY, 8),
    ({}, [64, 128], MANY // 4, 2),
    ({}, [64, 128], MANY // 10, 1),
    ({}, [12, 24, 0], MANY, 6),
    ({}, [64, 7], MANY, 1),
    ({"preset": "fsdp"}, [64], MANY, 1),
    ({"data": -1}, [64], MANY, 1),
    ({"pipeline_stages": 2}, [64], MANY, 1),
    ({"cpu_devices": 1}, [64], MANY, 1),
    ({"cpu_devices": 3, "preset": "fsdp"}, [64], 0, 3),
]


def choose_all() -> list[int]:
    with mock.patch.object(cpu_devices, "_offered", True):
        return [
            len(cpu_devices.choose(ParallelConfig(**fields), sizes, pixels))
            for fields, sizes, pixels, _ in CHOICES
        ]


@pytest.mark.slow
def test_as_many_devices_share_a_batch_as_have_enough_to_do():
    assert with_devices(8, choose_all) == [num for *_, num in CHOICES]


def test_devices_that_the_user_has_asked_jax_for_are_all_used():
    assert cpu_devices.choose(ParallelConfig(), [1], 0) == jax.devices()


def test_numbers_that_cannot_be_had_are_refused():
    many = ParallelConfig(cpu_devices=1000)
    with pytest.raises(UserError, match=r"cpu_devices = 1000: JAX .* a new proc"):
        cpu_devices.choose(many, [], 0)
    gpu = types.SimpleNamespace(platform="gpu")
    with (
        mock.patch.object(jax, "devices", lambda: [gpu]),
        pytest.raises(UserError, match=r"cpu_devices = 1000 has no effect on gpu"),
    ):
        cpu_devices.choose(many, [], 0)


@pytest.mark.slow
def test_a_run_is_the_same_on_one_device_and_on_all_cores(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("JAX_NUM_CPU_DEVICES", raising=False)
    words = (
        f"--config {quoted(ROOT)}/configs/fashion_mnist.py --precision "
        "fp64 --model.width 0.25 "
        "--data.source synthetic:28x28x1/10/512 --train.epochs None --train.steps 6 "
        "--optimizer.warmup-steps 0 --logging.every-steps 1 --logging.report False"
    )

    words = [*shlex.split(words), "--workdir"]
    cli.done(*words, "one", **FP64)
    cli.done(*words, "moved", "--train.stop-after-steps", 3, **FP64)
    process = cli.start(*words, "moved", anew=True, JAX_ENABLE_X64="1")
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    num_devices, losses = read(cli.directory / "one")
    assert num_devices == 1
    num_devices, moved = read(cli.directory / "moved")
    cores = len(os.sched_getaffinity(0))
    # Of 128 images, six of which have enough pixels for each.
    assert num_devices == max(n for n in (1, 2, 4) if n <= cores)
    assert len(losses) == len(moved) == 6
    np.testing.assert_allclose(moved, losses, rtol=1e-9)


def read(workdir: Path) -> tuple[int, list[float]]:
    """Return the number of devices, and the losses of the steps."""
    lines = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    losses = [line["loss"] for line in lines if line["kind"] == "train"]
    summary = json.loads((workdir / "summary.json").read_text())
    return summary["num_devices"], losses
