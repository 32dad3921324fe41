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
class Attack:
    """An attack that knows the model, and the largest change that it may make.

    Attributes:
      name: `fgsm`, one step from the image (Goodfellow et al. 2015, arXiv:1412.6572;
        by the l2 norm, along the gradient), or `pgd`, several steps from a random place
        near it, each followed by the nearest allowed image (Madry et al. 2018,
        arXiv:1706.06083).
      epsilon: of the change, in units of pixels in 0..1.
      norm: that it is measured by: of the largest value (linf), or of all (l2).
      steps: of PGD; the last image counts.
      step_size: of a step of PGD; None means 2.5 epsilon / steps.
    """

    name: Literal["fgsm", "pgd"]
    epsilon: float
    norm: Norm = "linf"
    steps: int = 1
    step_size: float | None = None

    def __call__(
        self, loss_of: LossOf, images: jax.Array, keys: jax.Array
    ) -> jax.Array:
        """Return images near `images` with a higher loss, both in 0..1. Traced.

        Args:
          loss_of: what is to rise.
          images: (B, H, W, C), float.
          keys: of each image, for its random start.
        """

        def ascend(at: jax.Array, size: float) -> jax.Array:
            gradient = jax.grad(lambda x: LOSS_SCALE * loss_of(x).sum())(at)
            # float16 may overflow: a pixel that is no number would count as an error.
            gradient = jnp.where(jnp.isfinite(gradient), gradient, 0)
            moved = at + size * self._direction(gradient)
            return jnp.clip(images + self._within(moved - images), 0, 1)

        if self.name == "fgsm":
            return ascend(images, self.epsilon)

        size = self.step_size
        if size is None:
            size = STEP_FACTOR * self.epsilon / self.steps

        def body(at: jax.Array, _: jax.Array) -> tuple[jax.Array, None]:
            return ascend(at, size), None

        start = jnp.clip(images + self._start(images, keys), 0, 1)
        return repeat(body, start, jnp.arange(self.steps))[0]

    def _direction(self, gradient: jax.Array) -> jax.Array:
        """Return the change of size 1 that the loss rises most by."""
        if self.norm == "linf":
            return jnp.sign(gradient)
        # By its largest value first: the squares of what is small would be 0.
        largest = jnp.abs(gradient).max((1, 2, 3), keepdims=True)
        scaled = gradient / _or_one(largest)
        return scaled / _or_one(_length(scaled))

    def _within(self, change: jax.Array) -> jax.Array:
        """Return the nearest change that is not larger than epsilon."""
        if self.norm == "linf":
            return jnp.clip(change, -self.epsilon, self.epsilon)
        return change * jnp.minimum(1, self.epsilon / _or_one(_length(change)))

    def _start(self, images: jax.Array, keys: jax.Array) -> jax.Array:
        """Draw changes evenly from all that are allowed."""
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
        return self.epsilon * jax.vmap(draw)(keys)


def _length(x: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.square(x).sum((1, 2, 3), keepdims=True))


def _or_one(divisor: jax.Array) -> jax.Array:
    """Return 1 for 0. A least number would not do: XLA multiplies two divisors."""
    return jnp.where(divisor > 0, divisor, 1)
