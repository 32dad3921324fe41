"""The section `train`: length, steps, evaluations, and when a run stops."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from jaxtrain.config import classification
from jaxtrain.config.base import Options, report, row_of
from jaxtrain.config.classification import ClassificationOptions
from jaxtrain.config.combinations import Incompatible, Needs, check, option
from jaxtrain.config.metadata import field, with_metadata
from jaxtrain.config.optimizer import (
    DISTANCE,
    LBFGS,
    LOOKAHEAD,
    ONE_AVERAGE,
    OWN_OPTIMIZER,
    SCHEDULE_FREE,
    OptimizerConfig,
)
from jaxtrain.config.parallel import NEW_STATISTICS, STAGES

Remat = Literal["none", "block", "conv_outputs", "full"]

METHOD = option("train", "method")
SWA = option("train", "swa_start_epochs")
FROZEN_AT_FIRST = option("train", "freeze_epochs", "fine_tune")
COMBINATIONS = (
    Incompatible(
        METHOD,
        STAGES,
        "a method needs passes of the whole model, of which each stage has a part",
        "set parallel.pipeline_stages to 1",
    ),
    Incompatible(
        METHOD,
        LBFGS,
        "the line search of lbfgs asks for the loss that the plain method lowers",
        "use another optimizer.name",
    ),
    Needs(option("train", "method_options"), METHOD, "leave them out"),
    *classification.COMBINATIONS,
    Needs(
        option("train", "freeze_epochs"),
        option("train", "freeze", "fine_tune"),
        "name the layers, such as backbone",
    ),
    Incompatible(
        LBFGS,
        FROZEN_AT_FIRST,
        "its memory of past gradients and steps is that of all layers",
        "leave train.freeze_epochs out, or use another optimizer.name",
    ),
    Incompatible(
        DISTANCE,
        FROZEN_AT_FIRST,
        "it estimates one rate for all layers, from how far all have moved with it",
        "leave train.freeze_epochs out, or use another optimizer.name",
    ),
    Incompatible(
        SCHEDULE_FREE,
        FROZEN_AT_FIRST,
        "its average would keep for long what these layers begin with",
        "leave train.freeze_epochs out, or use another optimizer.name",
    ),
    Incompatible(option("train", "ema_decay"), SWA, ONE_AVERAGE, "give one of both"),
    Incompatible(
        SCHEDULE_FREE,
        option("train", "ema_decay", "swa_start_epochs"),
        ONE_AVERAGE,
        "leave it out",
    ),
    Incompatible(
        LOOKAHEAD,
        option("train", "ema_decay", "swa_start_epochs"),
        ONE_AVERAGE,
        "give one of both",
    ),
    Incompatible(SWA, STAGES, NEW_STATISTICS, "use train.ema_decay"),
    Incompatible(
        LBFGS,
        option("train", "swa_factor"),
        "its line search finds the length of every step",
        "leave it out",
    ),
    Needs(option("train", "swa_factor"), SWA),
    Incompatible(
        OWN_OPTIMIZER,
        FROZEN_AT_FIRST,
        "an optimizer of your own may need the gradients of all layers together",
        "leave train.freeze_epochs out, or use one of the table",
    ),
    Incompatible(
        option("optimizer", *with_metadata(OptimizerConfig, "set_by_fine_tune")),
        option("train", "fine_tune"),
        "fine_tune has a schedule of its own, two cycles",
        "leave it out, or give train.freeze, train.freeze_epochs and "
        "optimizer.layer_decay in place of train.fine_tune",
    ),
    Incompatible(
        option("train", "profile_steps"),
        STAGES,
        "the programs of the stages have instructions of the same names, which a trace "
        "does not tell apart",
        "profile with parallel.pipeline_stages 1",
    ),
    Incompatible(
        option("train", "tta"),
        STAGES,
        "a view needs passes of the whole model, of which each stage has a part",
        "leave train.tta out and give --tta to evaluate",
    ),
    Needs(
        option("train", "spike_window"),
        option("train", "spike_sigma"),
        "set that too, to 10 for example",
    ),
)


@dataclass(frozen=True, kw_only=True)
class TrainConfig(ClassificationOptions):
    """The run: its length, its steps, its evaluations, and when it stops."""

    # Length in epochs; one of epochs and steps.
    epochs: float | None = field(
        None,
        may_change_on_resume=True,
        common=True,
        other_names="epoch epochs num_epochs max_epochs",
        one_of="length",
    )
    # Length in optimizer steps.
    steps: int | None = field(
        None, may_change_on_resume=True, other_names="steps max_steps", one_of="length"
    )
    # Stop once this many steps are done, as if interrupted; the schedule is unchanged.
    # (With steps_per_call, at the end of the call.)
    stop_after_steps: int | None = field(None, may_change_on_resume=True)
    # Steps compiled into one call: fewer dispatches, for small models on a GPU.
    steps_per_call: int = field(1, may_change_on_resume=True)
    # Micro-batches whose gradients are averaged into one step.
    accumulate_steps: int = field(
        1, other_names="accumulate_grad_batches grad_accum_steps"
    )
    # What the backward pass computes again, to store less: nothing; each block of the
    # model, of which only the input is stored; all but convolutions and dense layers;
    # or all that it can (full): sections of blocks.
    remat: Remat = field("none", may_change_on_resume=True)
    # Non-finite steps in a row after which the run stops.
    max_bad_steps: int = field(10, may_change_on_resume=True)
    # Seconds without a finished step, or batch of an evaluation, after which the run
    # ends with exit code 75 (start again); None: it waits for ever.
    step_timeout_seconds: float | None = field(None, may_change_on_resume=True)
    # Profile the steps after the first number up to the second: a trace, and a table of
    # the time of each layer; None: no step. (With steps_per_call, whole calls.)
    profile_steps: tuple[int, int] | None = field(None, may_change_on_resume=True)
    # Standard deviations above the mean of the last losses that make a loss a spike,
    # whose step changes nothing but the counts; None: spikes are not looked for.
    spike_sigma: float | None = None
    # Steps over which that mean and deviation are taken.
    spike_window: int = 100
    # How a step gets its gradients; or a method of your own.
    method: Annotated[str, row_of("jaxtrain.training.methods:METHODS")] = "plain"
    # Options of the method, by name.
    method_options: Options = field(
        default_factory=dict, rows="jaxtrain.training.methods:METHODS"
    )
    # Layers that are not trained: patterns of their paths, such as stage1_block*, or
    # backbone, all but the last. Their batch norms use the running statistics.
    freeze: tuple[str, ...] = field((), other_names="freeze")
    # Epochs after which these are trained, too; None: never.
    freeze_epochs: float | None = None
    # Fine-tune as fastai does: the head alone for freeze_epochs (then 1 by default, or
    # half of a run of 1 or less), all layers for the rest of the epochs, the first ones
    # at a hundredth of the rate.
    fine_tune: bool = field(False, common=True)
    # Decay of the moving average of the weights, which is then what is evaluated.
    ema_decay: float | None = field(None, other_names="ema model_ema_decay")
    # Epochs after which the weights are averaged once an epoch, with equal weights
    # (SWA, Izmailov et al. 2018), and the mean is evaluated; None: no mean.
    swa_start_epochs: float | None = None
    # Learning rate from then on as a fraction of the peak; None: that of the schedule.
    swa_factor: float | None = None
    # Average the probabilities of an image and its mirror image (flip) in evaluations,
    # and in those of `evaluate`; None: of the image alone.
    tta: Literal["flip"] | None = None
    # Epochs between evaluations on the validation split; default: 1.
    eval_every_epochs: float | None = field(
        None, may_change_on_resume=True, one_of="evaluations"
    )
    # Steps between evaluations on the validation split.
    eval_every_steps: int | None = field(
        None, may_change_on_resume=True, one_of="evaluations"
    )
    # Stop after this many evaluations without improvement of early_stop_metric.
    early_stop_patience: int | None = field(
        None, may_change_on_resume=True, common=True, other_names="patience"
    )
    # Validation metric that early stopping watches.
    early_stop_metric: str = field("loss", may_change_on_resume=True)

    # Metrics of your own, told of evaluations beside those of the task:
    # path/to/file.py:name or package.module:name.
    metrics: tuple[str, ...] = field((), may_change_on_resume=True)

    def validate(self) -> None:
        super().validate()
        self._positive("epochs", "steps", "stop_after_steps")
        self._positive("steps_per_call", "accumulate_steps", "max_bad_steps")
        self._seconds("step_timeout_seconds")
        self._positive("eval_every_epochs", "eval_every_steps", "early_stop_patience")
        self._fraction("ema_decay")
        self._positive("swa_start_epochs", "swa_factor")
        self._positive("freeze_epochs")
        self._positive("spike_sigma")
        self._check("spike_window", self.spike_window >= 10, "10 or more")
        steps = self.profile_steps
        growing = steps is None or 0 <= steps[0] < steps[1]
        self._check("profile_steps", growing, "two rising numbers, the first 0 or more")
        check(self, COMBINATIONS, "train")
        if self.epochs is self.steps is None:
            report("give the run's length: epochs or steps", "train.epochs")

    @property
    def classification_options(self) -> dict[str, Any]:
        """The options of classification that are set."""
        own = ClassificationOptions()
        set_here = {name: getattr(self, name) for name in vars(own)}
        return {n: v for n, v in set_here.items() if v != getattr(own, n)}

    @property
    def first_frozen(self) -> tuple[str, ...]:
        """Patterns of the layers that are not trained, or not from the beginning."""
        return self.freeze or (("backbone",) if self.fine_tune else ())

    @property
    def first_epochs(self) -> float | None:
        """Epochs after which these are trained; None: never."""
        default = 1.0 if self.fine_tune else None
        return default if self.freeze_epochs is None else self.freeze_epochs
