"""`main.py find-batch`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from jaxtrain.config import Config
from jaxtrain.config.metadata import field
from jaxtrain.config.recipe import default_folder
from jaxtrain.errors import UserError
from jaxtrain.processes.signals import StopSignals

EXAMPLE = "--config configs/imagenet_resnet50.py --target h100x8"
RESULT = "find_batch.json"


@dataclass(frozen=True, kw_only=True)
class FindBatchArguments:
    """Find the largest batch, or the fastest micro-batch, that fits the memory."""

    config: Path = field(
        help="The recipe: a name, such as digits, or a file that defines get_config() "
        "-> Config.",
    )
    vary: Literal["batch_size", "accumulate_steps"] = field(
        "batch_size",
        help="What is changed: data.batch_size, for the largest batch, or with the "
        "same batch train.accumulate_steps, for the fastest micro-batch.",
    )
    target: str = field(
        "here",
        help="here: run a few steps on this machine; cpu, cpux8: on its CPU; a GPU "
        "that need not be here, as h100 or h100x8 (those of the command plan): "
        "compile the step for it.",
    )
    nodes: int = field(
        1,
        help="Nodes of so many GPUs.",
    )
    memory: str | None = field(
        None,
        help="Memory that a device has for the step, such as 16GiB or 200MB; None: "
        "what JAX takes of the GPU's, or 90 % of what is available of the host's.",
    )
    largest: int | None = field(
        None,
        help="The largest batch to try; None: the whole training split.",
    )
    out: Path | None = field(
        None,
        help="Folder of find_batch.json; None: runs/<name of the config>.",
    )
    trust: bool = field(
        False,
        help="Load the parts of your own (code) that model.pretrained or the method "
        "names: their files are shown, and compared with the recorded digests.",
    )
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
            f"--largest {arguments.largest}: the batch of the config stays with "
            f"--vary {arguments.vary}; leave it out"
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
