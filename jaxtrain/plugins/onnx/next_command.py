"""Suggested command after a run: the export to ONNX."""

import shlex

from jaxtrain.errors import UserError
from jaxtrain.trainer.next_commands import FinishedRun


def export(run: FinishedRun) -> str | None:
    """Suggest an ONNX export; None if ONNX does not support the outputs."""
    try:
        run.decoder.exported(probabilities=False, nms=False)
    except UserError:
        return None
    file = shlex.quote(f"{run.workdir.resolve().name}.onnx")
    return f"export {run.words} --format onnx --out {file}"
