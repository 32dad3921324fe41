"""Suggested command after a run: serving the model."""

from jaxtrain.trainer.next_commands import FinishedRun


def serve(run: FinishedRun) -> str | None:
    """Suggest serving the model, or None if its decoder has no `answer_parts`."""
    if run.decoder.answer_parts() is None:
        return None
    return f"serve {run.words}"
