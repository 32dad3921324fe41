"""`main.py checkpoint`: list or verify the checkpoints of a run."""

import contextlib
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from jaxtrain.config import CheckpointConfig
from jaxtrain.config.metadata import field
from jaxtrain.config.recipe import CONFIG, WEIGHTS, is_run
from jaxtrain.console import printable, require_output
from jaxtrain.errors import CheckpointError, DamagedError, UserError, counted
from jaxtrain.json_files.read import RESTORE, has_digest, read_object
from jaxtrain.json_files.run_id import RunId
from jaxtrain.processes.signals import StopSignals

EXAMPLE = "--verify --workdir runs/digits"
GOOD = "good"
UNKNOWN = "has no digest: edited manually"


@dataclass(frozen=True, kw_only=True)
class CheckpointArguments:
    """List the checkpoints of a run; --verify reads them and verifies the digests."""

    workdir: Path = field(
        help="Directory of the run; with --verify, of a run or an exported model.",
    )
    list: bool = field(
        False,
        help="List the checkpoints with step, size, time and metrics.",
    )
    verify: bool = field(
        False,
        help="Verify the checkpoints and JSON files against their digests.",
    )


def run(arguments: CheckpointArguments, signals: StopSignals) -> None:
    """Print a line per checkpoint: step, size, time, metrics.

    With --verify, the lines include the result of the verification, and a line is
    printed for each JSON file. No file is changed, so the run may be active.

    Raises:
      OtherRunError: A checkpoint or a file belongs to another run.
      CheckpointError: A checkpoint or a file is damaged.
    """
    require_output()
    workdir, verify = arguments.workdir, arguments.verify
    if arguments.list == verify:
        raise UserError(
            "the command `checkpoint` requires one action: give either --list or "
            "--verify"
        )
    from jaxtrain.parallel import devices

    devices.start("cpu")
    if verify and workdir.is_dir() and not is_run(workdir):
        _show_files(workdir, _verify_model(workdir))
        return
    damaged, folder = _show_steps(workdir, verify)
    if verify:
        _show_files(workdir, _verify_json(workdir))
    if damaged:
        raise CheckpointError(
            f"{counted(len(damaged), 'damaged checkpoint')} in {folder} "
            f"({', '.join(map(str, damaged))}): resume the run, which moves damaged "
            "checkpoints aside and continues from the newest good checkpoint"
        )


def _show_steps(workdir: Path, verify: bool) -> tuple[list[int], Path]:
    """Print a line per checkpoint; return steps of damaged ones, and the directory."""
    from jaxtrain.checkpoints import CHECKPOINTS
    from jaxtrain.checkpoints.folder import DAMAGED, check_name
    from jaxtrain.checkpoints.store import Checkpoints

    folder = workdir / CHECKPOINTS
    if not folder.is_dir():
        raise UserError(
            f"--workdir {workdir}: the directory has no checkpoints ({CHECKPOINTS}/); "
            "give the directory of a run"
        )
    check_name(folder)
    damaged, run = [], RunId.read(workdir)
    saved = Checkpoints(folder, CheckpointConfig(), run=run, read_only=True)
    with contextlib.closing(saved):
        for step in saved.steps():
            try:
                info = saved.read(step)[1] if verify else saved.info(step)
                metrics, state = info["metrics"] or {}, GOOD if verify else ""
            except DamagedError as error:
                damaged.append(step)
                metrics, state = {}, f"DAMAGED: {error}"
            _show(folder / str(step), metrics, state)
    for path in sorted(folder.glob(f"{DAMAGED}-*")):
        _show(path, {}, "moved aside as damaged")
    return damaged, folder


def _verify_json(workdir: Path) -> dict[str, str]:
    """State of each JSON file of a run: `GOOD`, `UNKNOWN` or an error message."""
    from jaxtrain.inference.temperature import TEMPERATURE
    from jaxtrain.records import workdir as files
    from jaxtrain.weights.description import MODEL

    names = (CONFIG, files.DATA, files.OWN_PARTS, MODEL, files.SUMMARY)
    names += (TEMPERATURE, files.EVALUATION)
    present = [name for name in names if os.path.lexists(workdir / name)]
    states = {name: _verify_file(workdir / name) for name in present}
    run = RunId.read(workdir)
    for name in present:
        if states[name] in (GOOD, UNKNOWN):
            path = workdir / name
            run.check(read_object(path) or {}, str(path), RESTORE)
    return states


def _verify_model(folder: Path) -> dict[str, str]:
    """State of each file of a model: `GOOD`, `UNKNOWN` or an error message."""
    from jaxtrain import weights as weights_lib

    states = {CONFIG: _verify_file(folder / CONFIG)}
    weights = next((name for name in WEIGHTS if (folder / name).is_file()), WEIGHTS[0])
    try:
        trained = weights_lib.load(str(folder))
        trained.read()
        states[weights] = UNKNOWN if trained.origin is None else GOOD
    except UserError as error:
        states[weights] = str(error)
    return states


def _verify_file(path: Path) -> str:
    try:
        return GOOD if has_digest(path) else UNKNOWN
    except UserError as error:
        return str(error)


def _show_files(folder: Path, states: dict[str, str]) -> None:
    """Print the state of each file; raise CheckpointError if a file is damaged."""
    damaged = [name for name, state in states.items() if state not in (GOOD, UNKNOWN)]
    for name, state in states.items():
        print(printable(f"{name:>17}  {'DAMAGED: ' * (name in damaged)}{state}"))
    if damaged:
        raise CheckpointError(
            f"{counted(len(damaged), 'damaged file')} in {folder}: "
            f"{', '.join(damaged)}; restore the files from a copy"
        )


def _show(path: Path, metrics: dict[str, float], state: str) -> None:
    size = sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    time = datetime.fromtimestamp(path.lstat().st_mtime)
    numbers = {n: value for n, value in metrics.items() if isinstance(value, float)}
    shown = ", ".join(f"{name} {value:.4f}" for name, value in numbers.items())
    parts = [f"{path.name:>14}", f"{size / 1e6:9.2f} MB", f"{time:%Y-%m-%d %H:%M}"]
    print(printable("  ".join(part for part in [*parts, shown, state] if part)))
