"""A step of an ensemble, compared with a step of each of as many runs.

    python benchmarks/ensemble.py [--members 5] [--case resnet18-cifar] [--gpu h100]

Ratios are those of as many single runs over the ensemble: above 1 the ensemble is
better. Each step runs in a process of its own. Rows:

- seconds of a step, and peak memory, measured on this machine;
- with --gpu, what XLA's GPU compiler makes of both for a GPU that is not here
  (`make gpu-compiler`): kernels, bytes that they read and write, planned peak memory.

--tiny measures a model so small that the figures say nothing.
"""

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cases import CASES, make_config
from pairs import relate, tell_each

from jaxtrain import config as config_lib
from jaxtrain.config import Config
from jaxtrain.parallel.device_memory import peak_bytes
from jaxtrain.performance.measure import compile_step, run_steps
from jaxtrain.performance.program import read_program
from jaxtrain.plugins.plan import gpu_compiler
from jaxtrain.plugins.plan.targets import HERE, Target, parse_target
from jaxtrain.run.setup import build_setup


def gpu_figures(configs: Sequence[Config], target: Target) -> list[dict[str, float]]:
    """Return what the GPU's compiler makes of the step of each config."""
    stand_ins = gpu_compiler.start(target)
    found = []
    for config in configs:
        program = compile_step(build_setup(config, devices=stand_ins))
        text = read_program(program.as_text() or "")
        found.append(
            {
                "kernels": text.num_kernels,
                "MB moved": text.hbm_bytes / 1e6,
                "MB planned": peak_bytes(program) / 1e6,
            }
        )
    return found


def rows(arguments: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what each measurement comes to."""
    # The other processes import this file by its name.
    import ensemble

    case, num = arguments.case, arguments.members
    one = make_config(case, arguments.precision)
    several = config_lib.replace(one, "train.ensemble", num)
    here = Target(name=HERE, num_devices=None)
    # In turn, as the machine may get slower meanwhile.
    measured: dict[str, list[dict[str, float]]] = {"one": [], "several": []}
    for _ in range(arguments.rounds):
        for name, config in (("one", one), ("several", several)):
            measured[name].append(gpu_compiler.call(here, run_steps, config))
    label = f"{case}, {num} members"
    for name, unit, factor in (("step_seconds", "s", 1), ("peak_bytes", "MB", 1e-6)):
        ours = [found[name] * factor for found in measured["several"]]
        peer = [found[name] * factor * num for found in measured["one"]]
        yield f"{label}, {name.replace('_', ' ')}", relate(ours, peer, unit)
    if arguments.gpu:
        target = parse_target(arguments.gpu)
        single, joint = gpu_compiler.call(
            target, ensemble.gpu_figures, [one, several], target
        )
        for name, x in single.items():
            pair = relate([joint[name]], [x * num], name)
            yield f"{label}, {name} on {arguments.gpu}", pair


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=CASES, default="resnet18-cifar")
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--gpu", help="compile for it, such as h100")
    parser.add_argument("--tiny", action="store_true", help="only try the script")
    arguments = parser.parse_args()
    if arguments.tiny:
        arguments.case, arguments.members, arguments.rounds = "tiny", 2, 1
    # The other processes find this file.
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    tell_each("ensemble", rows(arguments))


if __name__ == "__main__":
    main()
