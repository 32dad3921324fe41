"""Learning-rate schedules: the part `optimizer.schedule`."""

from dataclasses import dataclass

from jaxtrain.config.base import report
from jaxtrain.config.metadata import field
from jaxtrain.config.part import CustomConfig, Part, PartTable

END_FACTOR = "Last learning rate as a fraction of the peak."


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig(Part, base=True):
    """A learning-rate schedule; subclasses declare the options of each schedule."""

    shown = "an instance, such as CosineSchedule(), or a name"
    name: str = field("", init=False)


@dataclass(frozen=True, kw_only=True)
class CustomSchedule(CustomConfig, ScheduleConfig):
    """A user-defined schedule, or a plug-in's schedule without declared options."""


@dataclass(frozen=True, kw_only=True)
class WarmupSchedule(ScheduleConfig):
    """A schedule that starts with a linear warm-up."""

    warmup_factor: float = field(
        0.0, help="First learning rate of the warm-up as a fraction of the peak."
    )

    def validate(self) -> None:
        self._fraction("warmup_factor")


@dataclass(frozen=True, kw_only=True)
class DecaySchedule(WarmupSchedule):
    """A schedule that decays to a fraction of the peak."""

    end_factor: float = field(0.0, help=END_FACTOR)

    def validate(self) -> None:
        super().validate()
        self._not_negative("end_factor")


@dataclass(frozen=True, kw_only=True)
class ConstantSchedule(WarmupSchedule):
    """Constant learning rate after the warm-up."""

    name: str = field("constant", init=False)


@dataclass(frozen=True, kw_only=True)
class CosineSchedule(DecaySchedule):
    """Decay along half a cosine (Loshchilov & Hutter 2016)."""

    name: str = field("cosine", init=False)


@dataclass(frozen=True, kw_only=True)
class CosineRestartsSchedule(DecaySchedule):
    """Decay along half a cosine in each cycle (SGDR, Loshchilov & Hutter 2016)."""

    name: str = field("cosine_restarts", init=False)
    cycles: int = field(4, help="Number of cosine cycles, of equal length.")
    end_factor: float = field(
        0.0, help="Learning rate at the end of each cycle as a fraction of the peak."
    )

    def validate(self) -> None:
        super().validate()
        # Each cycle makes the compiled step larger.
        self._within(2, 100, "cycles")


@dataclass(frozen=True, kw_only=True)
class LinearSchedule(DecaySchedule):
    """Linear decay."""

    name: str = field("linear", init=False)


@dataclass(frozen=True, kw_only=True)
class PolynomialSchedule(DecaySchedule):
    """Polynomial decay (You et al. 2017)."""

    name: str = field("polynomial", init=False)
    power: float = field(2.0, help="Exponent of the polynomial.")

    def validate(self) -> None:
        super().validate()
        self._positive("power")


@dataclass(frozen=True, kw_only=True)
class WarmupStableDecaySchedule(DecaySchedule):
    """Constant learning rate, then linear decay (Haegele et al. 2024)."""

    name: str = field("warmup_stable_decay", init=False)
    decay_fraction: float = field(
        0.2, help="Length of the decay, as a fraction of the run."
    )

    def validate(self) -> None:
        super().validate()
        self._share("decay_fraction")


@dataclass(frozen=True, kw_only=True)
class StepSchedule(WarmupSchedule):
    """Decay by a factor at each milestone, or at regular intervals."""

    name: str = field("step", init=False)
    milestones: tuple[float, ...] | None = field(
        None,
        help="Steps at which the learning rate drops, as fractions of the run; None: "
        "0.5 and 0.75, unless schedule.every is set.",
    )
    every: float | None = field(
        None,
        help="Interval between drops of the learning rate, as a fraction of the "
        "run; instead of schedule.milestones.",
    )
    factor: float = field(
        0.1, help="Factor that multiplies the learning rate at each drop."
    )

    def validate(self) -> None:
        super().validate()
        self._share("every", "factor")
        milestones = self.milestones or ()
        self._check(
            "milestones",
            all(0 < m < 1 for m in milestones)
            and list(milestones) == sorted(milestones),
            "increasing fractions of the run, between 0 and 1",
        )
        if self.every is not None and self.milestones is not None:
            report(
                f"optimizer.schedule.every = {self.every} with "
                f"optimizer.schedule.milestones = {self.milestones}: both set the "
                "drops of the step schedule; give one of them",
                "every",
            )


@dataclass(frozen=True, kw_only=True)
class ExponentialSchedule(WarmupSchedule):
    """Exponential decay."""

    name: str = field("exponential", init=False)
    end_factor: float = field(0.01, help=f"{END_FACTOR[:-1]}, above 0.")

    def validate(self) -> None:
        super().validate()
        self._positive("end_factor")


@dataclass(frozen=True, kw_only=True)
class OneCycleSchedule(ScheduleConfig):
    """Rise to the peak, then decay, each along half a cosine (1cycle, Smith 2017).

    The warm-up sets the length of the rise; the default is 30 % of the run.
    """

    name: str = field("one_cycle", init=False)
    end_factor: float = field(1e-4, help=END_FACTOR)

    def validate(self) -> None:
        self._not_negative("end_factor")


@dataclass(frozen=True, kw_only=True)
class PlateauSchedule(WarmupSchedule):
    """Reduction by a factor when the validation loss stops improving."""

    name: str = field("plateau", init=False)
    factor: float = field(
        0.1,
        help="Factor that multiplies the learning rate at each reduction.",
        other_names="plateau_factor",
    )
    patience: int = field(
        10,
        help="Evaluations without improvement after which the learning rate is "
        "reduced.",
    )

    def validate(self) -> None:
        super().validate()
        self._share("factor")
        self._positive("patience")


SCHEDULES = PartTable("jaxtrain.training:SCHEDULES", CustomSchedule)
