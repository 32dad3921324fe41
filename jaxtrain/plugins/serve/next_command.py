"""Suggested command after a run: serving the model."""

from jaxtrain.trainer.next_commands import FinishedRun


def serve(run: FinishedRun) -> str | None:
    """Return the command that serves the model; None without `answer_parts`."""
    if run.decoder.answer_parts() is None:
        return None
    return f"serve {run.words}"
