"""Options of the task self_supervised: `task_options`."""

from dataclasses import dataclass
from typing import Literal

from jaxtrain.config.base import Section, report
from jaxtrain.config.metadata import field


@dataclass(frozen=True, kw_only=True)
class SelfSupervisedOptions(Section):
    """Options of the task `self_supervised`."""

    loss: Literal["simclr", "byol"] = field(
        "simclr",
        help="What training lowers: simclr (Chen et al. 2020, arXiv:2002.05709), by "
        "which the views of an image are nearer to each other than to those of all "
        "other images of the batch, or byol (Grill et al. 2020, arXiv:2006.07733), by "
        "which one view predicts what the moving average of the weights makes of the "
        "other.",
    )
    size: int = field(
        256,
        help="Numbers of an embedding: features of the last layer of the model, "
        "behind which is the rest of the projection head.",
    )
    projection_size: int = field(
        64,
        help="Numbers of a projection, which the loss compares.",
    )
    temperature: float | None = field(
        None,
        help="Of simclr: divisor of cosines; None: 0.5. Evaluations have it, too, "
        "with byol 0.5.",
    )

    def validate(self) -> None:
        if self.temperature is not None and self.loss != "simclr":
            report(
                f"temperature = {self.temperature!r} has no effect on loss = "
                f"{self.loss!r}: leave it out, or set loss to simclr",
                "temperature",
            )
        for name in ("size", "projection_size"):
            self._check(name, 2 <= getattr(self, name) <= 2**16, "2 to 65536")
        self._positive("temperature")
