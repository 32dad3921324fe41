"""What the checkpoints of a run hold, and whether it is what was saved."""

import contextlib
from datetime import datetime
from pathlib import Path

from jaxtrain.checkpoints.quarantine import DAMAGED
from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.config import CheckpointConfig
from jaxtrain.errors import CheckpointError, DamagedError, UserError
from jaxtrain.records.workdir import CHECKPOINTS


def show_checkpoints(workdir: Path, *, verify: bool) -> None:
    """Print a line for each checkpoint: step, size, time, metrics, and if it is good.

    Nothing is changed, so that this may be done while the run goes on.

    Args:
      workdir: of the run.
      verify: read the arrays, and compare each with its digest.

    Raises:
      UserError: there are no checkpoints.
      CheckpointError: some are damaged.
    """
    folder = workdir / CHECKPOINTS
    if not folder.is_dir():
        raise UserError(f"--workdir {workdir}: holds no folder {CHECKPOINTS}")
    damaged = []
    saved = Checkpoints(folder, CheckpointConfig(), read_only=True)
    with contextlib.closing(saved):
        for step in saved.steps():
            try:
                info = saved.verify(step) if verify else saved.info(step)
                metrics = info["metrics"] or {}
                state = "good" if verify else ""
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
    size = sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    time = datetime.fromtimestamp(path.stat().st_mtime)
    shown = ", ".join(
        f"{name} {value:.4f}"
        for name, value in metrics.items()
        if isinstance(value, float)
    )
    parts = [f"{path.name:>14}", f"{size / 1e6:9.2f} MB", f"{time:%Y-%m-%d %H:%M}"]
    return "  ".join(part for part in [*parts, shown, state] if part)
