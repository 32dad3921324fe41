"""Training methods of the core, with their options."""

from dataclasses import dataclass

from jaxtrain.config.metadata import field
from jaxtrain.config.part import Part


@dataclass(frozen=True, kw_only=True)
class PlainConfig(Part):
    """The plain method, without options: gradients of the mean loss."""

    name: str = field("plain", init=False)


@dataclass(frozen=True, kw_only=True)
class SamConfig(Part):
    """Sharpness-aware minimization (SAM, Foret et al. 2021)."""

    name: str = field("sam", init=False)
    rho: float | None = field(
        None,
        help="Radius of the neighbourhood: norm of the perturbation of the weights. "
        "None: 0.05, or 0.5 with method.adaptive = True.",
    )
    adaptive: bool = field(
        False,
        help="Whether the perturbation scales with the magnitude of each weight (ASAM, "
        "Kwon et al. 2021).",
    )

    def validate(self) -> None:
        self._positive("rho")
