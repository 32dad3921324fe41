"""`main.py find-batch`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from jaxtrain.config import Config
from jaxtrain.config.command_options import trust_option
from jaxtrain.config.metadata import field
from jaxtrain.config.recipe import default_folder
from jaxtrain.errors import UserError
from jaxtrain.problems import Problem
from jaxtrain.processes.signals import StopSignals

EXAMPLE = "--config configs/imagenet_resnet50.py --target h100x8"
RESULT = "find_batch.json"


@dataclass(frozen=True, kw_only=True)
class FindBatchArguments:
    """Find the largest batch, or the fastest micro-batch, that fits in memory."""

    config: Path = field(
        help="The recipe: a name, such as digits, or a file that defines get_config() "
        "-> Config.",
    )
    vary: Literal["batch_size", "accumulate_steps"] = field(
        "batch_size",
        help="Field to vary: batch_size finds the largest batch; accumulate_steps "
        "finds the fastest micro-batch for the batch size of the config.",
    )
    target: str = field(
        "here",
        help="Hardware to find the batch for. here: run a few steps on this machine; "
        "cpu, cpux8: run a few steps on simulated CPU devices; h100, h100x8 or another "
        "GPU of the command `plan`: only compile the step, for a GPU that need not be "
        "present.",
    )
    nodes: int = field(
        1,
        help="Number of nodes.",
    )
    memory: str | None = field(
        None,
        help="Device memory available for the step, such as 16GiB or 200MB; None: "
        "the GPU memory that JAX preallocates, or 90 % of the available host memory.",
    )
    largest: int | None = field(
        None,
        help="Largest batch size to try; None: the size of the training split.",
    )
    out: Path | None = field(
        None,
        help="Directory of find_batch.json; None: runs/<name of the config>.",
    )
    trust: bool = trust_option("model.pretrained or the method requires")
    overrides: Annotated[Config, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff]


def run(arguments: FindBatchArguments, signals: StopSignals) -> None:
    """Find the batch, print the trials, and write `find_batch.json`."""
    from jaxtrain.plugins.plan import find_batch
    from jaxtrain.plugins.plan.memory import parse_bytes
    from jaxtrain.plugins.plan.targets import parse_target
    from jaxtrain.records.workdir import folder_of_results
    from jaxtrain.weights.trust import trust_recipe

    target = parse_target(arguments.target, arguments.nodes)
    memory = arguments.memory
    if arguments.largest is not None and arguments.vary != "batch_size":
        raise UserError(
            f"--largest {arguments.largest} has no effect with --vary "
            f"{arguments.vary}, which does not change the batch size: leave --largest "
            "out"
        )
    if arguments.trust:
        trust_recipe(arguments.config, arguments.overrides)
    out = arguments.out or default_folder(arguments.config)
    with folder_of_results(out):
        find_batch.carry_out(
            arguments.overrides,
            target,
            vary=arguments.vary,
            memory=None if memory is None else parse_bytes("--memory", memory),
            largest=arguments.largest,
            path=out / RESULT,
        )


def problems(arguments: FindBatchArguments) -> list[Problem]:
    """Return the problems of the config that do not depend on the devices."""
    from jaxtrain.tools.start_problems import problems_without_mesh

    return problems_without_mesh(arguments.overrides)
