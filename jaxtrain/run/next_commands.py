"""What to do with a finished run."""

import shlex
from pathlib import Path

import jax

from jaxtrain.config import Config, own_references
from jaxtrain.console import printable
from jaxtrain.records.workdir import REPORT


def show_next(workdir: Path, config: Config) -> None:
    """Print where the report of a finished run is, and what to do with the model."""
    if jax.process_index() != 0:
        return
    report, run = workdir / REPORT, f"--workdir {shlex.quote(str(workdir))}"
    if own_references(config):
        # These commands do not name the parts themselves.
        run += " --trust"
    name = shlex.quote(f"{workdir.resolve().name}.onnx")
    lines = [f"report: {report}"] if report.is_file() else []
    lines += [
        "next:",
        f"  python main.py evaluate {run}",
        f"  python main.py predict {run} --out predictions.csv IMAGES",
        f"  python main.py export {run} --format onnx --out {name}",
        f"  python main.py serve {run}",
    ]
    print("\n".join(map(printable, lines)))
