"""`metrics.jsonl`: one JSON object a line."""

import json
import time

from jaxtrain.records.appended import Appended
from jaxtrain.records.metrics_file import keep_until
from jaxtrain.records.workdir import METRICS, finite
from jaxtrain.records.writer import LoggedRun, MetricWriter
from jaxtrain.tasks.base import Values
from jaxtrain.tasks.metrics import scalars


class JsonLinesWriter(MetricWriter):
    """Appends records; those of evaluations without vectors and matrices."""

    def __init__(self, run: LoggedRun):
        path = run.workdir / METRICS
        if path.exists():
            keep_until(path, run.step)
        self._file = Appended(path)

    def write(self, kind: str, step: int, values: Values) -> None:
        values = scalars(values) if kind == "eval" else values
        record = {"kind": kind, "step": step, "time": time.time(), **finite(values)}
        self._file.write((json.dumps(record, allow_nan=False) + "\n").encode())

    def close(self) -> None:
        self._file.close()
