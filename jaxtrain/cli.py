"""The command line: `main.py [COMMAND] --config FILE [--section.field VALUE ...]`.

Every way a run can end has its exit code here (see `main`).
"""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import tyro

from jaxtrain import config as config_lib
from jaxtrain.config import Config, Preset, recipe
from jaxtrain.console import tell
from jaxtrain.errors import (
    START_AGAIN,
    BadNumbersError,
    CheckpointError,
    Interrupted,
    StartAgainError,
    UserError,
    nearest,
)
from jaxtrain.processes import peers
from jaxtrain.processes.signals import StopSignals


@dataclass(frozen=True, kw_only=True)
class TrainArguments:
    """Train a model, or go on where the workdir stopped."""

    # The recipe: a Python file that defines get_config() -> Config.
    config: Path
    # Folder of the run; None: runs/<name of the config>.
    workdir: Path | None = None
    # Move an old run in the workdir aside and start anew.
    fresh: bool = False
    # Go back to the checkpoint of this step; newer ones are moved aside.
    resume_step: int | None = None
    # With --resume-step: leave out the data of so many steps from there on.
    skip_steps: int = 0
    # What to run on; auto: what JAX finds, but never the CPU of a machine with a GPU.
    platform: Literal["auto", "cpu", "gpu", "tpu"] = "auto"
    # HOST:PORT of process 0, where several processes meet; None: SLURM, Open MPI and
    # Kubernetes are asked.
    coordinator: str | None = None
    # Processes in all, with --coordinator.
    num_processes: int | None = None
    # Number of this process, from 0, with --coordinator.
    process_id: int | None = None
    # Seconds to wait for the other processes at the start.
    init_timeout: float = 300.0
    overrides: Annotated[Config, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff]


@dataclass(frozen=True, kw_only=True)
class ScaleArguments:
    """Measure how the training step scales with the number of devices."""

    # The recipe: a Python file that defines get_config() -> Config.
    config: Path
    # Numbers of devices, such as 1,2,4,8. Without GPUs they are simulated on the CPU.
    devices: str
    # weak: data.batch_size is that of one device; strong: that of all.
    mode: Literal["weak", "strong"] = "weak"
    # Replaces parallel.preset; None: as the config says.
    preset: Preset | None = None
    # Compile the step and do not run it: bytes and collectives, no times.
    compile_only: bool = False
    # Folder of scaling.json and scaling.png; None: runs/<name of the config>.
    out: Path | None = None
    # What to run on; auto: GPUs if there are any, else simulated devices.
    platform: Literal["auto", "cpu", "gpu"] = "auto"
    overrides: Annotated[Config, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff]


@dataclass(frozen=True, kw_only=True)
class DataArguments:
    """Prepare a data set of TensorFlow Datasets for training without TensorFlow."""

    # The data set, such as tfds:mnist.
    prepare: str
    # Folder with files that TFDS cannot, or need not, download.
    manual_dir: Path | None = None
    # Where to put the data set; None: $TFDS_DATA_DIR, else ~/tensorflow_datasets.
    data_dir: Path | None = None


@dataclass(frozen=True, kw_only=True)
class CheckpointArguments:
    """Show the checkpoints of a run, or read all of them and compare the digests."""

    # Folder of the run.
    workdir: Path
    # Show steps, sizes and metrics.
    list: bool = False
    # Show them, and whether what they hold is what was saved.
    verify: bool = False


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    0: done; 2: the input is wrong; 5: the numbers went bad; 128 + the signal's number:
    stopped, and saved; 1: a checkpoint could not be written or read; 75: start again,
    as the run hung or lost a process. An exception is a bug. Several processes end
    together, with the code of the one that failed.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    with StopSignals() as signals:
        try:
            code, message = _carry_out(words, signals)
        except Interrupted as error:
            code, message = 128 + error.signum, error
        signals.defer = True
        if code:
            _fail(code, message)
        return code


def _carry_out(words: list[str], signals: StopSignals) -> tuple[int, object]:
    """Run a command; return its exit code and, if that is not 0, why."""
    try:
        name = words.pop(0) if words and not words[0].startswith("-") else "train"
        if name not in COMMANDS:
            meant = nearest(name, COMMANDS, "; did you mean {!r}?")
            known = ", ".join(COMMANDS)
            raise UserError(f"unknown command {name!r}: there is {known}{meant}")
        COMMANDS[name].run(words, signals)
        return 0, None
    except UserError as error:
        return 2, error
    except BadNumbersError as error:
        return 5, error
    except CheckpointError as error:
        _ask_others()
        return 1, error
    except StartAgainError as error:
        return START_AGAIN, error
    except Exception as error:
        if peers.current() is None:
            raise
        _ask_others()
        traceback.print_exc()
        return 1, f"{type(error).__name__}: {error}"


def _train(words: list[str], signals: StopSignals) -> None:
    arguments = parse_train(words)
    _check_rewind(arguments)
    # JAX takes a second to import: not before parsing.
    from jaxtrain.checkpoints.orbax import newest_step
    from jaxtrain.parallel import devices
    from jaxtrain.processes import distributed, faults
    from jaxtrain.records.workdir import CHECKPOINTS, follow
    from jaxtrain.train import train

    workdir = follow(arguments.workdir or Path("runs") / arguments.config.stem)
    grace_seconds = arguments.overrides.checkpoint.grace_seconds
    signals.grace.limit(grace_seconds, lambda: newest_step(workdir / CHECKPOINTS))
    planned = faults.parse(os.environ.get(faults.VARIABLE, ""))
    parallel = arguments.overrides.parallel
    processes = distributed.find(
        arguments.coordinator, arguments.num_processes, arguments.process_id
    )
    timeouts = distributed.Timeouts(
        start=arguments.init_timeout,
        heartbeat=parallel.heartbeat_seconds,
        shutdown=parallel.shutdown_seconds,
    )
    devices.start(
        arguments.platform,
        flags=parallel.xla_flags,
        processes=processes,
        timeouts=timeouts,
    )
    train(
        arguments.overrides,
        workdir,
        fresh=arguments.fresh,
        resume_step=arguments.resume_step,
        skip_steps=arguments.skip_steps,
        hooks=planned,
        signals=signals,
    )


def _check_rewind(arguments: TrainArguments) -> None:
    if not 0 <= arguments.skip_steps <= config_lib.MAX_COUNT:
        raise UserError(
            f"--skip-steps {arguments.skip_steps}: expected 0 or more, at most "
            f"{config_lib.MAX_COUNT}"
        )
    if arguments.skip_steps and arguments.resume_step is None:
        raise UserError(
            f"--skip-steps {arguments.skip_steps} has no effect without --resume-step"
        )
    if arguments.resume_step is not None and arguments.fresh:
        raise UserError(
            f"--resume-step {arguments.resume_step} with --fresh, which starts anew: "
            "give one of them"
        )


def _data(words: list[str], signals: StopSignals) -> None:
    arguments = tyro.cli(DataArguments, args=words, prog="main.py data")
    from jaxtrain.data.tfds_prepare import prepare

    path = prepare(
        arguments.prepare,
        data_dir=arguments.data_dir,
        manual_dir=arguments.manual_dir,
    )
    print(f"{arguments.prepare} is prepared in {path}")


def _checkpoint(words: list[str], signals: StopSignals) -> None:
    arguments = tyro.cli(CheckpointArguments, args=words, prog="main.py checkpoint")
    from jaxtrain.commands.checkpoint import show_checkpoints
    from jaxtrain.parallel import devices

    if arguments.list == arguments.verify:
        raise UserError("give one of --list and --verify")
    devices.start("cpu")
    show_checkpoints(arguments.workdir, verify=arguments.verify)


def _scale(words: list[str], signals: StopSignals) -> None:
    arguments = recipe.parse(ScaleArguments, words, prog="main.py scale")
    from jaxtrain.performance import scale

    counts = scale.parse_counts(arguments.devices)
    config = arguments.overrides
    if arguments.preset is not None:
        config = config_lib.replace(config, "parallel.preset", arguments.preset)
    out = arguments.out or Path("runs") / arguments.config.stem
    scale.make_folder(out)
    result, measured = scale.scale(
        config,
        counts,
        arguments.mode,
        arguments.platform,
        timed=not arguments.compile_only,
    )
    scale.write(out, {"config": arguments.config.stem, **result}, measured)


class Command(NamedTuple):
    """A row of the table of commands; its meaning is the docstring of its arguments."""

    run: Callable[[list[str], StopSignals], None]
    arguments: type


COMMANDS = {
    "train": Command(_train, TrainArguments),
    "scale": Command(_scale, ScaleArguments),
    "data": Command(_data, DataArguments),
    "checkpoint": Command(_checkpoint, CheckpointArguments),
}


def parse_train(words: list[str]) -> TrainArguments:
    """Read the options of `train`, its config file and the overrides."""
    meanings = {name: command.arguments.__doc__ for name, command in COMMANDS.items()}
    description = (
        f"{meanings['train']}\n\n"
        "Commands (without one: train), whose options main.py COMMAND --help shows:"
        + "".join(f"\n  {name:<12}{meaning}" for name, meaning in meanings.items())
    )
    return recipe.parse(TrainArguments, words, prog="main.py", description=description)


def _ask_others() -> None:
    """End as another process did, if that is where an error comes from."""
    others = peers.current()
    if others is not None:
        others.explain()


def _fail(code: int, message: object) -> None:
    """Tell why the command failed; the other processes then end, too."""
    prefix = "error" if code < 128 else "stopped"
    tell(f"{prefix}: {message}")
    others = peers.current()
    # Where all have stopped, all come to JAX's farewell at the end of Python.
    if others is not None and code - 128 != others.stopped:
        others.leave(code, str(message))
