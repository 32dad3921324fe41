"""Options of the task self_supervised."""

from dataclasses import dataclass
from typing import Literal

from jaxtrain.config.base import report
from jaxtrain.config.metadata import field
from jaxtrain.config.part import Part


@dataclass(frozen=True, kw_only=True)
class SelfSupervisedConfig(Part):
    """Self-supervised learning: features without labels."""

    name: str = field("self_supervised", init=False)
    loss: Literal["simclr", "byol"] = field(
        "simclr",
        help="Training loss: simclr (Chen et al. 2020, arXiv:2002.05709), which "
        "contrasts the two views of an image with all other images of the batch, or "
        "byol (Grill et al. 2020, arXiv:2006.07733), which predicts from one view the "
        "projection of the other by the moving average of the weights.",
    )
    size: int = field(
        256,
        help="Number of features of an embedding: of the model's last layer, which "
        "the projection head follows.",
    )
    projection_size: int = field(
        64,
        help="Number of features of a projection, which the loss compares.",
    )
    temperature: float | None = field(
        None,
        help="Temperature of simclr, the divisor of cosine similarities in training "
        "and evaluations; None: 0.5. Evaluations of byol also use 0.5.",
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
