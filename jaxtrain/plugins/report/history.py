"""Recorded files of a run, such as metrics.jsonl and summary.json."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from jaxtrain import config as config_lib
from jaxtrain.checkpoints import CHECKPOINTS, manifest
from jaxtrain.checkpoints.folder import committed_steps
from jaxtrain.config import Config
from jaxtrain.config.recipe import is_run
from jaxtrain.errors import CheckpointError, OtherRunError, UserError, counted
from jaxtrain.json_files.run_id import RunId, read_of_run
from jaxtrain.plugins.profiler.step_profile import PROFILE, StepProfile, read_profile
from jaxtrain.plugins.report.pages.charts import Point
from jaxtrain.records.metrics_file import parse_line
from jaxtrain.records.workdir import CONFIG, DATA, METRICS, SUMMARY
from jaxtrain.regular_file import MAX_TABLE_BYTES, read_text
from jaxtrain.training.sparsity import ModelSparsity
from jaxtrain.weights import spec
from jaxtrain.weights.description import MODEL

T = TypeVar("T")

# Keys in a line of metrics.jsonl that are not names of metrics.
PLACE = {"kind", "step", "epoch", "time", "split", "event", "num_examples"}
PLACE |= {"model_step", "wall_seconds"}

# Counters that are plotted only if they are ever above 0.
COUNTS = ("skipped_steps", "loss_spikes", "bad_steps")

# Metric -> split -> points (step, value).
Curves = dict[str, dict[str, list[Point]]]


class SummaryFile(TypedDict, total=False):
    """Schema of `summary.json`; non-finite numbers are None."""

    step: int
    epoch: float
    eval: dict[str, Any]
    best: dict[str, Any] | None
    stopped_early: bool
    train_seconds: float
    wall_seconds: float
    seconds: dict[str, float]
    goodput: float | None
    compile_seconds: float
    examples_per_second: float | None
    num_params: int
    device_kind: str
    num_devices: int
    num_processes: int
    class_names: list[str] | None
    pipeline_idle_share: float
    sparsity: ModelSparsity | None
    versions: dict[str, str]


class DataFile(TypedDict, total=False):
    """Schema of `data.json`."""

    source: str
    num_examples: dict[str, int]
    num_classes: int | None
    class_names: list[str] | None
    digest: str | None


class ModelFile(TypedDict, total=False):
    """Schema of `model.json`."""

    image_shape: tuple[int, int, int]
    class_names: list[str] | None
    mean: list[float]
    std: list[float]


@dataclass(frozen=True, kw_only=True)
class History:
    """Contents of a run's files; empty or None for missing and damaged files.

    Attributes:
      workdir: Directory of the run.
      config: Config at the start of the run; None if it cannot be read.
      lines: Parsed lines of metrics.jsonl, in file order.
      summary: Values of summary.json, written at the end of the run.
      data: Values of data.json.
      model: Values of model.json.
      checkpoint: Manifest of the newest checkpoint, with the additional key `step`.
      profile: Time per operation in the profiled steps; None if no step was profiled.
      missing: Error messages for missing and unreadable files.
    """

    workdir: Path
    config: Config | None
    lines: Sequence[dict[str, Any]] = ()
    summary: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    checkpoint: dict[str, Any] = field(default_factory=dict)
    profile: StepProfile | None = None
    missing: Sequence[str] = ()

    @property
    def name(self) -> str:
        return self.workdir.resolve().name

    @property
    def step(self) -> int:
        """Last recorded step."""
        steps = [line["step"] for line in self.lines]
        return max([*steps, _number(self.summary.get("step"))], default=0)

    @property
    def finished(self) -> bool:
        """Whether there is a summary of the last recorded step."""
        return bool(self.summary) and _number(self.summary.get("step")) >= self.step

    @property
    def test(self) -> dict[str, Any]:
        """Metrics of the test split at the end of the run."""
        return _inner(self.summary, "eval")

    @property
    def test_numbers(self) -> dict[str, float]:
        """Scalar metrics of `test`."""
        return {
            name: value
            for name, value in self.test.items()
            if is_number(value) and name != "num_examples"
        }

    @property
    def tested_step(self) -> int:
        """Training step of the weights that were evaluated on the test split."""
        return _number(_inner(self.summary, "model").get("step")) or self.step

    @property
    def last_validation(self) -> dict[str, Any]:
        """Validation metrics of the final weights."""
        return _inner(_inner(self.summary, "last"), "validation")

    @property
    def best(self) -> dict[str, Any]:
        """Best evaluation so far, with the keys `step`, `metric` and `value`."""
        return _inner(self.summary if self.finished else self.progress, "best")

    @property
    def progress(self) -> dict[str, Any]:
        """Host-side state (`Progress`) saved with the newest checkpoint."""
        return _inner(self.checkpoint, "progress")

    @property
    def train_seconds(self) -> Any:
        """Training time of the run in seconds."""
        source = self.summary if self.finished else self.progress
        return source.get("train_seconds")

    @property
    def seconds(self) -> dict[str, Any]:
        """Wall-clock seconds by activity, such as evaluation (`trainer/clock.py`)."""
        source = self.summary if self.finished else self.progress
        return _inner(source, "seconds")

    @property
    def epochs(self) -> float | None:
        """Number of epochs up to the last line of metrics.jsonl."""
        epochs = [line["epoch"] for line in self.lines if "epoch" in line]
        return epochs[-1] if epochs else None

    @property
    def column_names(self) -> Sequence[str]:
        """Names of the predicted columns of a regression model."""
        return self.model.get("column_names") or ()

    @property
    def class_names(self) -> Sequence[str] | None:
        return self.model.get("class_names") or self.summary.get("class_names")

    def events(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["kind"] == "event"]

    def curves(self) -> Curves:
        """Points (step, value) of all metrics, by metric and split."""
        found: Curves = {}
        for line in self.lines:
            if line["kind"] not in ("train", "eval"):
                continue
            part = "train" if line["kind"] == "train" else str(line.get("split"))
            for name, value in line.items():
                if name not in PLACE and (value is None or is_number(value)):
                    points = found.setdefault(name, {}).setdefault(part, [])
                    # The final evaluation on the test split may use earlier weights.
                    step = _number(line.get("model_step")) or line["step"]
                    points.append((step, value))
        for name in COUNTS:
            if not any(y for points in found.get(name, {}).values() for _, y in points):
                found.pop(name, None)
        return found


def read_history(workdir: Path) -> History:
    """Read the files of a run; `History.missing` lists missing and damaged files.

    Raises:
      UserError: The directory is not the workdir of a run.
    """
    has_any = any((workdir / name).is_file() for name in (CONFIG, METRICS, SUMMARY))
    if not has_any or not is_run(workdir):
        found = spec.diagnose_path(workdir)
        what = found.what if found else "a model without a run"
        it_is = f"; it is {what}" if workdir.exists() else ""
        raise UserError(
            f"--workdir {workdir} is not the directory of a run: it contains neither "
            f"{CONFIG} nor {METRICS}{it_is}; {spec.RUN}"
        )
    missing: list[str] = []

    def attempt(path: Path, read: Callable[[], T], default: T, before: str = "") -> T:
        try:
            return read()
        except OtherRunError:
            raise
        except (CheckpointError, OSError, UserError) as error:
            reason = (isinstance(error, OSError) and error.strerror) or str(error)
            # Pages may be shared, so they must not contain local paths.
            reason = " ".join(reason.replace(str(path), path.name).split())
            missing.append(before + reason)
            return default

    def read_fields(name: str, kind: type[Any]) -> dict[str, Any]:
        path = workdir / name
        return attempt(path, lambda: dict(read_of_run(path, kind, run) or {}), {})

    path, checkpoints = workdir / CONFIG, workdir / CHECKPOINTS
    if not path.exists():
        missing.append(f"{CONFIG} does not exist")
    config = attempt(path, lambda: config_lib.read_config(path), None)
    # Files whose run ID differs from the ID in the config belong to another run.
    run = attempt(path, lambda: RunId.read(workdir), None) if config else None
    path = workdir / METRICS
    texts = attempt(
        path,
        lambda: read_text(path, MAX_TABLE_BYTES, errors="replace").splitlines(),
        [],
        f"{METRICS} cannot be read: ",
    )
    lines = list(_good_lines(texts))
    if len(lines) < len(texts):
        num_damaged = len(texts) - len(lines)
        missing.append(f"{counted(num_damaged, 'damaged line')} of {METRICS}")
    checkpoint = {}
    if steps := committed_steps(checkpoints):
        checkpoint = attempt(
            checkpoints,
            lambda: {**manifest.read(checkpoints, steps[-1], run), "step": steps[-1]},
            {},
            f"checkpoint {steps[-1]} cannot be read: ",
        )
    return History(
        workdir=workdir,
        config=config,
        lines=lines,
        summary=read_fields(SUMMARY, SummaryFile),
        data=read_fields(DATA, DataFile),
        model=read_fields(MODEL, ModelFile),
        checkpoint=checkpoint,
        profile=attempt(workdir / PROFILE, lambda: read_profile(workdir, run), None),
        missing=missing,
    )


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _good_lines(texts: Sequence[str]) -> Iterator[dict[str, Any]]:
    for text in texts:
        with contextlib.suppress(UserError):
            yield {**parse_line(text, METRICS)}


def _inner(values: dict[str, Any], name: str) -> dict[str, Any]:
    """Nested dict `values[name]`; {} if missing or not a dict."""
    value = values.get(name)
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> int:
    return value if type(value) is int else 0
