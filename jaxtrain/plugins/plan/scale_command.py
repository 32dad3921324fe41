"""`main.py scale`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from jaxtrain.config import Config, Preset, replace
from jaxtrain.config.command_options import trust_option
from jaxtrain.config.metadata import field
from jaxtrain.config.recipe import default_folder
from jaxtrain.problems import Problem
from jaxtrain.processes.signals import StopSignals

EXAMPLE = "--config configs/digits.py --devices 1,2,4,8"
RESULT, PLOT = "scaling.json", "scaling.png"


@dataclass(frozen=True, kw_only=True)
class ScaleArguments:
    """Measure how the training step scales with the number of devices."""

    config: Path = field(
        help="The recipe: a name, such as digits, or a file that defines get_config() "
        "-> Config.",
    )
    devices: str = field(
        help="Numbers of devices, such as 1,2,4,8. Without GPUs, devices are simulated "
        "on the CPU, where memory and collectives differ from a GPU's: see --target.",
    )
    mode: Literal["weak", "strong"] = field(
        "weak",
        help="weak: data.batch_size is per device; strong: data.batch_size is for all "
        "devices.",
    )
    preset: Preset | None = field(
        None,
        help="Value of parallel.preset; None uses the value in the config.",
    )
    compile_only: bool = field(
        False,
        help="Only compile the step: report memory, sent bytes and collectives, but no "
        "times.",
    )
    target: str | None = field(
        None,
        help="GPU to compile for with --compile-only (it need not be present): v100, "
        "a100, a100-40, h100, h200, b200, l4 or rtx6000pro.",
    )
    out: Path | None = field(
        None,
        help="Directory of scaling.json and scaling.png; None: runs/<name of the "
        "config>.",
    )
    platform: Literal["auto", "cpu", "gpu"] = field(
        "auto",
        help="Devices to run on; auto: GPUs if there are any, else simulated devices.",
    )
    trust: bool = trust_option("model.pretrained or the method requires")
    overrides: Annotated[Config, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff]


def run(arguments: ScaleArguments, signals: StopSignals) -> None:
    """Measure scaling, and write `scaling.json` and `scaling.png`."""
    from jaxtrain.json_files.write import write_json
    from jaxtrain.plugins.plan import scale
    from jaxtrain.records.workdir import folder_of_results
    from jaxtrain.weights.trust import trust_recipe

    if arguments.trust:
        trust_recipe(arguments.config, arguments.overrides)
    counts = scale.parse_counts(arguments.devices)
    config = arguments.overrides
    if arguments.preset is not None:
        config = replace(config, "parallel.preset", arguments.preset)
    out = arguments.out or default_folder(arguments.config)
    with folder_of_results(out):
        result = scale.scale(
            config,
            counts,
            arguments.mode,
            arguments.platform,
            timed=not arguments.compile_only,
            target=arguments.target,
        )
        result = {"config": default_folder(arguments.config).name, **result}
        write_json(out / RESULT, result)
        scale.plot(out / PLOT, result)
    print(f"wrote {out / RESULT} and {out / PLOT}")


def problems(arguments: ScaleArguments) -> list[Problem]:
    """Return the config problems that are independent of the devices."""
    from jaxtrain.tools.start_problems import problems_without_mesh

    return problems_without_mesh(arguments.overrides)
