"""The section `logging`."""

from dataclasses import dataclass

from jaxtrain.config.base import Section


@dataclass(frozen=True, kw_only=True)
class LoggingConfig(Section):
    """What is written to follow a run."""

    # Steps between lines of metrics.
    every_steps: int = 50
    # Write TensorBoard event files.
    tensorboard: bool = True
    # Write report.html when the run has reached its end.
    report: bool = True
    # Weights & Biases project to log to; None: none. Needs the extra `wandb`.
    wandb_project: str | None = None

    def validate(self) -> None:
        self._positive("every_steps")
