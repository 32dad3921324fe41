"""The callback that writes the report, where the run asks for one."""

from typing import TYPE_CHECKING, Any

from jaxtrain.config import Config
from jaxtrain.trainer.callback import Callback

if TYPE_CHECKING:
    from jaxtrain.trainer.run_state import RunState


class WriteReport(Callback):
    """Write `report.html` at the end of a run."""

    def on_end(self, run: "RunState", summary: dict[str, Any]) -> None:
        # It takes as long to import as a step: not before it is needed.
        from jaxtrain.plugins.report.at_end import write_report

        write_report(run)


def make_report(config: Config, profile: bool) -> Callback | None:
    """Make the callback of a run, unless `logging.report` is False."""
    return WriteReport() if config.logging.report else None
