"""Phases of a run: consecutive steps with the same compiled program."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import optax

from jaxtrain.config.augment import AugmentConfig
from jaxtrain.config.train import Remat
from jaxtrain.training.frozen import NOTHING, Frozen
from jaxtrain.training.schedules import Schedule
from jaxtrain.training.transforms.base import StepTransform


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Consecutive steps with the same compiled program.

    Attributes:
      start: First step of the phase.
      tx: Optimizer of the trainable parameters, with clipping. `tx.update` takes
        `grad_norm`, and `learning_rate` unless `rate_from` is None.
      schedule: Learning-rate schedule; None with a line search.
      transforms: Step transforms, in order.
      frozen: Frozen layers, without gradients.
      momenta: Momentum per micro-batch of the batch-norm running statistics, keyed by
        path in the model state.
      num_micro: Number of micro-batches of gradient accumulation.
      rate_from: Lower bound on the argument of the schedule. The learning rate is
        `schedule(max(rate_from, n))` after n steps that were not skipped, and is passed
        to `tx.update`. None means that `tx` evaluates the schedule at the step count in
        the optimizer state.
      line_search: Whether the optimizer has a line search, which evaluates the loss at
        other parameters.
      remat: Rematerialization policy: activations to recompute in the backward pass.
      augment: Augmentation of the images.
      image_size: Height and width of training images in pixels. None means the size in
        evaluation.
    """

    tx: optax.GradientTransformationExtraArgs
    start: int = 0
    schedule: Schedule | None = None
    transforms: tuple[StepTransform, ...] = ()
    frozen: Frozen = NOTHING
    momenta: Mapping[str, float] = field(default_factory=dict)
    num_micro: int = 1
    rate_from: int | None = None
    line_search: bool = False
    remat: Remat = "none"
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    image_size: int | None = None
