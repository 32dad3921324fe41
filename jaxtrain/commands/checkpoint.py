"""`main.py checkpoint`."""

import contextlib
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from jaxtrain.config import CheckpointConfig
from jaxtrain.console import printable
from jaxtrain.errors import CheckpointError, DamagedError, UserError, counted
from jaxtrain.processes.signals import StopSignals

EXAMPLE = "--verify --workdir runs/digits"


@dataclass(frozen=True, kw_only=True)
class CheckpointArguments:
    """Show the checkpoints of a run, or read all of them and compare the digests."""

    # Folder of the run; with --verify also that of an exported model.
    workdir: Path
    # Show steps, sizes and metrics.
    list: bool = False
    # Show whether they, and the files beside them, hold what was saved.
    verify: bool = False


def run(arguments: CheckpointArguments, signals: StopSignals) -> None:
    """Print a line for each checkpoint: step, size, time, metrics, and if it is good.

    With --verify there is one for each JSON file, too. Nothing is changed, so that this
    may be done while the run goes on.
    """
    workdir, verify = arguments.workdir, arguments.verify
    if arguments.list == verify:
        raise UserError("give one of --list and --verify")
    from jaxtrain.config.recipe import is_run
    from jaxtrain.inference.verify import verify_json, verify_model
    from jaxtrain.parallel import devices

    devices.start("cpu")
    if verify and workdir.is_dir() and not is_run(workdir):
        _show_files(workdir, verify_model(workdir))
        return
    damaged, folder = _show_steps(workdir, verify)
    if verify:
        _show_files(workdir, verify_json(workdir))
    if damaged:
        raise CheckpointError(
            f"{counted(len(damaged), 'damaged checkpoint')} in {folder} "
            f"({', '.join(map(str, damaged))}); resuming puts them aside and goes on "
            "from the newest good one"
        )


def _show_steps(workdir: Path, verify: bool) -> tuple[list[int], Path]:
    """Print the lines of the checkpoints; return the damaged ones, and their folder."""
    from jaxtrain.checkpoints.folder import DAMAGED
    from jaxtrain.checkpoints.store import Checkpoints
    from jaxtrain.records.workdir import CHECKPOINTS

    folder = workdir / CHECKPOINTS
    if not folder.is_dir():
        raise UserError(f"--workdir {workdir}: holds no folder {CHECKPOINTS}")
    damaged = []
    saved = Checkpoints(folder, CheckpointConfig(), read_only=True)
    with contextlib.closing(saved):
        for step in saved.steps():
            try:
                info = saved.verify(step) if verify else saved.info(step)
                metrics, state = info["metrics"] or {}, "good" if verify else ""
            except DamagedError as error:
                damaged.append(step)
                metrics, state = {}, f"DAMAGED: {error}"
            _show(folder / str(step), metrics, state)
    for path in sorted(folder.glob(f"{DAMAGED}-*")):
        _show(path, {}, "put aside as damaged")
    return damaged, folder


def _show_files(folder: Path, states: dict[str, str]) -> None:
    """Print the line of each file; raise CheckpointError if some are damaged."""
    from jaxtrain.inference.verify import GOOD, UNKNOWN

    damaged = [name for name, told in states.items() if told not in (GOOD, UNKNOWN)]
    for name, told in states.items():
        print(printable(f"{name:>17}  {'DAMAGED: ' * (name in damaged)}{told}"))
    if damaged:
        raise CheckpointError(
            f"{counted(len(damaged), 'damaged file')} in {folder}: {', '.join(damaged)}"
        )


def _show(path: Path, metrics: dict[str, float], state: str) -> None:
    """Print a checkpoint in one line."""
    size = sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    time = datetime.fromtimestamp(path.stat().st_mtime)
    numbers = {n: value for n, value in metrics.items() if isinstance(value, float)}
    shown = ", ".join(f"{name} {value:.4f}" for name, value in numbers.items())
    parts = [f"{path.name:>14}", f"{size / 1e6:9.2f} MB", f"{time:%Y-%m-%d %H:%M}"]
    print(printable("  ".join(part for part in [*parts, shown, state] if part)))
