"""The command that is suggested after a run."""

from jaxtrain.trainer.next_commands import FinishedRun


def serve(run: FinishedRun) -> str | None:
    """Suggest to serve the model; None if its outputs mean nothing to a client."""
    task = run.task
    readout = task.readout(run.config.task_options, task.column_names)
    drawn = run.puts_out_a_row or task.class_maps
    named = task.class_names is not None and drawn
    if readout is not None or named or task.finds_boxes:
        return f"serve {run.words}"
    return None
