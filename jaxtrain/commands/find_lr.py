"""`main.py find-lr`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from jaxtrain.config import Config
from jaxtrain.config.metadata import field
from jaxtrain.config.recipe import default_folder
from jaxtrain.errors import UserError
from jaxtrain.processes.signals import StopSignals

EXAMPLE = "--config configs/digits.py"
PICTURE, VALUES = "find_lr.png", "find_lr.json"
# Any rate above this is beyond all optimizers.
LARGEST = 1e6


@dataclass(frozen=True, kw_only=True)
class FindLrArguments:
    """Find a learning rate: train a little while it rises, and see when it helps."""

    config: Path = field(
        help="The recipe: a name, such as digits, or a file that defines get_config() "
        "-> Config.",
    )
    out: Path | None = field(
        None,
        help="Folder of find_lr.png and find_lr.json; None: runs/<name of the config>.",
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
        help="Steps of the test, at most: it ends when the loss goes up.",
    )
    platform: Literal["auto", "cpu", "gpu", "tpu"] = field(
        "auto",
        help="What to run on; auto: what JAX finds, but never the CPU of a machine "
        "with a GPU.",
    )
    trust: bool = field(
        False,
        help="Load the parts of your own (code) that model.pretrained or the method "
        "names: their files are shown, and compared with the recorded digests.",
    )
    overrides: Annotated[Config, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff]


def run(arguments: FindLrArguments, signals: StopSignals) -> None:
    """Print the learning rate; write the losses and their picture."""
    from jaxtrain.json_files.write import write_json
    from jaxtrain.parallel import devices
    from jaxtrain.records.run_log import show_table
    from jaxtrain.records.whole import reported, whole
    from jaxtrain.tools import find_lr
    from jaxtrain.weights.trust import trust_recipe

    if not 0 < arguments.start < arguments.end <= LARGEST:
        raise UserError(
            f"--start {arguments.start:g} --end {arguments.end:g}: the learning rate "
            f"rises from a number above 0 to one of at most {LARGEST:g}"
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
    # Opened first: where they cannot be written is told before the test takes its time.
    with (
        whole("--out", out / VALUES) as values_file,
        whole("--out", out / PICTURE) as picture,
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
    show_table("learning rate", {**rows, "picture": out / PICTURE})
    print(f"use it with --optimizer.learning-rate {best:.2g}")
