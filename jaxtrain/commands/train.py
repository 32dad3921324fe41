"""`main.py train`, and `main.py` without a command."""

import contextlib
import functools
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from jaxtrain import starting
from jaxtrain.config import Config
from jaxtrain.config.command_options import platform_option
from jaxtrain.config.metadata import field
from jaxtrain.config.recipe import default_folder
from jaxtrain.errors import UserError
from jaxtrain.problems import Problem
from jaxtrain.processes import collector
from jaxtrain.processes.signals import StopSignals

EXAMPLE = "--config configs/digits.py --optimizer.learning-rate 0.05"

if TYPE_CHECKING:
    from jaxtrain.trainer.callback import Callbacks

# Environment variables of SLURM and Open MPI with the rank of this process.
RANKS = ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK")


@dataclass(frozen=True, kw_only=True)
class TrainArguments:
    """Train a model, or resume the run in the workdir."""

    config: Path = field(
        help="The recipe: a name, such as digits, a file that defines get_config() -> "
        "Config, or the config.json of a run. Defaults to the config.json in "
        "--workdir.",
    )
    workdir: Path | None = field(
        None,
        help="Directory of the run; None: runs/<name of the config>, or the directory "
        "of config.json.",
    )
    fresh: bool = field(
        False,
        help="Move an existing run aside, and start a new run.",
    )
    resume_step: int | None = field(
        None,
        help="Resume from this step, and move newer checkpoints aside.",
    )
    profile: bool = field(
        False,
        help="Profile ten steps after ten warm-up steps, and report times per layer.",
    )
    platform: Literal["auto", "cpu", "gpu", "tpu"] = platform_option()
    coordinator: str | None = field(
        None,
        help="HOST:PORT at which process 0 listens; None: detect SLURM, Open MPI and "
        "Kubernetes.",
        rare=True,
    )
    num_processes: int | None = field(
        None,
        help="With --coordinator: number of processes.",
        rare=True,
    )
    process_id: int | None = field(
        None,
        help="With --coordinator: index of this process, from 0.",
        rare=True,
    )
    init_timeout: float = field(
        300.0,
        help="Seconds to wait at the start until all processes have connected.",
        rare=True,
    )
    heartbeat_timeout: float = field(
        30.0,
        help="Seconds without a heartbeat of a process, after which the other "
        "processes exit.",
        rare=True,
    )
    trust: bool = field(
        False,
        help="Run the custom code of model.pretrained or of the training method: its "
        "files are first shown and compared with the recorded digests.",
    )
    overrides: Annotated[Config, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff]


def run(arguments: TrainArguments, signals: StopSignals) -> None:
    """Initialize devices and processes, and train."""
    began = time.perf_counter()
    _check_resume_step(arguments)
    with contextlib.ExitStack() as shown:
        if _is_first_process(arguments):
            shown.enter_context(starting.showing("loading JAX"))
        with collector.held_back():
            from jaxtrain.trainer.train import train
        workdir, callbacks = _start(arguments, signals)
        train(
            arguments.overrides,
            workdir,
            fresh=arguments.fresh,
            resume_step=arguments.resume_step,
            callbacks=[callbacks],
            signals=signals,
            began=began,
        )


def problems(arguments: TrainArguments) -> list[Problem]:
    """Return the problems that the run would report; [] if it has several processes."""
    from jaxtrain.processes import distributed
    from jaxtrain.tools.start_problems import start_problems

    ids = arguments.coordinator, arguments.num_processes, arguments.process_id
    if distributed.find(*ids) is not None:
        return []
    return start_problems(arguments.overrides, arguments.platform)


def _start(arguments: TrainArguments, signals: StopSignals) -> "tuple[Path, Callbacks]":
    """Initialize devices and processes; return the workdir and the callbacks."""
    import jax

    from jaxtrain.checkpoints import CHECKPOINTS
    from jaxtrain.checkpoints.folder import newest_step
    from jaxtrain.parallel import devices
    from jaxtrain.processes import distributed
    from jaxtrain.records.workdir import resolve_link
    from jaxtrain.trainer.callback import make_callbacks
    from jaxtrain.weights.trust import trust_recipe

    workdir = resolve_link(arguments.workdir or default_folder(arguments.config))
    grace_seconds = arguments.overrides.checkpoint.grace_seconds
    signals.grace.limit(grace_seconds, lambda: newest_step(workdir / CHECKPOINTS))
    parallel = arguments.overrides.parallel
    processes = distributed.find(
        arguments.coordinator, arguments.num_processes, arguments.process_id
    )
    connect = functools.partial(
        distributed.start,
        processes,
        arguments.init_timeout,
        arguments.heartbeat_timeout,
    )
    callbacks = make_callbacks(arguments.overrides, profile=arguments.profile)
    devices.start(
        arguments.platform,
        flags=parallel.xla_flags,
        profiles=callbacks.profiles,
        cpus=parallel.cpu_devices,
        connect=connect,
    )
    if jax.process_index() != 0:
        starting.end()
    if arguments.trust:
        trust_recipe(arguments.config, arguments.overrides)
    return workdir, callbacks


def _is_first_process(arguments: TrainArguments) -> bool:
    """Whether this is process 0, according to --process-id and the launcher."""
    ranks = (os.environ.get(name, "0") for name in RANKS)
    return arguments.process_id in (None, 0) and all(rank == "0" for rank in ranks)


def _check_resume_step(arguments: TrainArguments) -> None:
    if arguments.resume_step is not None and arguments.fresh:
        raise UserError(
            f"--resume-step {arguments.resume_step} with --fresh, which starts a new "
            "run: give only one of the two options"
        )
