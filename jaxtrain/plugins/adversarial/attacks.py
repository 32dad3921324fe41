"""Adversarial attacks: small perturbations of images that increase the loss."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from jaxtrain.training.scan import repeat

Norm = Literal["linf", "l2"]
# Images in 0..1 (B, H, W, C) -> loss of each image, (B,).
LossOf = Callable[[jax.Array], jax.Array]
# Default step size of PGD, as a multiple of epsilon / steps.
STEP_FACTOR = 2.5
# Loss scale: without it, the small gradients of confident images would round to 0 in
# float16, and the model would seem robust. Only the direction of gradients matters.
LOSS_SCALE = 2.0**10


@dataclass(frozen=True, kw_only=True)
class Ball:
    """Norm ball around an image, restricted to pixels in 0..1.

    Attributes:
      epsilon: Maximum norm of the perturbation, for pixels in 0..1.
      norm: Norm of the perturbation: `linf` or `l2`.
    """

    epsilon: float
    norm: Norm = "linf"

    def direction(self, gradient: jax.Array) -> jax.Array:
        """Return the unit-norm step of steepest ascent, (B, H, W, C)."""
        if self.norm == "linf":
            return jnp.sign(gradient)
        # Divide by the largest value first: squares of small values would underflow.
        largest = jnp.abs(gradient).max((1, 2, 3), keepdims=True)
        scaled = gradient / _or_one(largest)
        return scaled / _or_one(_length(scaled))

    def project(self, images: jax.Array, changed: jax.Array) -> jax.Array:
        """Project `changed` onto the ball around `images`, then clip to 0..1."""
        change = changed - images
        if self.norm == "linf":
            change = jnp.clip(change, -self.epsilon, self.epsilon)
        else:
            change *= jnp.minimum(1, self.epsilon / _or_one(_length(change)))
        return jnp.clip(images + change, 0, 1)

    def draw(self, images: jax.Array, keys: jax.Array) -> jax.Array:
        """Draw a random point of the ball around each image, then clip to 0..1.

        Args:
          images: Images in 0..1, (B, H, W, C).
          keys: PRNG key of each image, (B,).
        """
        shape, dtype = images.shape[1:], images.dtype

        def of_cube(key: jax.Array) -> jax.Array:
            return jax.random.uniform(key, shape, dtype, -1, 1)

        def of_ball(key: jax.Array) -> jax.Array:
            direction, radius = jax.random.split(key)
            normal = jax.random.normal(direction, shape, dtype)
            # In n dimensions, the volume of a ball is proportional to radius ** n.
            part = jax.random.uniform(radius, (), dtype) ** (1 / math.prod(shape))
            return normal * (part / jnp.sqrt(jnp.square(normal).sum()))

        draw = of_cube if self.norm == "linf" else of_ball
        return jnp.clip(images + self.epsilon * jax.vmap(draw)(keys), 0, 1)


@dataclass(frozen=True, kw_only=True)
class Pgd:
    """Projected gradient ascent on the loss, with a constant step size.

    With a random start this is PGD (Madry et al. 2018, arXiv:1706.06083). One step of
    length `epsilon` from the clean image is FGSM (Goodfellow et al. 2015,
    arXiv:1412.6572); with the l2 norm, the step follows the gradient, not its sign.

    Attributes:
      ball: Norm ball of the allowed perturbations.
      steps: Number of steps; the last image is returned.
      step_size: Length of a step, for pixels in 0..1. Defaults to 2.5 epsilon / steps.
    """

    ball: Ball
    steps: int
    step_size: float | None = None

    def __call__(
        self, loss_of: LossOf, images: jax.Array, start: jax.Array
    ) -> jax.Array:
        """Return adversarial images in 0..1. Traced.

        Args:
          loss_of: Function to maximize: images -> loss of each image, (B,).
          images: Clean images in 0..1, (B, H, W, C), float.
          start: Initial images of the attack, (B, H, W, C).
        """

        def body(at: jax.Array, _: jax.Array) -> tuple[jax.Array, None]:
            return self.ascend(loss_of, images, at), None

        return repeat(body, start, jnp.arange(self.steps))[0]

    def ascend(self, loss_of: LossOf, images: jax.Array, at: jax.Array) -> jax.Array:
        """Take a step from `at`, then project onto the ball around `images`."""
        size = self.step_size
        if size is None:
            size = STEP_FACTOR * self.ball.epsilon / self.steps

        def total(at: jax.Array) -> jax.Array:
            return LOSS_SCALE * loss_of(at).sum()

        gradient = finite(jax.grad(total)(at))
        return self.ball.project(images, at + size * self.ball.direction(gradient))


def finite(gradient: jax.Array) -> jax.Array:
    """Replace non-finite gradients with 0: NaN images would count as misclassified."""
    return jnp.where(jnp.isfinite(gradient), gradient, 0)


def _length(x: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.square(x).sum((1, 2, 3), keepdims=True))


def _or_one(divisor: jax.Array) -> jax.Array:
    """Replace zeros with 1.

    Adding a small epsilon instead is unsafe: XLA may rewrite (a / b) / c as
    a / (b * c), where the product of small divisors underflows.
    """
    return jnp.where(divisor > 0, divisor, 1)
