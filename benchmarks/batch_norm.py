"""Our batch norm against Flax's: the gradients of a whole model, on one device.

    python benchmarks/batch_norm.py [--model resnet18] [--policy bf16]

Both models differ in nothing but batch norm. They take turns on the same batch, and the
median of the pairs' ratios counts. `memory` is what the compiler plans for what is
alive at once besides arguments and results, which no machine's load changes.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from pairs import compare, take_turns, tell

from jaxtrain import models
from jaxtrain.models.layers import Layers
from jaxtrain.parallel import devices
from jaxtrain.tasks.losses import cross_entropy
from jaxtrain.training import precision
from jaxtrain.training.state import split_model

PAIRS = 15
SHAPE, NUM_CLASSES, BATCH_SIZE = (32, 32, 3), 10, 64
# About a second on two cores.
CALLS = {"convnet": 8, "resnet18": 1, "resnet50": 1}


class FlaxLayers(Layers):
    """Our layers, but for batch norm, which is Flax's."""

    def batch_norm(self, channels: int, *, scale: float = 1.0, **_: Any) -> Any:
        return nnx.BatchNorm(
            channels,
            momentum=0.9,
            scale_init=nnx.initializers.constant(scale),
            dtype=self.policy.compute_dtype,
            param_dtype=self.policy.param_dtype,
            rngs=self.rngs,
        )


def make_run(
    name: str, layers: Layers, calls: int
) -> tuple[Callable[[], tuple[float, float]], int]:
    """Return a function that times some calls, and the bytes that a call needs."""
    model = models.MODELS[name](SHAPE, NUM_CLASSES, layers=layers)
    graphdef, params, model_state = split_model(model)

    def loss_fn(params: Any, images: jax.Array, labels: jax.Array) -> Any:
        model = nnx.merge(graphdef, params, model_state, copy=True)
        model.train()
        logits = model(images)
        return cross_entropy(logits, labels, 0.0).mean(), split_model(model)[2]

    rng = np.random.default_rng(0)
    images = rng.normal(size=(BATCH_SIZE, *SHAPE))
    images = jnp.asarray(images, layers.policy.compute_dtype)
    labels = jnp.asarray(rng.integers(NUM_CLASSES, size=BATCH_SIZE), jnp.int32)
    step = jax.jit(jax.value_and_grad(loss_fn, has_aux=True))
    program = step.lower(params, images, labels).compile()
    memory: Any = program.memory_analysis()

    def run() -> tuple[float, float]:
        start, cpu_start = time.perf_counter(), time.process_time()
        for _ in range(calls):
            jax.block_until_ready(program(params, images, labels))
        return time.perf_counter() - start, time.process_time() - cpu_start

    run()
    return run, memory.temp_size_in_bytes


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="resnet18", choices=sorted(CALLS))
    parser.add_argument("--policy", default="fp32")
    args = parser.parse_args()
    devices.start("auto")
    policy = precision.parse(args.policy)
    calls = CALLS[args.model]
    runs, memory = zip(
        *(
            make_run(args.model, kind(policy=policy, rngs=nnx.Rngs(0)), calls)
            for kind in (Layers, FlaxLayers)
        ),
        strict=True,
    )
    ours, peer = take_turns([*runs], PAIRS)
    result = {
        "model": args.model,
        "policy": args.policy,
        **compare(ours, peer, calls * BATCH_SIZE),
        "memory": {"ours": memory[0], "peer": memory[1]},
    }
    tell("batch_norm", result)


if __name__ == "__main__":
    main()
