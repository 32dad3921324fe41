"""The section `logging`."""

from dataclasses import dataclass

from jaxtrain.config.base import Options, Section
from jaxtrain.config.combinations import Needs, check, option
from jaxtrain.config.metadata import field

COMBINATIONS = (
    Needs(
        option("logging", "options"),
        option("logging", "writers"),
        "name your writer there, or leave the options out",
    ),
)


@dataclass(frozen=True, kw_only=True)
class LoggingConfig(Section):
    """Records of a run, and where they are written."""

    # Steps between lines of metrics.
    every_steps: int = field(50, common=True, other_names="log_interval")
    # Write TensorBoard event files.
    tensorboard: bool = True
    # Write report.html when the run has reached its end.
    report: bool = True
    # Weights & Biases project to log to; None disables it. Needs the extra `wandb`.
    wandb_project: str | None = field(None, other_names="wandb")
    # Metric writers of your own: path/to/file.py:name or package.module:name.
    writers: tuple[str, ...] = ()

    # Options of these writers, by name; each writer gets all of them.
    options: Options = field(default_factory=dict)

    def validate(self) -> None:
        self._positive("every_steps")
        check(self, COMBINATIONS, "logging")
