"""Images changed on purpose, by little, so that the model errs."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from jaxtrain.training.scan import repeat

Norm = Literal["linf", "l2"]
# Images in 0..1 (B, H, W, C) -> the loss of each, (B,).
LossOf = Callable[[jax.Array], jax.Array]
# Of a step of PGD, in parts of the way to the border by so many equal steps.
STEP_FACTOR = 2.5
# On the loss, as the direction alone counts: a model in float16 would round the small
# gradients of images that it is sure of to 0, and look robust.
LOSS_SCALE = 2.0**10


@dataclass(frozen=True, kw_only=True)
class Ball:
    """The images that an attack may make of an image: near it, with pixels in 0..1.

    Attributes:
      epsilon: Largest change, in units of pixels in 0..1.
      norm: Norm of the change: its largest value (linf), or its length (l2).
    """

    epsilon: float
    norm: Norm = "linf"

    def direction(self, gradient: jax.Array) -> jax.Array:
        """Return the change of norm 1 that the loss rises most by, (B, H, W, C)."""
        if self.norm == "linf":
            return jnp.sign(gradient)
        # By its largest value first: the squares of what is small would be 0.
        largest = jnp.abs(gradient).max((1, 2, 3), keepdims=True)
        scaled = gradient / _or_one(largest)
        return scaled / _or_one(_length(scaled))

    def project(self, images: jax.Array, changed: jax.Array) -> jax.Array:
        """Return the nearest images in the ball around `images`, then in 0..1."""
        change = changed - images
        if self.norm == "linf":
            change = jnp.clip(change, -self.epsilon, self.epsilon)
        else:
            change *= jnp.minimum(1, self.epsilon / _or_one(_length(change)))
        return jnp.clip(images + change, 0, 1)

    def draw(self, images: jax.Array, keys: jax.Array) -> jax.Array:
        """Return images drawn evenly from the ball, then cut to 0..1.

        Args:
          images: Images in 0..1, (B, H, W, C).
          keys: Key of each image, (B,).
        """
        shape, dtype = images.shape[1:], images.dtype

        def of_cube(key: jax.Array) -> jax.Array:
            return jax.random.uniform(key, shape, dtype, -1, 1)

        def of_ball(key: jax.Array) -> jax.Array:
            direction, radius = jax.random.split(key)
            normal = jax.random.normal(direction, shape, dtype)
            # The volume within a radius goes with its power of the number of values.
            part = jax.random.uniform(radius, (), dtype) ** (1 / math.prod(shape))
            return normal * (part / jnp.sqrt(jnp.square(normal).sum()))

        draw = of_cube if self.norm == "linf" else of_ball
        return jnp.clip(images + self.epsilon * jax.vmap(draw)(keys), 0, 1)


@dataclass(frozen=True, kw_only=True)
class Pgd:
    """Steps of one length up the loss, each followed by the projection into the ball.

    From a random image of the ball it is PGD (Madry et al. 2018, arXiv:1706.06083); one
    step of `epsilon` from the image itself is FGSM (Goodfellow et al. 2015,
    arXiv:1412.6572), by the l2 norm along the gradient.

    Attributes:
      ball: Images that are allowed.
      steps: Number of steps; the last image counts.
      step_size: Length of a step, in units of pixels in 0..1. None means 2.5 epsilon /
        steps.
    """

    ball: Ball
    steps: int
    step_size: float | None = None

    def __call__(
        self, loss_of: LossOf, images: jax.Array, start: jax.Array
    ) -> jax.Array:
        """Return images near `images` with a higher loss, in 0..1. Traced.

        Args:
          loss_of: Function of images that is to rise.
          images: Images in 0..1, (B, H, W, C), float.
          start: Images to begin with.
        """

        def body(at: jax.Array, _: jax.Array) -> tuple[jax.Array, None]:
            return self.ascend(loss_of, images, at), None

        return repeat(body, start, jnp.arange(self.steps))[0]

    def ascend(self, loss_of: LossOf, images: jax.Array, at: jax.Array) -> jax.Array:
        """Return the images after one step from `at`. Traced."""
        size = self.step_size
        if size is None:
            size = STEP_FACTOR * self.ball.epsilon / self.steps

        def total(at: jax.Array) -> jax.Array:
            return LOSS_SCALE * loss_of(at).sum()

        gradient = finite(jax.grad(total)(at))
        return self.ball.project(images, at + size * self.ball.direction(gradient))


def finite(gradient: jax.Array) -> jax.Array:
    """Return 0 for what float16 overflows at: such a pixel would count as an error."""
    return jnp.where(jnp.isfinite(gradient), gradient, 0)


def _length(x: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.square(x).sum((1, 2, 3), keepdims=True))


def _or_one(divisor: jax.Array) -> jax.Array:
    """Return 1 for 0. A least number would not do: XLA multiplies two divisors."""
    return jnp.where(divisor > 0, divisor, 1)
