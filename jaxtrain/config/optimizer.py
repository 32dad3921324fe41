"""The section `optimizer`: the optimizer and its learning-rate schedule."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from jaxtrain.config.base import MAX_COUNT, Options, Renamed, Section, row_of
from jaxtrain.config.combinations import (
    Feature,
    Incompatible,
    Needs,
    check,
    choice,
    option,
    own_part,
)
from jaxtrain.config.metadata import field, with_metadata

# The optimizer with a line search.
LINE_SEARCH = "lbfgs"
LBFGS = choice("optimizer", "name", LINE_SEARCH)
OWN_OPTIMIZER = own_part("optimizer", "name")
# Schedule-free optimizers -> option with the interpolation weight of x in
# y = (1 - beta) z + beta x (Defazio et al. 2024).
SCHEDULE_FREE_NAMES = {"schedule_free_sgd": "momentum", "schedule_free_adamw": "b1"}
SCHEDULE_FREE = choice("optimizer", "name", *SCHEDULE_FREE_NAMES)
# Optimizers that estimate the learning rate from the distance to the initial weights.
DISTANCE_NAMES = ("prodigy", "dadapt_adamw")
DISTANCE = choice("optimizer", "name", *DISTANCE_NAMES)
LOOKAHEAD = option("optimizer", "lookahead_steps")
PLATEAU = choice("optimizer", "schedule", "plateau")
ONE_AVERAGE = "a run evaluates one average of its weights"


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Section):
    """The optimizer and its learning-rate schedule."""

    name: Annotated[str, row_of("jaxtrain.training:OPTIMIZERS")] = field(
        "sgd",
        help="Optimizer, or import path of a custom one: path/to/file.py:name or "
        "package.module:name.",
        common=True,
        other_names="opt optim",
    )
    learning_rate: float | None = field(
        None,
        help="Peak learning rate, for the global batch; for prodigy and dadapt_adamw a "
        "factor on the estimated learning rate, usually 1; lbfgs uses a line search.",
        common=True,
        other_names="lr learning_rate lr0",
    )
    weight_decay: float = field(
        0.0,
        help="Weight decay; biases and norm parameters are not decayed.",
        common=True,
        other_names="wd weight_decay",
    )
    layer_decay: float | dict[str, float] | None = field(
        None,
        help="Layer-wise learning-rate decay: factor from each block of the model to "
        "the preceding block; the head has the full learning rate. Or factors by "
        "patterns of layer and parameter paths, such as conv1 0.1 */bias 2; the last "
        "match counts. None: 1.",
    )
    clip_norm: float | None = field(
        None,
        help="Largest global norm of the gradients; None: not clipped.",
        other_names="clip_grad gradient_clip_val",
    )
    clip_ratio: float | None = field(
        None,
        help="Adaptive gradient clipping (Brock et al. 2021): largest norm of the "
        "gradient of each output unit of a layer, as a fraction of the norm of the "
        "unit's weights; None: not clipped.",
    )
    momentum: float | None = field(
        None,
        help="Momentum of sgd, sgdw, lars, rmsprop and muon; for schedule_free_sgd, "
        "beta: gradients are computed at beta times the averaged weights plus 1 - beta "
        "times the SGD weights.",
        part_option=True,
        other_names="momentum",
    )
    nesterov: bool | None = field(
        None,
        help="Nesterov momentum, for the optimizers with momentum, adam and adamw.",
        part_option=True,
    )
    b1: float | None = field(
        None,
        help="Decay of the first moment (adam, adamw, lamb, lion, adan, ademamix, "
        "adopt, prodigy, dadapt_adamw); for schedule_free_adamw, beta as in "
        "momentum for schedule_free_sgd.",
        part_option=True,
    )
    b2: float | None = field(
        None,
        help="Decay of the second moment (adam, adamw, lamb, lion, rmsprop, ademamix, "
        "adopt, schedule_free_adamw, prodigy, dadapt_adamw); for adan, decay of the "
        "average of gradient differences.",
        part_option=True,
    )
    eps: float | None = field(
        None,
        help="Epsilon, added to the denominator (adam, adamw, lamb, rmsprop, adagrad, "
        "adan, ademamix, adopt, schedule_free_adamw, prodigy, dadapt_adamw).",
        part_option=True,
    )
    lookahead_steps: int | None = field(
        None,
        help="Lookahead (Zhang et al. 2019): steps between updates of the slow "
        "weights, with step size 0.5. The slow weights are evaluated. None: no "
        "lookahead.",
    )
    schedule: Annotated[str, row_of("jaxtrain.training:SCHEDULES")] = field(
        "constant",
        help="Learning-rate schedule after the warm-up.",
        common=True,
        other_names="sched scheduler lr_scheduler",
        set_by_fine_tune=True,
    )
    warmup_epochs: float | None = field(
        None,
        help="Warm-up (linear), in epochs.",
        common=True,
        other_names="warmup warmup_epochs",
        one_of="warm-up",
        set_by_fine_tune=True,
    )
    warmup_steps: int | None = field(
        None,
        help="Warm-up in steps.",
        one_of="warm-up",
        set_by_fine_tune=True,
    )
    warmup_fraction: float | None = field(
        None,
        help="Warm-up as a fraction of the run.",
        one_of="warm-up",
        set_by_fine_tune=True,
    )
    warmup_factor: float | None = field(
        None,
        help="First learning rate of the warm-up as a fraction of the peak; default: "
        "0.",
    )
    end_factor: float | None = field(
        None,
        help="Last learning rate as a fraction of the peak (all schedules but "
        "constant and step); for cosine_restarts, at the end of each cycle.",
        set_by_fine_tune=True,
    )
    milestones: tuple[float, ...] | None = field(
        None,
        help="Steps at which the step schedule drops, as fractions of the run.",
        set_by_fine_tune=True,
    )
    step_every: float | None = field(
        None,
        help="Fraction of the run between drops of the step schedule, instead of "
        "milestones.",
        set_by_fine_tune=True,
    )
    step_factor: float | None = field(
        None,
        help="Factor of each drop of the step and plateau schedules; default: 0.1.",
        other_names="plateau_factor",
        set_by_fine_tune=True,
    )
    cycles: int | None = field(
        None,
        help="Number of cycles of cosine_restarts, all of the same length.",
        set_by_fine_tune=True,
    )
    power: float | None = field(
        None,
        help="Exponent of the polynomial schedule; default: 2.",
        set_by_fine_tune=True,
    )
    decay_fraction: float | None = field(
        None,
        help="Length of the decay of warmup_stable_decay, as a fraction of the run.",
        set_by_fine_tune=True,
    )
    plateau_patience: int | None = field(
        None,
        help="Evaluations without improvement of the validation loss before the "
        "plateau schedule reduces the learning rate; default: 10.",
        set_by_fine_tune=True,
    )

    options: Options = field(
        default_factory=dict,
        help="Arguments of the function of a custom or plug-in optimizer, by name.",
        part_option=True,
    )

    @classmethod
    def removed(cls) -> Mapping[str, Any]:
        return {
            "plateau_factor": Renamed("step_factor"),
            "rate_factors": {},
            "member_rates": [],
            "member_decays": [],
            "centralize": False,
            **dict.fromkeys(("b3", "lookahead_rate", "warmup_examples")),
            **dict.fromkeys(("cycle_growth", "plateau_metric")),
        }

    def validate(self) -> None:
        self._positive(
            *("learning_rate", "clip_norm", "clip_ratio", "eps", "step_factor", "power")
        )
        self._all(["step_factor"], lambda factor: factor <= 1, "a value of at most 1")
        self._not_negative("weight_decay", "end_factor")
        self._share("step_every", "decay_fraction")
        if isinstance(self.layer_decay, dict):
            factors = self.layer_decay.values()
            self._check(
                "layer_decay",
                bool(factors) and all(factor > 0 for factor in factors),
                "patterns with factors above 0; train.freeze freezes layers",
            )
        else:
            self._share("layer_decay")
        self._not_negative("warmup_epochs", "warmup_steps")
        self._fraction("momentum", "b1", "b2", "warmup_factor")
        self._within(2, MAX_COUNT, "lookahead_steps")
        self._positive("plateau_patience")
        # Each cycle makes the compiled step larger.
        self._within(2, 100, "cycles")
        self._all(["warmup_fraction"], lambda x: 0 <= x <= 1, "0 <= value <= 1")
        milestones = self.milestones or ()
        self._check(
            "milestones",
            all(0 < m < 1 for m in milestones)
            and list(milestones) == sorted(milestones),
            "increasing fractions of the run, between 0 and 1",
        )
        check(self, COMBINATIONS, "optimizer")


COMBINATIONS = (
    Incompatible(
        option("optimizer", "step_every"),
        option("optimizer", "milestones"),
        "both set the drops of the step schedule",
        "give one of them",
    ),
    Needs(
        option("optimizer", "warmup_factor"),
        Feature(
            "optimizer", tuple(with_metadata(OptimizerConfig, "one_of")), counts=bool
        ),
        "set optimizer.warmup_fraction too",
    ),
    Incompatible(
        SCHEDULE_FREE,
        option("optimizer", "schedule"),
        "its average of the weights replaces a decay of the learning rate",
        "leave optimizer.schedule out",
    ),
    Incompatible(SCHEDULE_FREE, LOOKAHEAD, ONE_AVERAGE, "leave it out"),
    Incompatible(
        DISTANCE,
        option("optimizer", "layer_decay"),
        "it estimates one learning rate for all layers, from their distance to the "
        "initial weights",
        "leave it out, or use adamw",
    ),
    Incompatible(
        DISTANCE,
        PLATEAU,
        "its estimate needs the learning rate of each step in advance",
        "use another optimizer.schedule, such as cosine",
    ),
)
