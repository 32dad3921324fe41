"""The command that is suggested after a run."""

from jaxtrain.trainer.next_commands import FinishedRun


def serve(run: FinishedRun) -> str | None:
    """Suggest to serve the model; None if its outputs mean nothing to a client."""
    if run.decoder.answer_parts() is None:
        return None
    return f"serve {run.words}"
