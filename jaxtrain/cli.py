"""The command line: `main.py [COMMAND] --config FILE [--section.field VALUE ...]`.

Every way a run can end has its exit code here (see `main`).
"""

import dataclasses
import re
import runpy
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import tyro

from jaxtrain import config as config_lib
from jaxtrain.config import Config, Preset
from jaxtrain.errors import (
    BadNumbersError,
    CheckpointError,
    Interrupted,
    UserError,
    nearest,
)
from jaxtrain.parallel import peers


@dataclass(frozen=True, kw_only=True)
class TrainArguments:
    """Train a model, or go on where the workdir stopped."""

    # The recipe: a Python file that defines get_config() -> Config.
    config: Path
    # Folder of the run; None: runs/<name of the config>.
    workdir: Path | None = None
    # Move an old run in the workdir aside and start anew.
    fresh: bool = False
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


Arguments = TypeVar("Arguments", TrainArguments, ScaleArguments)


@dataclass(frozen=True, kw_only=True)
class DataArguments:
    """Prepare a data set of TensorFlow Datasets for training without TensorFlow."""

    # The data set, such as tfds:mnist.
    prepare: str
    # Folder with files that TFDS cannot, or need not, download.
    manual_dir: Path | None = None
    # Where to put the data set; None: $TFDS_DATA_DIR, else ~/tensorflow_datasets.
    data_dir: Path | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    0: done; 2: the input is wrong; 5: the numbers went bad; 128 + the signal's number:
    stopped, and saved; 1: a checkpoint could not be written or read. An exception is a
    bug. Several processes end together, with the code of the one that failed; 75: one
    of them was lost.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        name = words.pop(0) if words and not words[0].startswith("-") else "train"
        if name not in COMMANDS:
            raise UserError(f"unknown command {name!r}: {_hint(name, list(COMMANDS))}")
        COMMANDS[name](words)
        return 0
    except UserError as error:
        return _fail(2, error)
    except BadNumbersError as error:
        return _fail(5, error)
    except CheckpointError as error:
        return _fail(1, error)
    except Interrupted as error:
        return _fail(128 + error.signum, error)
    except KeyboardInterrupt:
        return _fail(130, "interrupted before the run began; nothing to save")
    except Exception as error:
        if peers.current() is None:
            raise
        traceback.print_exc()
        return _fail(1, f"{type(error).__name__}: {error}")


def _train(words: list[str]) -> None:
    arguments = parse_train(words)
    from jaxtrain import devices  # JAX takes a second to import: not before parsing.
    from jaxtrain.parallel import distributed
    from jaxtrain.train import train

    devices.start(
        arguments.platform,
        flags=arguments.overrides.parallel.xla_flags,
        processes=distributed.find(
            arguments.coordinator, arguments.num_processes, arguments.process_id
        ),
        timeout=arguments.init_timeout,
    )
    workdir = arguments.workdir or Path("runs") / arguments.config.stem
    train(arguments.overrides, workdir, fresh=arguments.fresh)


def _data(words: list[str]) -> None:
    arguments = tyro.cli(DataArguments, args=words, prog="main.py data")
    from jaxtrain.data.prepare import prepare

    path = prepare(
        arguments.prepare,
        data_dir=arguments.data_dir,
        manual_dir=arguments.manual_dir,
    )
    print(f"{arguments.prepare} is prepared in {path}")


def _scale(words: list[str]) -> None:
    arguments = _parse(ScaleArguments, words, prog="main.py scale")
    from jaxtrain import scale

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


COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "train": _train,
    "scale": _scale,
    "data": _data,
}


def parse_train(words: list[str]) -> TrainArguments:
    """Read the options of `train`, its config file and the overrides."""
    return _parse(TrainArguments, words, prog="main.py")


def _parse(kind: type[Arguments], words: list[str], *, prog: str) -> Arguments:
    """Read the config file and apply the overrides of the command line.

    `--config.section.field=VALUE`, as with ml_collections, means
    `--section.field=VALUE`.
    """
    words = [re.sub(r"^--config\.", "--", word) for word in words]
    path = _config_path(words)
    # Help without --config shows the defaults of the fields.
    config = Config() if path is None else load_config(path)
    config = _clear_replaced(config, words)
    fields = dataclasses.fields(kind)
    values = {f.name: tyro.MISSING for f in fields if f.default is dataclasses.MISSING}
    values |= {"config": path or tyro.MISSING, "overrides": config}
    return tyro.cli(kind, args=words, default=kind(**values), prog=prog)


def load_config(path: Path) -> Config:
    """Run a config file and return what its `get_config()` makes.

    Raises:
      UserError: the file is missing, has no `get_config`, raises, or returns something
        else.
    """
    if not path.is_file():
        known = sorted(str(p) for p in path.parent.glob("*.py"))
        raise UserError(f"--config {path}: no such file; {_hint(str(path), known)}")
    try:
        get_config = runpy.run_path(str(path)).get("get_config")
        if not callable(get_config):
            raise UserError(f"{path} does not define get_config()")
        config = get_config()
    except UserError as error:
        raise UserError(f"{path}{_line(error, path)}: {error}") from None
    except Exception as error:
        message = f"{path}{_line(error, path)}: {type(error).__name__}: {error}"
        raise UserError(message + _suggest_field(error)) from error
    if not isinstance(config, Config):
        raise UserError(
            f"{path}: get_config() returned {type(config).__name__}, expected "
            "jaxtrain.config.Config"
        )
    return config


def _config_path(words: list[str]) -> Path | None:
    for i, word in enumerate(words):
        if word.startswith("--config="):
            return Path(word.removeprefix("--config="))
        if word == "--config" and i + 1 < len(words):
            return Path(words[i + 1])
    return None


def _clear_replaced(config: Config, words: list[str]) -> Config:
    """Unset what an override replaces: `--train.steps` the file's `train.epochs`."""
    given = {w.split("=")[0].removeprefix("--").replace("-", "_") for w in words}
    for group in config_lib.ONE_OF:
        if given & set(group):
            old = {path: config_lib.get(config, path) for path in group}
            named = [path for path, value in old.items() if value is not None]
            for path in set(named) - given:
                replacement = next(iter(given & set(group)))
                config = _swap(config, path, replacement)
    return config


def _swap(config: Config, old: str, new: str) -> Config:
    """Unset `old` and set `new` to a placeholder: the override follows at once."""
    section, name = old.split(".")
    values = {name: None, new.split(".")[1]: 1}
    changed = dataclasses.replace(getattr(config, section), **values)
    return dataclasses.replace(config, **{section: changed})


def _line(error: BaseException, path: Path) -> str:
    """Return `:LINE` of the config file that an error came from."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if f.filename == str(path)]
    if isinstance(error, SyntaxError):
        lines = [error.lineno]
    return f":{lines[-1]}" if lines else ""


def _suggest_field(error: Exception) -> str:
    """Name the field that a misspelt one in a config file was meant to be."""
    match = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if not match:
        return ""
    known = sorted({name for path in config_lib.paths() for name in path.split(".")})
    return "; " + _hint(match[1], known)


def _hint(name: str, known: list[str]) -> str:
    there_is = f"there is {', '.join(known) or 'none'}"
    return nearest(name, known, "did you mean {!r}?") or there_is


def _fail(code: int, message: object) -> int:
    prefix = "error" if code < 128 else "stopped"
    print(f"{prefix}: {message}", file=sys.stderr)
    others = peers.current()
    # At a stop that all agreed on, all come to JAX's farewell at the end of Python.
    if others is not None and code - 128 != others.agreed:
        others.leave(code, str(message))
    return code
