"""A training step of ours against PyTorch's: the same model, weights, batch, precision.

    python benchmarks/peer_torch.py [--peer-python PYTHON] [--only resnet18 ...]
        [--policies fp32 bf16] [--compile] [--pairs 9] [--devices N]

Ours is the step that a run takes, which gathers and normalises the images of a batch
and computes metrics, too. The peer (`plain_torch.py`) takes a batch that is ready, does
forward and backward pass and SGD with momentum, channels last, with as many threads as
there are cores. Our weights are copied into it, and the losses and the norms of the
gradients of the first steps are compared. Then all take turns, of half a second; the
best of PyTorch's counts: as it is written, and with --compile by torch.compile, with
its defaults and with max-autotune.

PyTorch may be in an environment of its own, whose interpreter --peer-python names.
--devices N computes on N CPU devices in place of what a run chooses.
"""

import argparse
import math
import os
import sys
import time
from typing import Any

import jax
import numpy as np
from pairs import Seconds, compare, take_turns, tell
from peer_cases import CASES, Case, layout_of
from torch_peer import Peer

from jaxtrain.config import (
    Config,
    DataConfig,
    SGDConfig,
    TrainConfig,
)
from jaxtrain.errors import UserError
from jaxtrain.own import allow
from jaxtrain.parallel import devices
from jaxtrain.plugins.plan.measure import compile_step, create_inputs
from jaxtrain.trainer.setup import build_setup
from jaxtrain.trees import by_path
from jaxtrain.weights.names import LEAVES

RATE, MEAN, STD = 0.01, 0.5, 0.25
# Steps that must agree; largest relative difference of a loss, and of a norm of
# gradients, which sum up more: float32 rounds to 6e-8, bfloat16 to 4e-3.
CHECK_STEPS = 3
TOLERANCES = {"fp32": (1e-4, 1e-3), "tf32": (1e-2, 5e-2), "bf16": (5e-2, 0.2)}
TURN_SECONDS = 0.5
VARIANTS = ("compile", "max-autotune")


def make_config(case: Case, policy: str) -> Config:
    shape, batch_size = case.cpu if jax.default_backend() == "cpu" else case.gpu
    size = "x".join(map(str, shape))
    return Config(
        data=DataConfig(
            source=f"synthetic:{size}/10/{2 * batch_size}",
            batch_size=batch_size,
            validation_fraction=0.0,
            mean=(MEAN,) * shape[2],
            std=(STD,) * shape[2],
        ),
        model=case.model,
        optimizer=SGDConfig(learning_rate=RATE, momentum=0.9),
        precision=policy,
        train=TrainConfig(steps=100),
    )


class Ours:
    """The step of a run.

    Attributes:
      num_devices: Number of devices that it computes on.
      arrays: Its weights by the names of the peer, and its batch, before any step.
      found: Losses, and norms of the gradients, of the first steps.
    """

    def __init__(self, config: Config, case: Case):
        setup = build_setup(config)
        self.num_devices = setup.mesh.size
        self.program = compile_step(setup)
        self.state, *self.inputs = create_inputs(setup)
        self._draw_labels()
        self.arrays = {**self._weights(case), **self._batch()}
        self.found = [
            [float(x[0]) for x in (metrics["loss"], metrics["grad_norm"])]
            for metrics in (self.step() for _ in range(CHECK_STEPS))
        ]
        self.steps = 1
        self.steps = max(1, round(TURN_SECONDS / self.turn()[0]))

    def _draw_labels(self) -> None:
        data: Any = self.inputs[1]
        old = data["target"]
        labels = np.random.default_rng(0).integers(10, size=old.shape)
        new = jax.device_put(labels.astype(old.dtype), old.sharding)
        self.inputs[1] = {**data, "target": new}

    def _batch(self) -> dict[str, np.ndarray]:
        data: Any = self.inputs[1]
        batches: Any = self.inputs[2]
        index = np.asarray(batches["index"])[0]
        images = (np.asarray(data["image"])[index] / np.float32(255) - MEAN) / STD
        labels = np.asarray(data["target"])[index]
        moved = images.astype(np.float32).transpose(0, 3, 1, 2)
        return {"images": moved, "labels": labels.astype(np.int64)}

    def _weights(self, case: Case) -> dict[str, np.ndarray]:
        arrays = by_path(self.state.params) | by_path(self.state.model_state)
        found = {}
        for path, array in arrays.items():
            layer, _, leaf = path.rpartition("/")
            name = layer.replace("head/linear", "head").replace("/", ".")
            to_torch = layout_of(layer, leaf, case).to_torch
            array = np.ascontiguousarray(to_torch(np.asarray(array)))
            found[f"{name}.{LEAVES[leaf]}"] = array
        return found

    def step(self) -> dict[str, jax.Array]:
        self.state, metrics = self.program(self.state, *self.inputs)
        return metrics

    def turn(self) -> Seconds:
        """Take some steps; as in a run, the host waits for the one before the last."""
        wall, cpu = time.perf_counter(), time.process_time()
        before = None
        for _ in range(self.steps):
            metrics = self.step()
            jax.block_until_ready(before)
            before = metrics
        jax.block_until_ready(self.state)
        return time.perf_counter() - wall, time.process_time() - cpu


def check(ours: Any, theirs: Any, policy: str, name: str) -> list[float]:
    """Return the largest relative differences of the losses and of the norms."""
    ours, theirs = np.array(ours), np.array(theirs)
    differences = (np.abs(ours - theirs) / np.abs(theirs)).max(0)
    if not (differences <= TOLERANCES[policy]).all():
        raise UserError(
            f"{name}, {policy}: the first losses and norms of gradients are "
            f"{ours.tolist()}, PyTorch's {theirs.tolist()}: the models differ"
        )
    return [float(x) for x in differences]


def measure(
    name: str, policy: str, peer: Peer, variants: list[str], pairs: int
) -> dict[str, Any]:
    """Compare one model at one precision with all variants of the peer."""
    case = CASES[name]
    ours = Ours(make_config(case, policy), case)
    options = {"policy": policy, "rate": RATE, "check_steps": CHECK_STEPS}
    differences, failed = {}, {}
    for variant in variants:
        answer = peer.begin(ours.arrays, case, variant=variant, **options)
        if "failed" in answer:
            failed[variant] = answer["failed"]
            continue
        differences[variant] = check(ours.found, answer["found"], policy, name)
        peer.turn(variant, 2)
    turns = [lambda v=v: peer.turn(v, ours.steps) for v in differences]
    our_times, *their_times = take_turns([ours.turn, *turns], pairs)
    batch_size = len(ours.arrays["labels"])
    found = {
        variant: compare(our_times, times, ours.steps * batch_size)
        for variant, times in zip(differences, their_times, strict=True)
    }
    best = max(found, key=lambda variant: found[variant]["peer"])
    return {
        **found[best],
        "policy": policy,
        "batch_size": batch_size,
        "best": best,
        "images_per_second": {v: result["peer"] for v, result in found.items()},
        "differences": differences,
        "failed": failed,
        "num_devices": ours.num_devices,
    }


def mean(values: list[float]) -> float:
    """Return the geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values))


def run(args: argparse.Namespace) -> None:
    if args.devices:
        jax.config.update("jax_num_cpu_devices", args.devices)
    devices.start("auto", cpus="auto")
    if jax.default_backend() == "cpu" and "tf32" in args.policies:
        raise UserError("--policies tf32: a CPU has none; give fp32 or bf16")
    allow(case.model.name for case in CASES.values())
    peer = Peer(args.peer_python)
    libraries = {"torch": peer.version}
    variants = ["eager", *(VARIANTS if args.compile else ())]
    results = {}
    for name in args.only:
        for policy in args.policies:
            found = measure(name, policy, peer, variants, args.pairs)
            results[f"{name}, {policy}"] = found
            tell(f"peer_torch: {name}, {policy}", found, libraries=libraries)
            sys.stdout.flush()
    whole = {
        key: mean([found[key] for found in results.values()])
        for key in ("ratio", "ours", "peer")
    }
    ratios = [found["ratio"] for found in results.values()]
    told = {"unit": "images/s, geometric mean", "spread": [min(ratios), max(ratios)]}
    tell("peer_torch", {**whole, **told, "results": results}, libraries=libraries)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--only", nargs="+", choices=CASES, default=[*CASES])
    parser.add_argument(
        "--policies", nargs="+", choices=TOLERANCES, default=["fp32", "bf16"]
    )
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--devices", type=int, default=0)
    # Both libraries share a GPU's memory.
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.45")
    try:
        run(parser.parse_args())
    except UserError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
