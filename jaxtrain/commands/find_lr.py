"""`main.py find-lr`: a learning-rate range test."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from jaxtrain.config import Config
from jaxtrain.config.command_options import platform_option, trust_option
from jaxtrain.config.metadata import field
from jaxtrain.config.recipe import default_folder
from jaxtrain.errors import UserError
from jaxtrain.problems import Problem
from jaxtrain.processes.signals import StopSignals

EXAMPLE = "--config configs/digits.py"
PICTURE, VALUES = "find_lr.png", "find_lr.json"
# Maximum of --end: no optimizer trains at larger learning rates.
LARGEST = 1e6


@dataclass(frozen=True, kw_only=True)
class FindLrArguments:
    """Find a learning rate by a range test: the loss at rising learning rates."""

    config: Path = field(
        help="The recipe: a name, such as digits, or a file that defines get_config() "
        "-> Config.",
    )
    out: Path | None = field(
        None,
        help="Directory of find_lr.png and find_lr.json; None: runs/<name of the "
        "config>.",
    )
    start: float = field(
        1e-7,
        help="Learning rate of the first step.",
    )
    end: float = field(
        10.0,
        help="Learning rate of the last step.",
    )
    steps: int = field(
        100,
        help="Maximum number of steps; the test ends when the loss diverges.",
    )
    platform: Literal["auto", "cpu", "gpu", "tpu"] = platform_option()
    trust: bool = trust_option("model.pretrained or the method requires")
    overrides: Annotated[Config, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff]


def run(arguments: FindLrArguments, signals: StopSignals) -> None:
    """Print the suggested learning rate; write the losses and their plot."""
    from jaxtrain.json_files.write import write_json
    from jaxtrain.parallel import devices
    from jaxtrain.records.atomic_output import atomic_output, reported
    from jaxtrain.records.run_log import show_table
    from jaxtrain.tools import find_lr
    from jaxtrain.weights.trust import trust_recipe

    if not 0 < arguments.start < arguments.end <= LARGEST:
        raise UserError(
            f"--start {arguments.start:g} --end {arguments.end:g}: expected 0 < start "
            f"< end <= {LARGEST:g}"
        )
    if arguments.steps < find_lr.MIN_STEPS:
        raise UserError(
            f"--steps {arguments.steps}: expected {find_lr.MIN_STEPS} or more"
        )
    if arguments.trust:
        trust_recipe(arguments.config, arguments.overrides)
    out = arguments.out or default_folder(arguments.config)
    parallel = arguments.overrides.parallel
    devices.start(
        arguments.platform, flags=parallel.xla_flags, cpus=parallel.cpu_devices
    )
    # Open the files now, so that unwritable paths are reported before the test.
    with (
        atomic_output("--out", out / VALUES) as values_file,
        atomic_output("--out", out / PICTURE) as picture,
    ):
        test = find_lr.range_test(
            arguments.overrides,
            start=arguments.start,
            end=arguments.end,
            num_steps=arguments.steps,
        )
        suggested = find_lr.suggest(test)
        values = {
            "suggested": suggested,
            "learning_rate": test.rates.tolist(),
            "loss": test.losses.tolist(),
            "smoothed_loss": test.smoothed.tolist(),
        }
        with reported("--out", out):
            write_json(values_file, values)
            find_lr.plot(picture, test, suggested)
    best = next(iter(suggested.values()))
    rows = {rule: f"{rate:.2e}" for rule, rate in suggested.items()}
    show_table("learning rate", {**rows, "plot": out / PICTURE})
    print(f"set --optimizer.learning-rate {best:.2g}")


def problems(arguments: FindLrArguments) -> list[Problem]:
    """Return the problems that a training run would report at its start."""
    from jaxtrain.tools.start_problems import start_problems

    return start_problems(arguments.overrides, arguments.platform)
