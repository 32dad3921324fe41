"""The command that is suggested after a run."""

import shlex

from jaxtrain.trainer.next_commands import FinishedRun


def export(run: FinishedRun) -> str | None:
    """Suggest an ONNX file; None for outputs that none can hold."""
    if run.output_shape is None and not run.task.finds_boxes:
        return None
    file = shlex.quote(f"{run.workdir.resolve().name}.onnx")
    return f"export {run.words} --format onnx --out {file}"
