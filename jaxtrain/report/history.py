"""What the folder of a run tells of it; what is missing is told, and no error."""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxtrain import config as config_lib
from jaxtrain.checkpoints import manifest
from jaxtrain.checkpoints.orbax import committed_steps
from jaxtrain.config import Config
from jaxtrain.errors import CheckpointError, UserError
from jaxtrain.inference.description import MODEL
from jaxtrain.pages.charts import Point
from jaxtrain.records.workdir import CHECKPOINTS, CONFIG, DATA, METRICS, SUMMARY

# Of a line of metrics.jsonl: what is no metric.
PLACE = {"kind", "step", "epoch", "time", "split", "event", "num_examples"}

# Metric -> train, validation or test -> points by step.
Curves = dict[str, dict[str, list[Point]]]


@dataclass(frozen=True, kw_only=True)
class History:
    """The records of a run.

    Attributes:
      workdir: its folder.
      config: as the run was started; None: there is none that this version reads.
      lines: of metrics.jsonl, in its order.
      summary: of its end; {}: it has not come to it, or not in this version's form.
      data: what it learnt from; {}: not known.
      model: what the model is; {}: not known.
      checkpoint: what was saved with the newest one; {}: there is none.
      missing: what could not be read, and why.
    """

    workdir: Path
    config: Config | None
    lines: Sequence[dict[str, Any]] = ()
    summary: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    checkpoint: dict[str, Any] = field(default_factory=dict)
    missing: Sequence[str] = ()

    @property
    def name(self) -> str:
        return self.workdir.resolve().name

    @property
    def step(self) -> int:
        """The last step that is told of."""
        steps = [line["step"] for line in self.lines]
        return max([*steps, _number(self.summary.get("step"))], default=0)

    @property
    def finished(self) -> bool:
        """Whether the summary is that of the last step."""
        return bool(self.summary) and _number(self.summary.get("step")) >= self.step

    @property
    def test(self) -> dict[str, Any]:
        """The metrics of the test split, at the end of the run."""
        values = self.summary.get("eval")
        return values if isinstance(values, dict) else {}

    @property
    def best(self) -> dict[str, Any]:
        """The best evaluation so far: its step, metric and value."""
        best = self.summary.get("best") if self.finished else self.progress.get("best")
        return best if isinstance(best, dict) else {}

    @property
    def progress(self) -> dict[str, Any]:
        """What the run remembered of itself at the newest checkpoint."""
        progress = self.checkpoint.get("progress")
        return progress if isinstance(progress, dict) else {}

    @property
    def class_names(self) -> Sequence[str] | None:
        """The names of the classes; None: there are none."""
        return self.model.get("class_names") or self.summary.get("class_names")

    def events(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["kind"] == "event"]

    def curves(self) -> Curves:
        """Return the points of all metrics by step."""
        found: Curves = {}
        for line in self.lines:
            if line["kind"] not in ("train", "eval"):
                continue
            part = "train" if line["kind"] == "train" else str(line.get("split"))
            for name, value in line.items():
                if name not in PLACE and _is_number_or_none(value):
                    points = found.setdefault(name, {}).setdefault(part, [])
                    points.append((line["step"], value))
        return found


def read_history(workdir: Path) -> History:
    """Read what there is.

    Raises:
      UserError: there is nothing of a run.
    """
    if not any((workdir / name).is_file() for name in (CONFIG, METRICS, SUMMARY)):
        raise UserError(
            f"--workdir {workdir}: holds neither {CONFIG} nor {METRICS}: give the "
            "folder of a run"
        )
    missing: list[str] = []
    return History(
        workdir=workdir,
        config=_read_config(workdir / CONFIG, missing),
        lines=_read_lines(workdir / METRICS, missing),
        summary=_read_json(workdir / SUMMARY, missing),
        data=_read_json(workdir / DATA, missing),
        model=_read_json(workdir / MODEL, missing),
        checkpoint=_read_checkpoint(workdir / CHECKPOINTS, missing),
        missing=missing,
    )


def _read_config(path: Path, missing: list[str]) -> Config | None:
    try:
        return config_lib.from_json(path.read_text())
    except (OSError, ValueError) as error:
        missing.append(f"{path.name} cannot be read: {_reason(error)}")
        return None


def _read_lines(path: Path, missing: list[str]) -> list[dict[str, Any]]:
    try:
        texts = path.read_text(errors="replace").splitlines()
    except OSError as error:
        missing.append(f"{path.name} cannot be read: {_reason(error)}")
        return []
    lines = []
    for text in texts:
        with contextlib.suppress(ValueError):
            line = json.loads(text)
            if _is_line(line):
                lines.append(line)
    if len(lines) < len(texts):
        missing.append(f"{len(texts) - len(lines)} damaged line(s) of {path.name}")
    return lines


def _is_line(line: Any) -> bool:
    return isinstance(line, dict) and "kind" in line and type(line.get("step")) is int


def _read_json(path: Path, missing: list[str]) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        missing.append(f"{path.name} cannot be read: {_reason(error)}")
        return {}
    if not isinstance(values, dict):
        missing.append(f"{path.name} is damaged: it holds no names")
        return {}
    return values


def _read_checkpoint(folder: Path, missing: list[str]) -> dict[str, Any]:
    steps = committed_steps(folder)
    if not steps:
        return {}
    try:
        return {**manifest.read(folder, steps[-1]), "step": steps[-1]}
    except (CheckpointError, UserError) as error:
        missing.append(f"checkpoint {steps[-1]} cannot be read: {_reason(error)}")
        return {}


def _reason(error: Exception) -> str:
    told = error.strerror if isinstance(error, OSError) else None
    return " ".join((told or str(error)).split())


def _is_number_or_none(value: Any) -> bool:
    return value is None or (
        isinstance(value, int | float) and not isinstance(value, bool)
    )


def _number(value: Any) -> int:
    return value if type(value) is int else 0
