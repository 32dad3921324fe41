"""A training step on CPU with the gradients of the plug-in `cpu_convolutions`.

    python benchmarks/convolutions.py [--pairs 7] [--only resnet18]

The peer is the same step with those of `jax.lax`. Both run in turn on images that are
there already; the median of the pairs' ratios counts. `compile` is the CPU time to
trace and compile the step, `memory` the bytes of its temporary arrays, ours over
theirs; `differs` the largest difference of a parameter after the first step, over the
largest change.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from pairs import compare

from jaxtrain.config import (
    Config,
    ConvNetConfig,
    ConvNeXtConfig,
    DataConfig,
    LeNetConfig,
    MobileNetConfig,
    ModelConfig,
    ResNetConfig,
    SGDConfig,
    TrainConfig,
)
from jaxtrain.models import CONVOLUTIONS
from jaxtrain.parallel import devices
from jaxtrain.plugins.plan.measure import compile_step, create_inputs
from jaxtrain.trainer.setup import build_setup

# Name -> images, examples a batch, model, precision.
CASES = {
    "lenet": ("28x28x1/10", 128, LeNetConfig(), "fp32"),
    "convnet": ("28x28x1/10", 128, ConvNetConfig(name="convnet"), "fp32"),
    "resnet18": ("32x32x3/10", 64, ResNetConfig(name="resnet18", stem="cifar"), "fp32"),
    "resnet50": ("64x64x3/10", 32, ResNetConfig(name="resnet50"), "fp32"),
    "mobilenet_v2": ("64x64x3/10", 32, MobileNetConfig(name="mobilenet_v2"), "fp32"),
    "convnext_tiny": ("64x64x3/10", 16, ConvNeXtConfig(name="convnext_tiny"), "fp32"),
    "resnet18-bf16": (
        "32x32x3/10",
        64,
        ResNetConfig(name="resnet18", stem="cifar"),
        "bf16",
    ),
}


def make_config(
    images: str, batch_size: int, model: ModelConfig, policy: str
) -> Config:
    return Config(
        data=DataConfig(source=f"synthetic:{images}", batch_size=batch_size),
        model=model,
        optimizer=SGDConfig(learning_rate=0.01, momentum=0.9),
        precision=policy,
        train=TrainConfig(epochs=1),
    )


def prepare(config: Config) -> tuple[Callable[[], tuple[float, float]], Any]:
    """Return a function that does a step: its seconds, and those of the CPU."""
    setup = build_setup(config, devices=jax.devices()[:1])
    start = time.process_time()
    program = compile_step(setup)
    compile_seconds = time.process_time() - start
    state, key, data, batches = create_inputs(setup)
    first = jax.tree.map(np.asarray, state.params)
    state = program(state, key, data, batches)[0]
    changed = jax.tree.map(lambda a, b: np.asarray(a) - b, state.params, first)
    box = [state]

    def run() -> tuple[float, float]:
        start, cpu_start = time.perf_counter(), time.process_time()
        box[0] = jax.block_until_ready(program(box[0], key, data, batches)[0])
        return time.perf_counter() - start, time.process_time() - cpu_start

    run()
    memory: Any = program.memory_analysis()
    return run, (compile_seconds, memory.temp_size_in_bytes, changed)


def measure(config: Config, pairs: int) -> dict[str, Any]:
    ours, (our_compile, our_bytes, our_change) = prepare(config)
    used = CONVOLUTIONS.references.pop("cpu")
    peer, (peer_compile, peer_bytes, peer_change) = prepare(config)
    CONVOLUTIONS.references["cpu"] = used
    turns = [(ours(), peer()) for _ in range(pairs)]
    our_turns, peer_turns = map(list, zip(*turns, strict=True))
    found = compare(our_turns, peer_turns, config.data.batch_size)
    leaves = zip(jax.tree.leaves(our_change), jax.tree.leaves(peer_change), strict=True)
    differs = max(np.abs(a - b).max() / np.abs(b).max() for a, b in leaves)
    return {
        **found,
        "compile": our_compile / peer_compile,
        "memory": our_bytes / peer_bytes,
        "differs": float(differs),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--only", choices=CASES)
    args = parser.parse_args()
    devices.start("cpu")
    jax.config.update("jax_enable_compilation_cache", False)
    for name, case in CASES.items():
        if args.only in (None, name):
            found = measure(make_config(*case), args.pairs)
            print(json.dumps({"step": name, **found}), flush=True)


if __name__ == "__main__":
    main()
