"""Options of the task `self_supervised`."""

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
        "byol (Grill et al. 2020, arXiv:2006.07733), which predicts the projection of "
        "one view from the other view. For byol, a target network, whose weights are "
        "moving averages, computes the projection to predict.",
    )
    size: int = field(
        256,
        help="Embedding size: number of features of the model's last layer, before "
        "the projection head.",
    )
    projection_size: int = field(
        64,
        help="Number of output features of the projection head, the input of the loss.",
    )
    temperature: float | None = field(
        None,
        help="Temperature of simclr, the divisor of cosine similarities in training "
        "and evaluations; None: 0.5. Evaluations of byol also use 0.5.",
    )

    def validate(self) -> None:
        if self.temperature is not None and self.loss != "simclr":
            report(
                f"task.temperature = {self.temperature!r} has no effect with task.loss "
                f"= {self.loss!r}: leave task.temperature out, or set task.loss to "
                "simclr",
                "temperature",
            )
        for name in ("size", "projection_size"):
            self._check(name, 2 <= getattr(self, name) <= 2**16, "2 to 65536")
        self._positive("temperature")
