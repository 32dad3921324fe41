"""Auto-PGD: an attack with an adaptive step size.

Croce and Hein 2020, "Reliable evaluation of adversarial robustness with an ensemble of
diverse parameter-free attacks", arXiv:2003.01690: algorithm 1, with the constants in
the paper.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.plugins.adversarial.attacks import LOSS_SCALE, Ball, finite

# Weight of the gradient step; the weight of the previous update is 1 minus this.
MOMENTUM_WEIGHT = 0.75
# The step size is halved at a checkpoint if fewer than this fraction of the steps since
# the previous checkpoint increased the loss.
LEAST_RISES = 0.75
# Initial step size, as a multiple of epsilon.
FIRST_STEP = 2.0
# As fractions of the number of steps: the first checkpoint after 0, the decrease of the
# distance from one pair of checkpoints to the next, and the minimum distance.
FIRST_CHECKPOINT, NEARER, LEAST_DISTANCE = 0.22, 0.03, 0.06

# Function of images in 0..1, (B, H, W, C), that returns the loss, and whether the
# prediction is wrong, both (B,).
Judge = Callable[[jax.Array], tuple[jax.Array, jax.Array]]


class Climb(NamedTuple):
    """State of the attack on a batch; all arrays but `number` are (B, ...).

    Attributes:
      number: Number of steps taken, int32 ().
      image: Current images, x_k in the paper.
      before: Images before the last step, x_(k-1).
      loss: Loss of `image`.
      gradient: Gradient of the loss at `image`.
      best: Images with the highest loss so far, x_max.
      best_loss: Loss of `best`, f_max.
      best_gradient: Gradient of the loss at `best`.
      size: Step size of the next step, eta.
      rises: Number of steps that increased the loss since the last checkpoint.
      last_best: `best_loss` at the last checkpoint.
      is_halved: Whether `size` was halved at the last checkpoint.
      answer: Result of the attack: the first image that fooled the model, or `best` if
        the model was not fooled.
      errs: Whether the model was fooled.
    """

    number: jax.Array
    image: jax.Array
    before: jax.Array
    loss: jax.Array
    gradient: jax.Array
    best: jax.Array
    best_loss: jax.Array
    best_gradient: jax.Array
    size: jax.Array
    rises: jax.Array
    last_best: jax.Array
    is_halved: jax.Array
    answer: jax.Array
    errs: jax.Array


@dataclass(frozen=True, kw_only=True)
class Apgd:
    """Projected gradient ascent with momentum; checkpoints may halve the step size.

    Attributes:
      ball: Norm ball of the allowed perturbations.
      steps: Number of gradient steps.
    """

    ball: Ball
    steps: int = 100

    def begin(self, judge: Judge, start: jax.Array) -> Climb:
        """Create the state before the first step. Traced.

        Args:
          judge: Function that computes the loss to maximize.
          start: Initial images, inside the ball, (B, H, W, C).
        """
        loss, gradient, errs = _look(judge, start)
        return Climb(
            number=jnp.zeros((), jnp.int32),
            image=start,
            before=start,
            loss=loss,
            gradient=gradient,
            best=start,
            best_loss=loss,
            best_gradient=gradient,
            size=jnp.full_like(loss, FIRST_STEP * self.ball.epsilon),
            rises=jnp.zeros_like(loss, jnp.int32),
            last_best=loss,
            is_halved=jnp.zeros_like(errs),
            answer=start,
            errs=errs,
        )

    def advance(self, judge: Judge, images: jax.Array, at: Climb) -> Climb:
        """Take one step of the attack. Traced.

        Args:
          judge: Function that computes the loss to maximize.
          images: Clean images in 0..1, (B, H, W, C).
          at: State before the step.
        """
        is_first = at.number == 0
        # The first step has no momentum.
        weight = jnp.where(is_first, 1, MOMENTUM_WEIGHT).astype(images.dtype)
        step = _each(at.size) * self.ball.direction(at.gradient)
        ahead = self.ball.project(images, at.image + step)
        moved = weight * (ahead - at.image) + (1 - weight) * (at.image - at.before)
        image = self.ball.project(images, at.image + moved)
        loss, gradient, errs = _look(judge, image)
        here = image, loss, gradient
        best = at.best, at.best_loss, at.best_gradient
        best = _where(loss > at.best_loss, here, best)
        # As in the paper, the first checkpoint compares `best_loss` to its value after
        # the first step.
        last_best = jnp.where(is_first, best[1], at.last_best)

        distance = jnp.asarray(self._distances())[at.number]
        is_checkpoint = distance > 0
        too_few = at.rises < LEAST_RISES * distance
        stands = ~at.is_halved & (best[1] == last_best)
        halves = is_checkpoint & (too_few | stands)
        image, loss, gradient = _where(halves, best, here)
        return Climb(
            number=at.number + 1,
            image=image,
            before=at.image,
            loss=loss,
            gradient=gradient,
            best=best[0],
            best_loss=best[1],
            best_gradient=best[2],
            size=jnp.where(halves, at.size / 2, at.size),
            rises=jnp.where(is_checkpoint, 0, at.rises) + (loss > at.loss),
            last_best=jnp.where(is_checkpoint, best[1], last_best),
            is_halved=jnp.where(is_checkpoint, halves, at.is_halved),
            answer=_where(at.errs, (at.answer,), _where(errs, here[:1], best[:1]))[0],
            errs=at.errs | errs,
        )

    def _distances(self) -> np.ndarray:
        """Distance of each checkpoint from the previous one, int32 (steps,).

        Steps that are not checkpoints have a distance of 0.
        """
        found = np.zeros(self.steps, np.int32)
        places = checkpoints(self.steps)
        for before, place in itertools.pairwise(places):
            if place < self.steps:
                found[place] = place - before
        return found


def checkpoints(steps: int) -> list[int]:
    """Step numbers, from 0, of an attack's checkpoints (w_0, w_1, ... in the paper)."""
    parts = [0.0, FIRST_CHECKPOINT]
    while parts[-1] < 1:
        last = parts[-1] - parts[-2]
        parts.append(parts[-1] + max(last - NEARER, LEAST_DISTANCE))
    # Correct rounding errors of the sums: 57.00000000000001 must not become 58.
    return sorted({math.ceil(round(part * steps, 6)) for part in parts if part <= 1})


def targeted_dlr(logits: jax.Array, labels: jax.Array, targets: jax.Array) -> jax.Array:
    """Targeted difference-of-logits-ratio loss, (B,).

    -(z_label - z_target) / (z_1 - (z_3 + z_4) / 2), where z_k is the k-th largest
    logit. The loss is invariant to the scale of the logits.

    Args:
      logits: Logits of at least four classes, (B, classes).
      labels: True classes, int (B,).
      targets: Target classes of the attack, int (B,).
    """

    def of(classes: jax.Array) -> jax.Array:
        return jnp.take_along_axis(logits, classes[:, None], 1)[:, 0]

    ordered = jnp.sort(logits, axis=-1)
    scale = ordered[:, -1] - (ordered[:, -3] + ordered[:, -4]) / 2
    return (of(targets) - of(labels)) / (scale + 1e-12)


def likeliest_others(logits: jax.Array, labels: jax.Array, num: int) -> jax.Array:
    """Wrong classes with the `num` highest logits, highest first, int (num, B)."""
    others = jnp.where(jax.nn.one_hot(labels, logits.shape[-1]) > 0, -jnp.inf, logits)
    return jnp.argsort(-others, axis=-1)[:, :num].T


def _look(judge: Judge, images: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Per image: loss, gradient, and whether the prediction is wrong."""

    def total(images: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        losses, errs = judge(images)
        return LOSS_SCALE * losses.sum(), (losses, errs)

    gradient, (losses, errs) = jax.grad(total, has_aux=True)(images)
    return losses, finite(gradient), errs


def _each(x: jax.Array) -> jax.Array:
    return x[:, None, None, None]


def _where(
    chosen: jax.Array, ours: tuple[jax.Array, ...], theirs: tuple[jax.Array, ...]
) -> tuple[jax.Array, ...]:
    """Select per image from arrays (B, ...): `ours` where `chosen`, else `theirs`."""
    return tuple(
        jnp.where(chosen.reshape(-1, *(1,) * (a.ndim - 1)), a, b)
        for a, b in zip(ours, theirs, strict=True)
    )
