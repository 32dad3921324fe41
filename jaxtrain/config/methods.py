"""Options of training methods: `train.method_options`."""

from dataclasses import dataclass

from jaxtrain.config.base import Section


@dataclass(frozen=True, kw_only=True)
class SamOptions(Section):
    """Options of sam."""

    # Length of the step to the sharpest weights nearby; None: 0.05, adaptive 0.5.
    rho: float | None = None
    # Whether each weight moves by its own size (ASAM, Kwon et al. 2021).
    adaptive: bool = False

    def validate(self) -> None:
        self._positive("rho")
