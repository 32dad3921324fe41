"""The section `train`: length, steps, evaluations, and when a run stops."""

from dataclasses import dataclass
from typing import Literal

from jaxtrain.config.base import Section, report
from jaxtrain.config.combinations import check
from jaxtrain.config.metadata import field
from jaxtrain.config.train_combinations import COMBINATIONS

Remat = Literal["none", "block", "conv_outputs", "full"]


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Section):
    """Length, steps, evaluations and early stopping of a run."""

    epochs: float | None = field(
        None,
        help="Length of the run in epochs; give either epochs or steps.",
        may_change_on_resume=True,
        common=True,
        other_names="epoch epochs num_epochs max_epochs",
        one_of="length",
    )
    steps: int | None = field(
        None,
        help="Length of the run in optimizer steps.",
        may_change_on_resume=True,
        other_names="steps max_steps",
        one_of="length",
    )
    stop_after_steps: int | None = field(
        None,
        help="Stop after this many steps, as if interrupted; the schedule is "
        "unchanged. With steps_per_call, the run stops at the end of a call.",
        may_change_on_resume=True,
        fixed_in_trials="a trial is trained to its end",
    )
    steps_per_call: int = field(
        1,
        help="Number of steps compiled into one call, to reduce the dispatch overhead "
        "of small models on a GPU.",
        may_change_on_resume=True,
    )
    accumulate_steps: int = field(
        1,
        help="Gradient accumulation: number of micro-batches whose gradients are "
        "averaged for one step.",
        other_names="accumulate_grad_batches grad_accum_steps",
    )
    remat: Remat = field(
        "none",
        help="Rematerialization (gradient checkpointing) in the backward pass, to save "
        "memory: none; each block, storing only its input (block); everything but the "
        "outputs of convolutions and dense layers (conv_outputs); or sections of "
        "several blocks (full).",
        may_change_on_resume=True,
    )
    max_bad_steps: int = field(
        10,
        help="Stop the run after this many consecutive steps with non-finite "
        "gradients.",
        may_change_on_resume=True,
    )
    step_timeout_seconds: float | None = field(
        None,
        help="Seconds without a finished training or evaluation step after which the "
        "run exits with code 75 (to be restarted); None: no timeout.",
        may_change_on_resume=True,
    )
    profile_steps: tuple[int, int] | None = field(
        None,
        help="Two numbers, START END: profile steps START + 1 to END. The result is a "
        "trace, and a table of the time of each layer; None: no profile. With "
        "steps_per_call, the profile covers whole calls.",
        may_change_on_resume=True,
        fixed_in_trials="profile a separate run",
    )
    spike_sigma: float | None = field(
        None,
        help="Loss spikes: skip a step if its loss is more than this many standard "
        "deviations above the moving average (over a tenth of the run, 10 to 100 "
        "steps); None: never.",
    )
    freeze: tuple[str, ...] = field(
        (),
        help="Frozen layers: patterns of layer paths, such as stage1_block*, or "
        "backbone for all but the head. Frozen batch norms use the running statistics.",
        other_names="freeze",
    )
    freeze_epochs: float | None = field(
        None,
        help="Epochs after which the frozen layers are unfrozen; None: never.",
    )
    fine_tune: bool = field(
        False,
        help="Fine-tune like fastai: only the head for freeze_epochs (default: 1, or "
        "half the run if it has at most 1 epoch), then all layers, with a hundredth of "
        "the learning rate for the first layers.",
        common=True,
    )
    ema_decay: float | None = field(
        None,
        help="Decay of the exponential moving average (EMA) of the weights, which is "
        "evaluated instead of the weights; None: no EMA.",
        other_names="ema model_ema_decay",
    )
    swa_start_epochs: float | None = field(
        None,
        help="Stochastic weight averaging (SWA, Izmailov et al. 2018): epochs after "
        "which the weights are averaged equally, once per epoch; the average is "
        "evaluated. None: no SWA.",
    )
    swa_factor: float | None = field(
        None,
        help="Constant learning rate during SWA, as a fraction of the peak learning "
        "rate; None: the schedule continues.",
    )
    tta: Literal["flip"] | None = field(
        None,
        help="Test-time augmentation: average the probabilities of an image and its "
        "horizontal flip (flip), during the run and in `evaluate`; None: no "
        "augmentation.",
        unusual="the task has no class probabilities to average",
    )
    eval_every_epochs: float | None = field(
        None,
        help="Epochs between evaluations on the validation split; default: 1.",
        may_change_on_resume=True,
        one_of="evaluations",
    )
    eval_every_steps: int | None = field(
        None,
        help="Steps between evaluations on the validation split.",
        may_change_on_resume=True,
        one_of="evaluations",
    )
    early_stop_patience: int | None = field(
        None,
        help="Stop after this many evaluations without improvement of "
        "early_stop_metric.",
        may_change_on_resume=True,
        common=True,
        other_names="patience",
    )
    early_stop_metric: str = field(
        "loss",
        help="Validation metric that early stopping monitors.",
        may_change_on_resume=True,
    )

    metrics: tuple[str, ...] = field(
        (),
        help="Custom metrics, reported in addition to the task's metrics: "
        "path/to/file.py:name or package.module:name.",
        may_change_on_resume=True,
        code_of_model=True,
    )

    def validate(self) -> None:
        self._positive("epochs", "steps", "stop_after_steps")
        self._positive("steps_per_call", "accumulate_steps", "max_bad_steps")
        self._seconds("step_timeout_seconds")
        self._positive("eval_every_epochs", "eval_every_steps", "early_stop_patience")
        self._fraction("ema_decay")
        self._positive("swa_start_epochs", "swa_factor")
        self._positive("freeze_epochs")
        self._positive("spike_sigma")
        steps = self.profile_steps
        growing = steps is None or 0 <= steps[0] < steps[1]
        self._check("profile_steps", growing, "two increasing numbers of 0 or more")
        check(self, COMBINATIONS, "train")
        if self.epochs is self.steps is None:
            report(
                "the length of the run is missing: set train.epochs or train.steps",
                "train.epochs",
            )

    @property
    def first_frozen(self) -> tuple[str, ...]:
        """Patterns of the layers to freeze, always or in the first epochs."""
        return self.freeze or (("backbone",) if self.fine_tune else ())

    @property
    def first_epochs(self) -> float | None:
        """Number of epochs before frozen layers are unfrozen; None means never."""
        default = 1.0 if self.fine_tune else None
        return default if self.freeze_epochs is None else self.freeze_epochs
