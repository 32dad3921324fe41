"""Options of training methods: `train.method_options`."""

from dataclasses import dataclass

from jaxtrain.config.base import Section
from jaxtrain.config.metadata import field


@dataclass(frozen=True, kw_only=True)
class SamOptions(Section):
    """Options of sam."""

    rho: float | None = field(
        None,
        help="Radius of the neighbourhood, the norm of the perturbation of the "
        "weights; None: 0.05, adaptive 0.5.",
    )
    adaptive: bool = field(
        False,
        help="Whether the perturbation scales with the magnitude of each weight (ASAM, "
        "Kwon et al. 2021).",
    )

    def validate(self) -> None:
        self._positive("rho")
