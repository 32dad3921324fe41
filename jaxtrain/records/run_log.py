"""Where the records of a run go: the screen, metrics.jsonl, TensorBoard, W&B."""

import contextlib
import importlib.util
import json
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np
from rich.table import Table
from rich.text import Text

from jaxtrain.config import LoggingConfig
from jaxtrain.console import Console, printable
from jaxtrain.errors import UserError
from jaxtrain.records.appended import Appended
from jaxtrain.records.metrics_file import keep_until, read_evaluations
from jaxtrain.records.screen import Screen
from jaxtrain.records.tensorboard import EventFile
from jaxtrain.records.workdir import METRICS, TENSORBOARD, finite
from jaxtrain.tasks.base import Task, Values
from jaxtrain.tasks.metrics import scalars

# Metrics of a step that are 0 or 1, and the names of their counts.
COUNTED = {"skipped": "skipped_steps", "spike": "loss_spikes"}
# The metric that is the axis of W&B's charts.
AXIS = "step"


class Writer(Protocol):
    """Takes one record: a `kind`, a step and values."""

    def write(self, kind: str, step: int, values: Values) -> None: ...

    def close(self) -> None: ...


def check(config: LoggingConfig) -> None:
    """Raise UserError if a writer that is asked for is not installed."""
    if not config.wandb_project:
        return
    # A folder of that name, as W&B itself makes where a run starts, has no origin.
    found = importlib.util.find_spec("wandb")
    if found is None or found.origin is None:
        raise UserError(
            f"logging.wandb_project = {config.wandb_project!r} needs the extra wandb: "
            "pip install -e '.[wandb]'"
        )


class RunLog:
    """Sends each record to all writers; on processes other than 0, to none.

    Args:
      workdir: folder of the run.
      config: what is written, and where.
      step: that the run goes on from.
      total_steps: of the run.
      epoch: returns the epochs that so many steps are.
      task: tells what is shown on the screen, and the pictures of an evaluation.
    """

    def __init__(
        self,
        workdir: Path,
        config: LoggingConfig,
        *,
        step: int,
        total_steps: int,
        epoch: Callable[[int], float],
        task: Task,
    ):
        self._epoch, self._metrics = epoch, workdir / METRICS
        self._writers: list[Writer] = []
        self._screen: Screen | None = None
        if jax.process_index() == 0:
            # It may fail: before others take the screen, or open files.
            if config.wandb_project:
                self._writers.append(_Wandb(workdir, config.wandb_project))
            self._writers.append(_Lines(workdir, step))
            if config.tensorboard:
                self._writers.append(_TensorBoard(workdir, step, task.pictures))
            self._screen = Screen(step, total_steps, epoch, ("loss", *task.shown))

    def write(self, kind: str, step: int, **values: Any) -> None:
        """Record values of `kind` train, eval or event at a step, and show them."""
        self.record(kind, step, **values)
        if self._screen is not None:
            self._screen.write(kind, step, values)

    def record(self, kind: str, step: int, **values: Any) -> None:
        """Do what `write` does, but for the screen, where it is told otherwise."""
        epoch = self._epoch(step)
        for writer in self._writers:
            writer.write(kind, step, {"epoch": epoch, **values})

    def done(self, step: int) -> None:
        """Show that the device has done so many steps; cheap, as each call does so."""
        if self._screen is not None:
            self._screen.done(step)

    def trained(self, loss: float | None) -> None:
        """Take the mean loss of the steps since the last evaluation, for its line."""
        if self._screen is not None:
            self._screen.trained(loss)

    def show_earlier(self) -> None:
        """Show the last evaluations of a run that goes on, where there is a bar."""
        if self._screen is not None:
            self._screen.earlier(lambda: read_evaluations(self._metrics))

    @contextlib.contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Show that the run does something else than training."""
        if self._screen is not None:
            self._screen.doing(what)
        yield
        if self._screen is not None:
            self._screen.doing(None)

    def close(self) -> None:
        for writer in self._writers:
            writer.close()
        if self._screen is not None:
            self._screen.close()


class Interval:
    """The metrics of the steps since the last line, left on the device until read."""

    def __init__(self, values: dict[str, list[float]] | None = None):
        self._values: dict[str, list[float]] = dict(values or {})
        # Steps of this process, without those that a checkpoint brought along.
        self.num_new = 0
        self._on_device: list[dict[str, jax.Array]] = []

    def add(self, metrics: dict[str, jax.Array]) -> None:
        """Take the metrics of one call, (steps,) each."""
        self._on_device.append(metrics)
        self.num_new += metrics["loss"].shape[0]

    def values(self) -> dict[str, list[float]]:
        """Return one value a step, waiting for those that are not computed yet."""
        for metrics in jax.device_get(self._on_device):
            for name, values in metrics.items():
                self._values.setdefault(name, []).extend(map(float, values))
        self._on_device = []
        return self._values

    def losses(self) -> tuple[float, int]:
        """Return the sum of the losses of the steps that were taken, and their number.

        Losses that are not finite do not count.
        """
        values = self.values()
        losses = np.asarray(values.get("loss", []), np.float64)
        taken = np.asarray(values.get("skipped", []), np.float64) == 0
        losses = losses[taken & np.isfinite(losses)]
        return float(losses.sum()), losses.size

    def summary(self) -> dict[str, float]:
        """Return the means, the last of what is set, and counts of steps.

        Skipped steps do not enter the means.
        """
        values = {name: np.asarray(v) for name, v in self.values().items()}
        taken = values["skipped"] == 0
        result = {}
        for name, array in values.items():
            if name in ("learning_rate", "loss_scale"):
                result[name] = float(array[-1])
            elif name in COUNTED:
                result[COUNTED[name]] = int(array.sum())
            elif name not in ("bad_steps", "loss_limit"):
                result[name] = (
                    float(array[taken].mean()) if taken.any() else float("nan")
                )
        return result


def show_table(title: str, rows: dict[str, Any]) -> None:
    """Print a table of names and values."""
    if jax.process_index() == 0:
        table = Table(title=title, title_justify="left", show_header=False)
        for name, value in rows.items():
            # Names of classes may look like rich's markup: a Text has none.
            table.add_row(Text(printable(name)), Text(printable(str(value))))
        Console().print(table)


class _Lines:
    """metrics.jsonl, one JSON object a line; of an evaluation the plain numbers."""

    def __init__(self, workdir: Path, step: int):
        path = workdir / METRICS
        if path.exists():
            keep_until(path, step)
        self._file = Appended(path)

    def write(self, kind: str, step: int, values: Values) -> None:
        values = scalars(values) if kind == "eval" else values
        record = {"kind": kind, "step": step, "time": time.time(), **finite(values)}
        self._file.write((json.dumps(record, allow_nan=False) + "\n").encode())

    def close(self) -> None:
        self._file.close()


class _TensorBoard:
    def __init__(
        self,
        workdir: Path,
        step: int,
        pictures: Callable[[Values], dict[str, np.ndarray]],
    ):
        self._file = EventFile(workdir / TENSORBOARD, purge_step=step + 1)
        self._pictures = pictures

    def write(self, kind: str, step: int, values: Values) -> None:
        self._file.add(step, _scalars(kind, values))
        if kind == "eval":
            for name, picture in self._pictures(values).items():
                self._file.add_picture(step, f"{values['split']}/{name}", picture)

    def close(self) -> None:
        self._file.close()


def _scalars(kind: str, values: Values) -> dict[str, float]:
    """Name the numbers by the split that they are of, such as `test/loss`."""
    scope = values.get("split", kind)
    return {
        f"{scope}/{name}": value
        for name, value in values.items()
        if isinstance(value, int | float)
    }


class _Wandb:
    """A run of W&B, whose charts have our step as their axis.

    W&B's own step, which counts its records, may only rise: it drops a record of an
    earlier one, as after a rewind or a kill.
    """

    def __init__(self, workdir: Path, project: str):
        import wandb  # pyright: ignore[reportMissingImports]

        # Kept in the workdir, so that the same run goes on, and a fresh one does not.
        id_file = workdir / "wandb_id"
        if not id_file.exists():
            id_file.write_text(secrets.token_hex(4))
        try:
            self._run = wandb.init(
                project=project,
                name=workdir.name,
                id=id_file.read_text(),
                dir=workdir,
                resume="allow",
            )
            self._run.define_metric(AXIS)
            self._run.define_metric("*", step_metric=AXIS)
        except Exception as error:  # Of many kinds, such as that nobody is logged in.
            raise UserError(
                f"logging.wandb_project = {project!r}: W&B does not start ({error}): "
                "see `wandb login`, set WANDB_MODE=offline, or leave the field out"
            ) from error

    def write(self, kind: str, step: int, values: Values) -> None:
        self._run.log({AXIS: step, **_scalars(kind, values)})

    def close(self) -> None:
        self._run.finish()
