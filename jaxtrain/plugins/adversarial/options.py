"""Options of the adversarial training methods."""

from dataclasses import dataclass
from typing import Literal

from jaxtrain.config.metadata import field
from jaxtrain.config.part import Part

# Half of an 8-bit grey level, for pixels in 0..1.
HALF_LEVEL = 0.5 / 255


@dataclass(frozen=True, kw_only=True)
class AttackConfig(Part):
    """Options of the PGD attack of a training method."""

    epsilon: float = field(
        0.031,
        help="Largest allowed norm of the perturbation, for pixel values in 0..1, such "
        "as 8 / 255 = 0.031.",
    )
    norm: Literal["linf", "l2"] = field(
        "linf",
        help="Norm of the perturbation: linf, the largest change of a pixel value, or "
        "l2, the Euclidean norm.",
    )
    steps: int = field(
        1,
        help="Number of steps of the attack.",
    )
    step_size: float | None = field(
        None,
        help="Step size of the attack, for pixels in 0..1; None: 2.5 epsilon / steps.",
    )

    def validate(self) -> None:
        # Smaller perturbations round to the same 8-bit image.
        half_level = "at least 1/510 = 0.00196, half a level of grey"
        self._check("epsilon", self.epsilon >= HALF_LEVEL, half_level)
        self._positive("steps", "step_size")


@dataclass(frozen=True, kw_only=True)
class AdversarialConfig(AttackConfig):
    """Adversarial training (Madry et al. 2018)."""

    name: str = field("adversarial", init=False)
    steps: int = field(
        1,
        help="Steps of the attack; 1: FGSM from a random start (Wong et al. 2020), "
        "more: PGD (Madry et al. 2018).",
    )
    step_size: float | None = field(
        None,
        help="Step size of the attack, for pixels in 0..1; None: 1.25 epsilon for one "
        "step, else 2.5 epsilon / steps.",
    )


@dataclass(frozen=True, kw_only=True)
class TradesConfig(AttackConfig):
    """TRADES (Zhang et al. 2019); defaults from the paper's CIFAR-10 training."""

    name: str = field("trades", init=False)
    beta: float = field(
        6.0,
        help="Weight of the KL divergence between the outputs of clean and attacked "
        "images; larger values increase robustness and reduce accuracy on clean "
        "images.",
    )
    steps: int = field(
        10,
        help="Number of steps of the attack.",
    )

    def validate(self) -> None:
        super().validate()
        self._positive("beta")
