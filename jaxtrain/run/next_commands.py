"""What to do with a finished run."""

import shlex
from pathlib import Path

import jax
import numpy as np

from jaxtrain.config import Config, own_references
from jaxtrain.console import printable
from jaxtrain.records.workdir import REPORT
from jaxtrain.tasks.base import Task


def show_next(workdir: Path, config: Config, task: Task) -> None:
    """Print where the report of a finished run is, and what to do with the model."""
    if jax.process_index() != 0:
        return
    report, run = workdir / REPORT, f"--workdir {shlex.quote(str(workdir))}"
    if own_references(config):
        # These commands do not name the parts themselves.
        run += " --trust"
    name = shlex.quote(f"{workdir.resolve().name}.onnx")
    lines = [f"report: {report}"] if report.is_file() else []
    lines += ["next:", *(f"  python main.py {x}" for x in _commands(task, run, name))]
    print("\n".join(map(printable, lines)))


def _commands(task: Task, run: str, onnx: str) -> list[str]:
    """Return the commands that take what the model of a task puts out."""
    outputs = task.abstract_outputs((1,), np.float32)
    # None: several arrays for an image.
    shape = getattr(outputs, "shape", None)
    in_a_row = shape == (1, task.num_outputs)
    out = "--out predictions.csv" if in_a_row else "--outputs outputs"
    found = [f"evaluate {run}", f"predict {run} {out} IMAGES"]
    if shape is not None:
        found.append(f"export {run} --format onnx --out {onnx}")
    if in_a_row and task.class_names is not None:
        found.append(f"serve {run}")
    return found
