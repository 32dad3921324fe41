"""Phases of a run: steps that are one program."""

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
    """Steps that are one program, and what they do.

    Attributes:
      start: Number of steps before it.
      tx: Optimizer of the trained parameters, with clipping; its `update` gets
        `grad_norm`, and the `learning_rate` if there is a `rate_from`.
      schedule: Learning rate by the step; None logs none.
      transforms: Transforms of the step, in order.
      frozen: Layers that are not trained: they have no gradients.
      momenta: Momentum of each running statistic of `BatchNorm`, for one micro-batch,
        by its path.
      num_micro: Number of micro-batches, whose gradients are averaged.
      rate_from: Least step of the schedule, however many steps were skipped before. The
        optimizer is then given the rate. None: it counts the steps itself.
      line_search: Whether the optimizer asks for the loss at other parameters.
      remat: Outputs that the backward pass computes again.
      augment: Augmentation of the images.
      image_size: Height and width of the training images; None: those of evaluations.
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
