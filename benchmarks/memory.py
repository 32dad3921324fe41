"""Peak memory of a training step: planned, measured, and that of a plain Flax trainer.

    python benchmarks/memory.py [--case resnet50] [--precisions bf16] [--remat full]

Each step runs in a process of its own. Rows:

- PRECISION, REMAT: what the compiler plans over what is measured: 1 is exact, below 1
  the plan is too low. On a CPU the plan leaves out the workspace of convolutions.
- PRECISION, plain Flax: what the ResNet-50 of `plain_flax.py` takes, measured, over
  what ours takes without rematerialisation.

--tiny measures models so small, and so different, that the figures say nothing.
"""

import argparse
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from cases import CASES, make_config
from pairs import relate, tell_each
from plain_flax import STAGES, ResNet50, make_step

from jaxtrain import config as config_lib
from jaxtrain.config.train import Remat
from jaxtrain.parallel import devices
from jaxtrain.parallel.device_memory import peak_bytes
from jaxtrain.parallel.devices import nvidia_gpus
from jaxtrain.plugins.plan import gpu_compiler
from jaxtrain.plugins.plan.measure import run_steps, watched_bytes
from jaxtrain.plugins.plan.targets import HERE, Target
from jaxtrain.training import precision as precision_lib
from jaxtrain.trees import num_bytes

# Cores of each process: it compiles for most of its time.
CORES_A_PROCESS = 4
TINY_STAGES = ((1, 8), (1, 8))


def run_plain(
    batch_size: int, side: int, stages: Sequence[tuple[int, int]], precision: str
) -> dict[str, float]:
    """Run steps of the plain trainer, in a process that has allocated nothing yet.

    Returns:
      `peak_bytes` and `planned_bytes`, as `run_steps` does.
    """
    devices.start("auto")
    policy = precision_lib.parse(precision)
    net = partial(ResNet50, stages=stages)
    step, abstract = make_step(policy.compute_dtype, net)
    state = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), abstract)
    images = jnp.zeros((batch_size, side, side, 3), np.uint8)
    labels = jnp.zeros((batch_size,), np.int32)
    with jax.default_matmul_precision(policy.products):
        jitted = jax.jit(step, donate_argnums=0)
        program = jitted.lower(state, images, labels).compile()
    box, held = [state], num_bytes((state, images, labels))
    del state

    def call() -> None:
        box[0], loss = program(box[0], images, labels)
        jax.block_until_ready((box[0], loss))

    return {
        "peak_bytes": watched_bytes(call, held),
        "planned_bytes": peak_bytes(program),
    }


def start_all(
    pool: ThreadPoolExecutor, arguments: argparse.Namespace, case: str
) -> dict[str, "Future[dict[str, float]]"]:
    """Start a process for each row; return what they will answer."""
    # The other processes import this file by its name.
    import memory

    target = Target(name=HERE, num_devices=None)
    started: dict[str, Future[dict[str, float]]] = {}
    for precision in arguments.precisions:
        config = make_config(case, precision)
        for remat in arguments.remat:
            changed = config_lib.replace(config, "train.remat", remat)
            started[f"{precision}, {remat}"] = pool.submit(
                gpu_compiler.call, target, run_steps, changed
            )
        side = int(CASES[case][0].partition("x")[0])
        stages = TINY_STAGES if arguments.tiny else STAGES
        plain = (config.data.batch_size, side, stages, precision)
        same = arguments.tiny or config.model.name == "resnet50"
        if same and "none" in arguments.remat:
            started[f"{precision}, plain Flax"] = pool.submit(
                gpu_compiler.call, target, memory.run_plain, *plain
            )
    return started


def rows(
    case: str, started: "dict[str, Future[dict[str, float]]]"
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the row of each process as it ends."""
    for label, answer in started.items():
        found = answer.result()
        measured, planned = found["peak_bytes"] / 1e6, found["planned_bytes"] / 1e6
        if label.endswith("plain Flax"):
            plain = f"{label.partition(',')[0]}, none"
            ours = started[plain].result()["peak_bytes"] / 1e6
            yield f"{case}, {label}", relate([ours], [measured], "MB")
        else:
            pair = relate([planned], [measured], "MB", more_is_better=True)
            yield f"{case}, {label}, planned", pair


def main() -> None:
    on_gpu = bool(nvidia_gpus()) and os.environ.get("JAX_PLATFORMS") != "cpu"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=CASES)
    default = ["bf16"] if on_gpu else ["fp32"]
    parser.add_argument("--precisions", nargs="+", default=default)
    parser.add_argument("--remat", nargs="+", default=[*get_args(Remat)])
    parser.add_argument("--tiny", action="store_true", help="only try the script")
    arguments = parser.parse_args()
    case = arguments.case or ("resnet50" if on_gpu else "resnet50-64")
    case = "tiny" if arguments.tiny else case
    # The other processes find this file, and share the memory of a GPU.
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    cores = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(max(1, cores // CORES_A_PROCESS)) as pool:
        tell_each("memory", rows(case, start_all(pool, arguments, case)))


if __name__ == "__main__":
    main()
