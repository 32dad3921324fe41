"""The section `optimizer`: the method and the schedule of its learning rate."""

from dataclasses import dataclass, field
from typing import Annotated

from jaxtrain.config.base import Options, Section
from jaxtrain.config.names import row_of


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Section):
    """The method that changes the weights, and its learning rate over the run."""

    # The method, or one of your own: path/to/file.py:name or package.module:name.
    name: Annotated[str, row_of("jaxtrain.training.optimizers:OPTIMIZERS")] = "sgd"
    # Peak learning rate, for the global batch; lbfgs searches its own.
    learning_rate: float | None = None
    # Weight decay; biases and norm parameters are left out.
    weight_decay: float = 0.0
    # Largest global norm of the gradients; None: not clipped.
    clip_norm: float | None = None
    # Momentum of sgd, lars, rmsprop and muon.
    momentum: float | None = None
    # Nesterov momentum, of the same, and of adam and adamw.
    nesterov: bool | None = None
    # Decay of the first moment (adam, adamw, lamb, lion).
    b1: float | None = None
    # Decay of the second moment (adam, adamw, lamb, lion, rmsprop).
    b2: float | None = None
    # Added to the denominator (adam, adamw, lamb, rmsprop, adagrad).
    eps: float | None = None
    # How the learning rate goes on after the warm-up.
    schedule: Annotated[str, row_of("jaxtrain.training.schedules:SCHEDULES")] = (
        "constant"
    )
    # Warm-up from 0 (linear), in epochs.
    warmup_epochs: float | None = None
    # Warm-up in steps.
    warmup_steps: int | None = None
    # Warm-up in examples.
    warmup_examples: int | None = None
    # Last learning rate as a fraction of the peak (cosine, linear, exponential,
    # one_cycle).
    end_factor: float | None = None
    # Where the step schedule drops, as fractions of the whole run.
    milestones: tuple[float, ...] | None = None
    # Factor of each drop of the step schedule.
    step_factor: float | None = None

    # Of an optimizer of your own: what its function takes.
    options: Options = field(default_factory=dict)

    def validate(self) -> None:
        self._positive("learning_rate", "clip_norm", "eps", "step_factor")
        factor = self.step_factor
        self._check(
            "step_factor", factor is None or factor <= 1, "a value of at most 1"
        )
        self._not_negative("weight_decay", "end_factor")
        self._not_negative("warmup_epochs", "warmup_steps", "warmup_examples")
        self._fraction("momentum", "b1", "b2")
        milestones = self.milestones or ()
        self._check(
            "milestones",
            all(0 < m < 1 for m in milestones)
            and list(milestones) == sorted(milestones),
            "rising fractions of the run, between 0 and 1",
        )
