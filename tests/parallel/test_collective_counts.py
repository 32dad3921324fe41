"""What the devices exchange in a ResNet-18's step, read from the compiled program."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.helpers import quick
from tests.helpers.processes import ROOT

PARAMS_BYTES = 4 * 11_689_512
BLOCKS = 2 + 2 + 2 + 2

PROGRAM = """
import json, sys
from jaxtrain.config import *
from jaxtrain.plugins.plan.measure import compile_step
from jaxtrain.plugins.plan.program import read_program
from jaxtrain.trainer.setup import build_setup

batch_size, parallel = int(sys.argv[1]), json.loads(sys.argv[2])
setup = build_setup(Config(
    data=DataConfig(source="synthetic:64x64x3/1000/1024", batch_size=batch_size),
    model=ResNetConfig(name="resnet18"),
    optimizer=AdamWConfig(learning_rate=0.1),
    parallel=ParallelConfig(**parallel),
    train=TrainConfig(steps=10),
))
hlo = compile_step(setup).as_text()
found = read_program(hlo).collectives
print(json.dumps({
    "collectives": [[c.kind, c.bytes] for c in found],
    "wire_bytes": sum(c.wire_bytes for c in found),
    "hlo": [line for line in hlo.splitlines() if "all-" in line],
}))
"""

pytestmark = [pytest.mark.slow, pytest.mark.plugins]


def compile_resnet18(devices: int, batch_size: int, **parallel: object) -> dict:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(batch_size), json.dumps(parallel)],
        cwd=ROOT,
        # What is read is XLA's program: the machine code of it may be slow.
        env={
            **os.environ,
            "JAX_NUM_CPU_DEVICES": str(devices),
            "XLA_FLAGS": quick.FLAGS,
        },
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def ring(passes: int, devices: int, num_bytes: int) -> float:
    """Return what a device sends in so many all-gathers or reduce-scatters."""
    return passes * (devices - 1) / devices * num_bytes


def test_data_parallel_reduces_the_gradients_once():
    devices = 64
    found = compile_resnet18(devices, 128, batch_norm=2)
    kinds, sizes = zip(*found["collectives"], strict=True)
    assert set(kinds) == {"all-reduce"}
    assert len(kinds) <= 3
    assert PARAMS_BYTES <= sum(sizes) <= 1.005 * PARAMS_BYTES
    # An all-reduce is a reduce-scatter and an all-gather.
    assert found["wire_bytes"] <= 1.005 * ring(2, devices, PARAMS_BYTES)


def test_fully_sharded_sends_no_more_than_theory():
    """Two all-gathers and one reduce-scatter, whatever carries them."""
    devices = 64
    found = compile_resnet18(devices, 128, preset="fsdp", batch_norm=2)
    assert found["wire_bytes"] <= 1.05 * ring(3, devices, PARAMS_BYTES)
    gathered = sum(n for kind, n in found["collectives"] if kind == "all-gather")
    # No activations among them.
    assert 0.99 * PARAMS_BYTES <= gathered <= PARAMS_BYTES


def test_tensor_parallel_reduces_activations_once_each_way():
    batch_size = 8
    found = compile_resnet18(2, batch_size, preset="tensor")
    gathered = sum(n for kind, n in found["collectives"] if kind == "all-gather")
    # Nothing but, of each example and device, the best class and its logit.
    assert gathered <= batch_size * 2 * 8
    reductions = [line for line in found["hlo"] if re.search(r" all-reduce\(", line)]
    activations = re.findall(rf"f32\[{batch_size},\d+,\d+,\d+\]", results(reductions))
    assert len(activations) == 2 * BLOCKS


def results(lines: list[str]) -> str:
    return "\n".join(re.split(r" all-reduce\(", line)[0] for line in lines)
