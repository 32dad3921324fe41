"""`main.py plan`: memory and time of a run on other GPUs."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

import tyro

from jaxtrain.config import Config, Preset
from jaxtrain.config.command_options import trust_option
from jaxtrain.config.metadata import field
from jaxtrain.config.recipe import default_folder
from jaxtrain.errors import UserError, nearest
from jaxtrain.problems import Problem
from jaxtrain.processes import collector
from jaxtrain.processes.signals import StopSignals

EXAMPLE = "--config configs/imagenet_resnet50.py --target h100x8"
RESULT = "plan.json"


@dataclass(frozen=True, kw_only=True)
class PlanArguments:
    """Estimate memory and time of a run on other GPUs by compiling it."""

    config: Path = field(
        help="The recipe: a name, such as digits, or a file that defines get_config() "
        "-> Config.",
    )
    target: str = field(
        help="GPU to plan for: v100, a100, a100-40, h100, h200, b200, l4 or "
        "rtx6000pro, with the number per node, as in h100x8; here: the devices of this "
        "machine; cpu, cpux8: simulated devices.",
    )
    nodes: int = field(
        1,
        help="Number of nodes (machines) of the target.",
    )
    batch: Literal["max"] | int | None = field(
        None,
        help="Batch size instead of data.batch_size; max: the largest that fits in "
        "memory.",
    )
    compare: str | None = field(
        None,
        help="Values of parallel.preset to compare, such as data_parallel,fsdp,tensor.",
    )
    price: float | None = field(
        None,
        help="Price of one GPU for one hour, in any currency; prints a lower bound on "
        "the cost of the run.",
    )
    check: bool = field(
        False,
        help="Also run a few steps on this machine, which must have the GPUs of "
        "--target, and compare their memory with the plan.",
    )
    out: Path | None = field(
        None,
        help="Directory of plan.json; None: runs/<name of the config>.",
    )
    trust: bool = trust_option("model.pretrained or the method requires")
    overrides: Annotated[Config, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff]


def run(arguments: PlanArguments, signals: StopSignals) -> None:
    """Plan the run, print the plan, and write `plan.json`."""
    with contextlib.ExitStack() as compiler:
        with collector.held_back():
            from jaxtrain.plugins.plan import gpu_compiler
            from jaxtrain.plugins.plan.targets import parse_target

            target = parse_target(arguments.target, arguments.nodes)
            compiler.enter_context(gpu_compiler.ready(target))
            from jaxtrain.plugins.plan import planning
            from jaxtrain.records.workdir import folder_of_results
            from jaxtrain.weights.trust import trust_recipe

        if arguments.price is not None and arguments.price < 0:
            raise UserError(f"--price {arguments.price}: expected 0 or more")
        if arguments.trust:
            trust_recipe(arguments.config, arguments.overrides)
        out = arguments.out or default_folder(arguments.config)
        with folder_of_results(out):
            planning.carry_out(
                arguments.overrides,
                target,
                batch=arguments.batch,
                presets=parse_presets(arguments.compare),
                price=arguments.price,
                check=arguments.check,
                path=out / RESULT,
            )


def problems(arguments: PlanArguments) -> list[Problem]:
    """Return the problems of the config that do not depend on the devices."""
    from jaxtrain.tools.start_problems import problems_without_mesh

    return problems_without_mesh(arguments.overrides)


def parse_presets(text: str | None) -> list[Preset]:
    """Parse presets such as data_parallel,fsdp.

    Raises:
      UserError: A preset is unknown.
    """
    names = [word.strip() for word in text.split(",")] if text is not None else []
    known = get_args(Preset)
    for name in names:
        if name not in known:
            meant = nearest(name, known, "; did you mean {!r}?")
            raise UserError(
                f"--compare {text}: unknown preset {name!r}; expected "
                f"{', '.join(known)}{meant}"
            )
    return list(dict.fromkeys(names))  # pyright: ignore[reportReturnType]
