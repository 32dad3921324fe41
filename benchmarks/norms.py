"""Whether XLA's merging of kernels changes the numbers of a step on a GPU.

    python benchmarks/norms.py [--case resnet50] [--optimizers sgd lamb]

Steps are taken as a run takes them, and as XLA compiles them without its pass that
merges kernels with several results. Both begin with the same state and batch. A row
for each optimizer: the norm of the gradients over that of the peer, in the step where
they are furthest apart; `wrong` counts the steps that are more than 1 % apart, in the
norm or in the loss. So norms that were wrong on an H100 were found (RESULTS.md). A CPU
has no such pass.
"""

import argparse
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from cases import CASES, default_case, make_config
from pairs import tell_each

from jaxtrain.config import Config
from jaxtrain.config.optimizer import OPTIMIZERS
from jaxtrain.config.part import make_part
from jaxtrain.parallel import devices
from jaxtrain.plugins.plan.measure import create_inputs, lower_step
from jaxtrain.trainer.setup import build_setup

STEPS, RATE = 12, 0.01
# Relative difference that rounding does not explain, in bfloat16 and over all steps.
TOLERANCE = 0.01
UNMERGED = {"xla_disable_hlo_passes": "multi_output_fusion"}


def take_steps(config: Config, options: dict[str, Any]) -> np.ndarray:
    """Return norm of gradients and loss of each step, (STEPS, 2)."""
    setup = build_setup(config)
    program = lower_step(setup).compile(compiler_options=options)
    state, *inputs = create_inputs(setup)
    found = []
    for _ in range(STEPS):
        state, metrics = program(state, *inputs)
        found.append([float(metrics[key][0]) for key in ("grad_norm", "loss")])
    return np.array(found)


def measure(config: Config) -> dict[str, Any]:
    options = {} if jax.default_backend() == "cpu" else UNMERGED
    ours, peer = take_steps(config, {}), take_steps(config, options)
    apart = np.abs(ours - peer) / np.abs(peer)
    worst = int(apart[:, 0].argmax())
    norms = ours[:, 0] / peer[:, 0]
    return {
        "ratio": float(norms[worst]),
        "spread": np.quantile(norms, (0.25, 0.75)).tolist(),
        "ours": float(ours[worst, 0]),
        "peer": float(peer[worst, 0]),
        "unit": "norm of gradients",
        "wrong": int((apart.max(axis=1) > TOLERANCE).sum()),
        "steps": STEPS,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--optimizers", nargs="+", default=["sgd", "lamb"])
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    devices.start("auto")
    on_gpu = jax.default_backend() != "cpu"
    case = args.case or default_case(on_gpu, args.tiny)
    config = make_config(case, "fp32" if args.tiny else args.precision)
    rows = (
        (
            name,
            measure(
                replace(
                    config,
                    optimizer=replace(make_part(OPTIMIZERS, name), learning_rate=RATE),
                )
            ),
        )
        for name in args.optimizers
    )
    tell_each("norms", rows)


if __name__ == "__main__":
    main()
