"""Command suggested at the end of a run: `serve`."""

from jaxtrain.trainer.next_commands import FinishedRun


def serve(run: FinishedRun) -> str | None:
    """Return the command that serves the model; None if it cannot be served."""
    if run.decoder.answer_parts() is None:
        return None
    return f"serve {run.words}"
