"""The section `logging`."""

from dataclasses import dataclass

from jaxtrain.config.base import Options, Section
from jaxtrain.config.combinations import Needs, check, option
from jaxtrain.config.metadata import field

COMBINATIONS = (
    Needs(
        option("logging", "options"),
        option("logging", "writers"),
        "set logging.writers, or leave logging.options out",
    ),
)


@dataclass(frozen=True, kw_only=True)
class LoggingConfig(Section):
    """Logged metrics, metric writers and report of a run."""

    every_steps: int = field(
        50,
        help="Steps between logged training metrics.",
        common=True,
        other_names="log_interval",
    )
    tensorboard: bool = field(
        True,
        help="Write TensorBoard event files.",
    )
    report: bool = field(
        True,
        help="Write report.html at the end of the run.",
    )
    wandb_project: str | None = field(
        None,
        help="Weights & Biases project to log to; None disables it. Needs the extra "
        "`wandb`.",
        other_names="wandb",
    )
    writers: tuple[str, ...] = field(
        (),
        help="Custom metric writers: path/to/file.py:name or package.module:name.",
    )

    options: Options = field(
        default_factory=dict,
        help="Options of the custom metric writers, by name. Each writer receives all "
        "options.",
    )

    def validate(self) -> None:
        self._positive("every_steps")
        check(self, COMBINATIONS, "logging")
