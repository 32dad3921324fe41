"""What the folder of a run tells of it; what is missing is told, and no error."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxtrain import config as config_lib
from jaxtrain.checkpoints import manifest
from jaxtrain.checkpoints.folder import committed_steps
from jaxtrain.config import Config
from jaxtrain.config.recipe import is_run
from jaxtrain.errors import CheckpointError, UserError, counted
from jaxtrain.inference import mistaken
from jaxtrain.inference.description import MODEL
from jaxtrain.json_files.read import read_json
from jaxtrain.pages.charts import Point
from jaxtrain.records.metrics_file import parse_line
from jaxtrain.records.workdir import CHECKPOINTS, CONFIG, DATA, METRICS, SUMMARY
from jaxtrain.regular_file import MAX_TABLE_BYTES, read_text
from jaxtrain.report.files import DataFile, ModelFile, SummaryFile
from jaxtrain.tasks import says_something

# Of a line of metrics.jsonl: what is no metric.
PLACE = {"kind", "step", "epoch", "time", "split", "event", "num_examples"}
PLACE |= {"model_step"}

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
        """The metrics of the test split, at the end of the run, that say something."""
        values = self.summary.get("eval")
        if not isinstance(values, dict):
            return {}
        shown = says_something
        return {k: v for k, v in values.items() if shown(k, self.num_classes)}

    @property
    def tested_step(self) -> int:
        """The step whose weights `test` is of; older runs tested their last ones."""
        return _number(self._weights("model").get("step")) or self.step

    @property
    def last_validation(self) -> dict[str, Any]:
        """The metrics of the last weights on the validation split; {}: not known."""
        values = self._weights("last").get("validation")
        return values if isinstance(values, dict) else {}

    def _weights(self, name: str) -> dict[str, Any]:
        values = self.summary.get(name)
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

    @property
    def num_classes(self) -> int | None:
        """The number of the classes; None: there are none."""
        names = self.class_names
        return None if names is None else len(names)

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
                if not says_something(name, self.num_classes):
                    continue
                if name not in PLACE and _is_number_or_none(value):
                    points = found.setdefault(name, {}).setdefault(part, [])
                    # The final test may be of earlier weights than the last.
                    step = _number(line.get("model_step")) or line["step"]
                    points.append((step, value))
        return found


def read_history(workdir: Path) -> History:
    """Read what there is.

    Raises:
      UserError: there is nothing of a run.
    """
    has_any = any((workdir / name).is_file() for name in (CONFIG, METRICS, SUMMARY))
    if not has_any or not is_run(workdir):
        found = mistaken.what_is(workdir)
        what = found.what if found else "a model without a run"
        it_is = f"; it is {what}" if workdir.exists() else ""
        raise UserError(
            f"--workdir {workdir}: holds neither {CONFIG} nor {METRICS} of a run"
            f"{it_is}: {mistaken.RUN}, as a report is about one"
        )
    missing: list[str] = []
    return History(
        workdir=workdir,
        config=_read_config(workdir / CONFIG, missing),
        lines=_read_lines(workdir / METRICS, missing),
        summary=_read(workdir / SUMMARY, SummaryFile, missing),
        data=_read(workdir / DATA, DataFile, missing),
        model=_read(workdir / MODEL, ModelFile, missing),
        checkpoint=_read_checkpoint(workdir / CHECKPOINTS, missing),
        missing=missing,
    )


def _read_config(path: Path, missing: list[str]) -> Config | None:
    try:
        config = config_lib.read_config(path)
    except UserError as error:
        missing.append(_reason(error, path))
        return None
    if config is None:
        missing.append(f"{path.name} cannot be read: there is no such file")
    return config


def _read_lines(path: Path, missing: list[str]) -> list[dict[str, Any]]:
    try:
        texts = read_text(path, MAX_TABLE_BYTES, errors="replace").splitlines()
    except OSError as error:
        missing.append(f"{path.name} cannot be read: {_reason(error)}")
        return []
    lines: list[dict[str, Any]] = []
    for text in texts:
        with contextlib.suppress(UserError):
            lines.append({**parse_line(text, path.name)})
    if len(lines) < len(texts):
        missing.append(
            f"{counted(len(texts) - len(lines), 'damaged line')} of {path.name}"
        )
    return lines


def _read(path: Path, kind: type[Any], missing: list[str]) -> dict[str, Any]:
    try:
        return dict(read_json(path, kind) or {})
    except UserError as error:
        missing.append(_reason(error, path))
        return {}


def _read_checkpoint(folder: Path, missing: list[str]) -> dict[str, Any]:
    steps = committed_steps(folder)
    if not steps:
        return {}
    try:
        return {**manifest.read(folder, steps[-1]), "step": steps[-1]}
    except (CheckpointError, UserError) as error:
        missing.append(f"checkpoint {steps[-1]} cannot be read: {_reason(error)}")
        return {}


def _reason(error: Exception, path: Path | None = None) -> str:
    """Return a message in one line; a page that is passed on names no folders."""
    told = (isinstance(error, OSError) and error.strerror) or str(error)
    return " ".join(
        (told if path is None else told.replace(str(path), path.name)).split()
    )


def _is_number_or_none(value: Any) -> bool:
    return value is None or (
        isinstance(value, int | float) and not isinstance(value, bool)
    )


def _number(value: Any) -> int:
    return value if type(value) is int else 0
