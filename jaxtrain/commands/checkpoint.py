"""`main.py checkpoint`."""

import contextlib
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from jaxtrain.config import CheckpointConfig
from jaxtrain.errors import CheckpointError, DamagedError, UserError
from jaxtrain.processes.signals import StopSignals

EXAMPLE = "--verify --workdir runs/digits"


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Show the checkpoints of a run, or read all of them and compare the digests."""

    # Folder of the run.
    workdir: Path
    # Show steps, sizes and metrics.
    list: bool = False
    # Show them, and whether what they hold is what was saved.
    verify: bool = False


def run(arguments: Arguments, signals: StopSignals) -> None:
    """Print a line for each checkpoint: step, size, time, metrics, and if it is good.

    Nothing is changed, so that this may be done while the run goes on.

    Raises:
      UserError: there are no checkpoints, or not one of --list and --verify is given.
      CheckpointError: some are damaged.
    """
    if arguments.list == arguments.verify:
        raise UserError("give one of --list and --verify")
    from jaxtrain.checkpoints.quarantine import DAMAGED
    from jaxtrain.checkpoints.store import Checkpoints
    from jaxtrain.parallel import devices
    from jaxtrain.records.workdir import CHECKPOINTS

    devices.start("cpu")
    folder = arguments.workdir / CHECKPOINTS
    if not folder.is_dir():
        raise UserError(f"--workdir {arguments.workdir}: holds no folder {CHECKPOINTS}")
    damaged = []
    saved = Checkpoints(folder, CheckpointConfig(), read_only=True)
    with contextlib.closing(saved):
        for step in saved.steps():
            try:
                info = saved.verify(step) if arguments.verify else saved.info(step)
                metrics = info["metrics"] or {}
                state = "good" if arguments.verify else ""
            except DamagedError as error:
                damaged.append(step)
                metrics, state = {}, f"DAMAGED: {error}"
            print(_line(folder / str(step), metrics, state))
    for path in sorted(folder.glob(f"{DAMAGED}-*")):
        print(_line(path, {}, "put aside as damaged"))
    if damaged:
        raise CheckpointError(
            f"{len(damaged)} checkpoint(s) in {folder} are damaged "
            f"({', '.join(map(str, damaged))}); resuming puts them aside and goes on "
            "from the newest good one"
        )


def _line(path: Path, metrics: dict[str, float], state: str) -> str:
    """Describe a checkpoint in one line."""
    size = sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    time = datetime.fromtimestamp(path.stat().st_mtime)
    shown = ", ".join(
        f"{name} {value:.4f}"
        for name, value in metrics.items()
        if isinstance(value, float)
    )
    parts = [f"{path.name:>14}", f"{size / 1e6:9.2f} MB", f"{time:%Y-%m-%d %H:%M}"]
    return "  ".join(part for part in [*parts, shown, state] if part)
