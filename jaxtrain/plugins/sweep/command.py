"""`main.py sweep`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from jaxtrain import extras
from jaxtrain.config import MAX_COUNT, Config
from jaxtrain.config.base import Options
from jaxtrain.config.command_options import platform_option, trust_option
from jaxtrain.config.metadata import field
from jaxtrain.config.recipe import default_folder
from jaxtrain.errors import UserError
from jaxtrain.problems import Problem
from jaxtrain.processes import collector
from jaxtrain.processes.signals import StopSignals

EXAMPLE = "--config configs/digits.py --space space.py --trials 20"


@dataclass(frozen=True, kw_only=True)
class SweepArguments:
    """Search hyperparameters: train, prune and compare trials."""

    config: Path = field(
        help="The recipe: a name, such as digits, or a file that defines get_config() "
        "-> Config.",
    )
    space: Path = field(
        help='Python file that defines space(trial) -> {"section.field": value}, '
        "where trial is an Optuna trial.",
    )
    workdir: Path | None = field(
        None,
        help="Directory of the sweep and its trials; None: runs/<name of the "
        "config>-sweep.",
    )
    trials: int = field(
        20,
        help="Total number of trials, including existing ones.",
    )
    sampler: str = field(
        "TPESampler",
        help="Sampler of hyperparameters: a class of optuna.samplers.",
    )
    sampler_options: Options = field(
        default_factory=dict,
        help="Arguments of the sampler, by name.",
    )
    pruner: str = field(
        "MedianPruner",
        help="Pruner, which stops bad trials early: a class of optuna.pruners; "
        "NopPruner: no trial is pruned.",
    )
    pruner_options: Options = field(
        default_factory=dict,
        help="Arguments of the pruner, by name. Arguments that count steps, such as "
        "n_warmup_steps, count evaluations, not training steps.",
    )
    platform: Literal["auto", "cpu", "gpu", "tpu"] = platform_option()
    trust: bool = trust_option("model.pretrained or the method requires")
    overrides: Annotated[Config, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff]


def run(arguments: SweepArguments, signals: StopSignals) -> None:
    """Train the trials; write the best config and the report."""
    if extras.missing("optuna"):
        raise UserError(
            f"sweep requires Optuna, which is not installed: {extras.install('sweep')}"
        )
    _check(arguments)
    with collector.held_back():
        from jaxtrain.parallel import devices
        from jaxtrain.plugins.sweep.results import finish
        from jaxtrain.plugins.sweep.study import reported
        from jaxtrain.plugins.sweep.work import SweepWorker
        from jaxtrain.records.workdir import folder_of_results, resolve_link
        from jaxtrain.weights.trust import trust_recipe

    config = arguments.overrides
    if arguments.trust:
        trust_recipe(arguments.config, config)
    folder = default_folder(arguments.config)
    folder = resolve_link(arguments.workdir or folder.with_name(f"{folder.name}-sweep"))
    parallel = config.parallel
    devices.start(
        arguments.platform, flags=parallel.xla_flags, cpus=parallel.cpu_devices
    )
    with folder_of_results(folder), reported(folder):
        worker = SweepWorker(
            config,
            folder,
            arguments.space,
            (arguments.sampler, arguments.sampler_options),
            (arguments.pruner, arguments.pruner_options),
            signals,
        )
        worker.work(arguments.trials)
    finish(folder, config, arguments.trials)


def problems(arguments: SweepArguments) -> list[Problem]:
    """Problems of the config that the start of a run would report."""
    from jaxtrain.tools.start_problems import start_problems

    return start_problems(arguments.overrides, arguments.platform)


def _check(arguments: SweepArguments) -> None:
    """Raise UserError for invalid options."""
    if not 1 <= arguments.trials <= MAX_COUNT:
        raise UserError(f"--trials {arguments.trials}: expected 1 to {MAX_COUNT}")
    train = arguments.overrides.train
    for name in ("stop_after_steps", "profile_steps"):
        if (value := getattr(train, name)) is not None:
            raise UserError(
                f"train.{name} = {value} is not supported in a sweep, whose trials run "
                f"to the end without profiling: leave train.{name} out"
            )
