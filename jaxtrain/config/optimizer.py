"""The part `optimizer`: fields of all optimizers, and the learning-rate schedule."""

from dataclasses import dataclass

from jaxtrain.config.base import MAX_COUNT
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
from jaxtrain.config.part import CustomConfig, Part, PartTable
from jaxtrain.config.schedule import SCHEDULES, ConstantSchedule, ScheduleConfig

# The optimizer with a line search.
LINE_SEARCH = "lbfgs"
LBFGS = choice("optimizer", "name", LINE_SEARCH)
OWN_OPTIMIZER = own_part("optimizer", "name")
# Schedule-free optimizer -> its option for beta in y = (1 - beta) z + beta x (Defazio
# et al. 2024).
SCHEDULE_FREE_NAMES = {"schedule_free_sgd": "momentum", "schedule_free_adamw": "b1"}
SCHEDULE_FREE = choice("optimizer", "name", *SCHEDULE_FREE_NAMES)
# Optimizers that estimate the learning rate from the distance to the initial weights.
DISTANCE_NAMES = ("prodigy", "dadapt_adamw")
DISTANCE = choice("optimizer", "name", *DISTANCE_NAMES)
LOOKAHEAD = option("optimizer", "lookahead_steps")
PLATEAU = choice("optimizer.schedule", "name", "plateau")
DECAY = Feature(
    "optimizer.schedule", ("name",), "other than constant", lambda x: x != "constant"
)
ONE_AVERAGE = "a run evaluates one average of its weights"


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Part, base=True):
    """An optimizer and its schedule; subclasses declare the options of optimizers."""

    shown = "an instance, such as AdamWConfig(), or a name"
    name: str = field("", init=False)
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
        help="Layer-wise learning-rate decay: ratio of the learning rate of each block "
        "to that of the next; the head has the full learning rate. Or a learning-rate "
        "factor for each of several patterns of layer or parameter paths, such as "
        "conv1 0.1 */bias 2; the last matching pattern counts. None: 1.",
    )
    clip_norm: float | None = field(
        None,
        help="Maximum global gradient norm; None: no clipping.",
        other_names="clip_grad gradient_clip_val",
    )
    clip_ratio: float | None = field(
        None,
        help="Adaptive gradient clipping (Brock et al. 2021): maximum ratio of "
        "gradient norm to weight norm, for each output unit of a layer; None: no "
        "clipping.",
    )
    lookahead_steps: int | None = field(
        None,
        help="Lookahead (Zhang et al. 2019): steps between updates of the slow "
        "weights, with step size 0.5. Evaluations use the slow weights. None: no "
        "lookahead.",
    )
    schedule: ScheduleConfig = field(
        default_factory=ConstantSchedule,
        help="Learning-rate schedule after the warm-up, with its options.",
        table=SCHEDULES,
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

    def validate(self) -> None:
        self._positive("learning_rate", "clip_norm", "clip_ratio")
        self._not_negative("weight_decay")
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
        self._within(2, MAX_COUNT, "lookahead_steps")
        self._all(["warmup_fraction"], lambda x: 0 <= x <= 1, "0 <= value <= 1")
        check(self, COMBINATIONS, "optimizer")


@dataclass(frozen=True, kw_only=True)
class CustomOptimizerConfig(CustomConfig, OptimizerConfig):
    """A user-defined optimizer, or a plug-in's optimizer without declared options."""


OPTIMIZERS = PartTable("jaxtrain.training:OPTIMIZERS", CustomOptimizerConfig)

COMBINATIONS = (
    Needs(
        option("optimizer.schedule", "warmup_factor"),
        Feature(
            "optimizer", tuple(with_metadata(OptimizerConfig, "one_of")), counts=bool
        ),
        "set optimizer.warmup_fraction too",
    ),
    Incompatible(
        SCHEDULE_FREE,
        DECAY,
        "schedule-free optimizers average the weights instead of decaying the learning "
        "rate",
        "leave optimizer.schedule out",
    ),
    Incompatible(
        SCHEDULE_FREE,
        LOOKAHEAD,
        ONE_AVERAGE,
        "leave optimizer.lookahead_steps out",
    ),
    Incompatible(
        DISTANCE,
        option("optimizer", "layer_decay"),
        "the optimizer estimates one learning rate for all layers, from the distance "
        "between the current and the initial weights",
        "leave optimizer.layer_decay out, or use adamw",
    ),
    Incompatible(
        DISTANCE,
        PLATEAU,
        "the learning-rate estimate needs the schedule of the entire run in advance",
        "use another optimizer.schedule, such as cosine",
    ),
)
