"""Optimizers with their options: the values of the part `optimizer`."""

from dataclasses import dataclass

from jaxtrain.config.metadata import field
from jaxtrain.config.optimizer import OptimizerConfig

MOMENTUM = "Momentum."
NESTEROV = "Nesterov momentum."
B1 = "Decay of the first moment."
B2 = "Decay of the second moment."
EPS = "Epsilon, added to the denominator."


@dataclass(frozen=True, kw_only=True)
class Momentum(OptimizerConfig):
    """Options of optimizers with momentum."""

    momentum: float = field(0.9, help=MOMENTUM, other_names="momentum")
    nesterov: bool = field(False, help=NESTEROV)

    def validate(self) -> None:
        super().validate()
        self._fraction("momentum")


@dataclass(frozen=True, kw_only=True)
class SGDConfig(Momentum):
    """Stochastic gradient descent with momentum (Sutskever et al. 2013)."""

    name: str = field("sgd", init=False)


@dataclass(frozen=True, kw_only=True)
class SGDWConfig(Momentum):
    """SGD with decoupled weight decay (Loshchilov & Hutter 2017)."""

    name: str = field("sgdw", init=False)


@dataclass(frozen=True, kw_only=True)
class LarsConfig(Momentum):
    """LARS (You et al. 2017); the trust ratio applies to kernels only."""

    name: str = field("lars", init=False)


@dataclass(frozen=True, kw_only=True)
class MuonConfig(Momentum):
    """Muon for kernels, Adam for other parameters (Jordan et al. 2024)."""

    name: str = field("muon", init=False)
    momentum: float = field(0.95, help=MOMENTUM, other_names="momentum")
    nesterov: bool = field(True, help=NESTEROV)


@dataclass(frozen=True, kw_only=True)
class RMSpropConfig(Momentum):
    """RMSProp (Tieleman & Hinton 2012)."""

    name: str = field("rmsprop", init=False)
    b2: float = field(0.9, help=B2)
    eps: float = field(1e-8, help=EPS)
    momentum: float = field(0.0, help=MOMENTUM, other_names="momentum")

    def validate(self) -> None:
        super().validate()
        self._fraction("b2")
        self._positive("eps")


@dataclass(frozen=True, kw_only=True)
class AdagradConfig(OptimizerConfig):
    """Adagrad (Duchi et al. 2011)."""

    name: str = field("adagrad", init=False)
    eps: float = field(1e-7, help=EPS)

    def validate(self) -> None:
        super().validate()
        self._positive("eps")


@dataclass(frozen=True, kw_only=True)
class LionConfig(OptimizerConfig):
    """Lion (Chen et al. 2023)."""

    name: str = field("lion", init=False)
    b1: float = field(
        0.9,
        help="Weight of the momentum in an update; the gradient has the weight 1 - b1.",
    )
    b2: float = field(0.99, help="Decay of the momentum.")

    def validate(self) -> None:
        super().validate()
        self._fraction("b1", "b2")


@dataclass(frozen=True, kw_only=True)
class Moments(OptimizerConfig):
    """Options of optimizers with a first and a second moment."""

    b1: float = field(0.9, help=B1)
    b2: float = field(0.999, help=B2)
    eps: float = field(1e-8, help=EPS)

    def validate(self) -> None:
        super().validate()
        self._fraction("b1", "b2")
        self._positive("eps")


@dataclass(frozen=True, kw_only=True)
class AdamConfig(Moments):
    """Adam (Kingma & Ba 2014)."""

    name: str = field("adam", init=False)
    nesterov: bool = field(False, help=NESTEROV)


@dataclass(frozen=True, kw_only=True)
class AdamWConfig(Moments):
    """AdamW: Adam with decoupled weight decay (Loshchilov & Hutter 2017)."""

    name: str = field("adamw", init=False)
    nesterov: bool = field(False, help=NESTEROV)


@dataclass(frozen=True, kw_only=True)
class LambConfig(Moments):
    """LAMB (You et al. 2019); the trust ratio applies to all parameters."""

    name: str = field("lamb", init=False)
    eps: float = field(1e-6, help=EPS)


@dataclass(frozen=True, kw_only=True)
class AdanConfig(Moments):
    """Adan: Nesterov momentum without a second gradient (Xie et al. 2022)."""

    name: str = field("adan", init=False)
    b1: float = field(0.98, help=B1)
    b2: float = field(
        0.92,
        help="Decay of the moving average of differences of consecutive gradients.",
    )


@dataclass(frozen=True, kw_only=True)
class AdEMAMixConfig(Moments):
    """AdEMAMix: a fast and a slow first moment (Pagliardini et al. 2024)."""

    name: str = field("ademamix", init=False)


@dataclass(frozen=True, kw_only=True)
class AdoptConfig(Moments):
    """ADOPT: Adam that converges with any b2 (Taniguchi et al. 2024)."""

    name: str = field("adopt", init=False)
    b2: float = field(0.9999, help=B2)
    eps: float = field(1e-6, help=EPS)


@dataclass(frozen=True, kw_only=True)
class ProdigyConfig(Moments):
    """Prodigy: estimates the learning rate (Mishchenko & Defazio 2023).

    `learning_rate` is a factor on the estimate, usually 1.
    """

    name: str = field("prodigy", init=False)


@dataclass(frozen=True, kw_only=True)
class DAdaptAdamWConfig(Moments):
    """D-Adapt AdamW: estimates the learning rate (Defazio & Mishchenko 2023).

    `learning_rate` is a factor on the estimate, usually 1.
    """

    name: str = field("dadapt_adamw", init=False)


@dataclass(frozen=True, kw_only=True)
class ScheduleFreeSGDConfig(OptimizerConfig):
    """Schedule-free SGD (Defazio et al. 2024)."""

    name: str = field("schedule_free_sgd", init=False)
    momentum: float = field(
        0.9,
        help="Interpolation factor beta: gradients are computed at beta * (averaged "
        "weights) + (1 - beta) * (SGD weights).",
        other_names="momentum",
    )

    def validate(self) -> None:
        super().validate()
        self._fraction("momentum")


@dataclass(frozen=True, kw_only=True)
class ScheduleFreeAdamWConfig(Moments):
    """Schedule-free AdamW (Defazio et al. 2024)."""

    name: str = field("schedule_free_adamw", init=False)
    b1: float = field(
        0.9,
        help="Interpolation factor beta: gradients are computed at beta * (averaged "
        "weights) + (1 - beta) * (AdamW weights).",
    )


@dataclass(frozen=True, kw_only=True)
class LBFGSConfig(OptimizerConfig):
    """L-BFGS with a zoom line search, for full batches (Liu & Nocedal 1989)."""

    name: str = field("lbfgs", init=False)
