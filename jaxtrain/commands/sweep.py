"""`main.py sweep`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from jaxtrain import extras
from jaxtrain.config import MAX_COUNT, Config
from jaxtrain.config.base import Options
from jaxtrain.config.recipe import default_folder
from jaxtrain.errors import UserError
from jaxtrain.processes import collector
from jaxtrain.processes.signals import StopSignals

EXAMPLE = "--config configs/digits.py --space space.py --trials 20"
MAX_PROCESSES = 1024


@dataclass(frozen=True, kw_only=True)
class SweepArguments:
    """Search hyperparameters: train trials, prune the worse ones, compare them."""

    # The recipe: a Python file that defines get_config() -> Config.
    config: Path
    # A Python file that defines space(trial) -> {"section.field": value}, where trial
    # is one of Optuna.
    space: Path
    # Folder of the sweep and its trials; None: runs/<name of the config>-sweep.
    workdir: Path | None = None
    # Trials in all, with those that are there.
    trials: int = 20
    # Processes that train trials side by side; each has an equal share of the GPUs.
    processes: int = 1
    # Trials that are trained in one program, as members of an ensemble: they may differ
    # in optimizer.learning_rate and weight_decay alone, and none is pruned.
    together: int = 1
    # What draws the values: a class of optuna.samplers.
    sampler: str = "TPESampler"
    # Its arguments, by name.
    sampler_options: Options = field(default_factory=dict)
    # What ends bad trials early: a class of optuna.pruners; NopPruner: nothing does;
    # None: MedianPruner, or nothing with --together.
    pruner: str | None = None
    # Its arguments, by name; steps are evaluations.
    pruner_options: Options = field(default_factory=dict)
    # What to run on; auto: what JAX finds, but never the CPU of a machine with a GPU.
    platform: Literal["auto", "cpu", "gpu", "tpu"] = "auto"
    # Load the parts of your own (code) that model.pretrained or a teacher names: their
    # files are shown, and compared with the recorded digests.
    trust: bool = False
    overrides: Annotated[Config, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff]


def run(arguments: SweepArguments, signals: StopSignals) -> None:
    """Train the trials, and write the best config and the page."""
    if extras.missing("optuna"):
        raise UserError(f"sweep needs Optuna: {extras.install('sweep')}")
    _check(arguments)
    with collector.held_back():
        from jaxtrain.inference.trust import trust_recipe
        from jaxtrain.records.workdir import folder_of_results, follow
        from jaxtrain.tools.sweep.options import SweepOptions
        from jaxtrain.tools.sweep.processes import work_together
        from jaxtrain.tools.sweep.results import finish
        from jaxtrain.tools.sweep.together import check_config
        from jaxtrain.tools.sweep.work import work

    if arguments.trust:
        trust_recipe(arguments.config, arguments.overrides)
    together = arguments.together
    if together > 1:
        check_config(arguments.overrides, together)
    folder = default_folder(arguments.config)
    folder = arguments.workdir or folder.with_name(f"{folder.name}-sweep")
    options = SweepOptions(
        config=arguments.overrides,
        space=arguments.space,
        folder=follow(folder),
        num_trials=arguments.trials,
        sampler=arguments.sampler,
        sampler_options=arguments.sampler_options,
        pruner=arguments.pruner or ("NopPruner" if together > 1 else "MedianPruner"),
        pruner_options=arguments.pruner_options,
        platform=arguments.platform,
        together=together,
    )
    with folder_of_results(options.folder):
        if arguments.processes == 1:
            work(options, signals)
        else:
            work_together(options, arguments.processes, signals)
    finish(options)


def _check(arguments: SweepArguments) -> None:
    """Raise UserError if the options do not fit."""
    if arguments.together > 1 and arguments.pruner not in (None, "NopPruner"):
        raise UserError(
            f"--pruner {arguments.pruner} with --together {arguments.together}: trials "
            "in one program end together; leave one of the two out"
        )
    numbers = ("trials", MAX_COUNT), ("processes", MAX_PROCESSES)
    for name, most in (*numbers, ("together", MAX_COUNT)):
        if not 1 <= getattr(arguments, name) <= most:
            raise UserError(
                f"--{name} {getattr(arguments, name)}: expected 1 to {most}"
            )
    train = arguments.overrides.train
    for name in ("stop_after_steps", "profile_steps"):
        if (value := getattr(train, name)) is not None:
            raise UserError(
                f"train.{name} = {value}: trials of a sweep are trained to their end, "
                "and not profiled; leave it out"
            )
