"""Callback for the report at the end of a run."""

from typing import TYPE_CHECKING, Any

from jaxtrain.config import Config
from jaxtrain.trainer.callback import Callback

if TYPE_CHECKING:
    from jaxtrain.trainer.run_state import RunState


class WriteReport(Callback):
    """Write `report.html` at the end of a run."""

    def on_end(self, run: "RunState", summary: dict[str, Any]) -> None:
        # Imported here, because the import takes as long as a training step.
        from jaxtrain.plugins.report.at_end import write_report

        write_report(run)


def make_report(config: Config, profile: bool) -> Callback | None:
    """Create the callback of a run; None if `logging.report` is False."""
    return WriteReport() if config.logging.report else None
