"""Options of the `embedding` task."""

from dataclasses import dataclass
from typing import Literal

from jaxtrain.config.base import report
from jaxtrain.config.metadata import field
from jaxtrain.config.part import Part

# Defaults of ArcFace, as in the paper.
MARGIN, SCALE = 0.5, 64.0


@dataclass(frozen=True, kw_only=True)
class EmbeddingConfig(Part):
    """Metric learning: embeddings in which images of a class are neighbours."""

    name: str = field("embedding", init=False)
    loss: Literal["arcface", "contrastive"] = field(
        "arcface",
        help="Training loss: arcface (Deng et al. 2019, arXiv:1801.07698), which "
        "learns a centre for each class, or contrastive (Khosla et al. 2020, "
        "arXiv:2004.11362), which compares the examples of a batch.",
    )
    size: int = field(
        128,
        help="Number of features of an embedding.",
    )
    margin: float | None = field(
        None,
        help="With arcface: margin in radians, added to the angle between an example "
        "and the centre of its class; None: 0.5.",
    )
    scale: float | None = field(
        None,
        help="With arcface: scale of the cosine logits (s in the paper); None: 64.",
    )
    temperature: float = field(
        0.1,
        help="Temperature of the contrastive loss, a divisor of cosine similarities.",
    )

    def validate(self) -> None:
        for name in ("margin", "scale"):
            value = getattr(self, name)
            if value is not None and self.loss != "arcface":
                report(
                    f"task.{name} = {value!r} has no effect with task.loss = "
                    f"{self.loss!r}: leave task.{name} out, or set task.loss to "
                    "arcface",
                    name,
                )
        self._check("size", 2 <= self.size <= 2**16, "2 to 65536")
        self._all(("margin",), lambda x: 0 <= x < 1.5, "0 or more, below 1.5 radians")
        self._positive("scale", "temperature")
