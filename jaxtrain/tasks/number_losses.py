"""Regression losses, and the conversion of model outputs to predictions.

Outputs (B, columns, num_outputs) and targets are standardized by the mean and standard
deviation of each column.
"""

import math
import statistics
from dataclasses import dataclass

import jax
import jax.numpy as jnp

# Epsilon added to a learned variance, to keep its logarithm finite.
LEAST_VARIANCE = 1e-6
# Suffix of the names of predicted standard deviations, in the unit of the column.
STD = "_std"


class NumberLoss:
    """Base class of regression losses, which convert outputs to predictions.

    A column may have several outputs; each additional output adds a number to the
    prediction.
    """

    @property
    def endings(self) -> tuple[str, ...]:
        """Suffixes of the names of the additional numbers, such as "_std"."""
        return ()

    @property
    def num_outputs(self) -> int:
        """Number of outputs per column."""
        return 1 + len(self.endings)

    @property
    def has_interval(self) -> bool:
        """Whether the outputs define a prediction interval."""
        return self.num_outputs > 1

    def losses(self, outputs: jax.Array, target: jax.Array) -> jax.Array:
        """Compute the loss of each number, (B, columns)."""
        raise NotImplementedError

    def prediction(self, outputs: jax.Array) -> jax.Array:
        """Predicted numbers, (B, columns)."""
        return outputs[..., 0]

    def extras(self, outputs: jax.Array) -> tuple[jax.Array, ...]:
        """Additional predicted numbers, (B, columns) each, in order of `endings`."""
        del outputs
        return ()

    def interval(self, outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Lower and upper bound of the prediction interval, (B, columns) each."""
        raise NotImplementedError


@dataclass(frozen=True)
class PointLoss(NumberLoss):
    """Point prediction with a loss that is a function of the error.

    Attributes:
      name: Loss function: `mse`, `l1` or `huber`.
    """

    name: str

    def losses(self, outputs: jax.Array, target: jax.Array) -> jax.Array:
        error = outputs[..., 0] - target
        if self.name == "mse":
            return jnp.square(error)
        size = jnp.abs(error)
        if self.name == "l1":
            return size
        # Huber (1964), with delta of one standard deviation.
        small = jnp.minimum(size, 1.0)
        return 0.5 * jnp.square(small) + (size - small)


@dataclass(frozen=True)
class GaussianLoss(NumberLoss):
    """Gaussian negative log-likelihood, with mean and variance as outputs.

    Nix and Weigend 1994; the variance is the softplus of an output, as in
    Lakshminarayanan et al. 2017 (arXiv:1612.01474).

    Attributes:
      level: Nominal coverage of the prediction interval, such as 0.9.
    """

    level: float

    @property
    def endings(self) -> tuple[str, ...]:
        return (STD,)

    def losses(self, outputs: jax.Array, target: jax.Array) -> jax.Array:
        variance, error = self._variance(outputs), outputs[..., 0] - target
        log_density = jnp.square(error) / variance + jnp.log(2 * math.pi * variance)
        return 0.5 * log_density

    def extras(self, outputs: jax.Array) -> tuple[jax.Array]:
        return (jnp.sqrt(self._variance(outputs)),)

    def interval(self, outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        deviations = statistics.NormalDist().inv_cdf(0.5 + self.level / 2)
        number, (deviation,) = self.prediction(outputs), self.extras(outputs)
        return number - deviations * deviation, number + deviations * deviation

    def _variance(self, outputs: jax.Array) -> jax.Array:
        return jax.nn.softplus(outputs[..., 1]) + LEAST_VARIANCE


@dataclass(frozen=True)
class QuantileLoss(NumberLoss):
    """Quantile regression with the mean pinball loss (Koenker and Bassett 1978).

    The quantiles are the median plus or minus cumulative sums of softplus outputs, so
    that quantiles never cross.

    Attributes:
      quantiles: Quantile levels in ascending order, with the median in the middle.
    """

    quantiles: tuple[float, ...]

    @property
    def endings(self) -> tuple[str, ...]:
        middle = len(self.quantiles) // 2
        others = (*self.quantiles[:middle], *self.quantiles[middle + 1 :])
        return tuple(f"_q{100 * q:.6g}" for q in others)

    def losses(self, outputs: jax.Array, target: jax.Array) -> jax.Array:
        losses = []
        for q, found in zip(self.quantiles, self._rising(outputs), strict=True):
            error = target - found
            losses.append(jnp.maximum(q * error, (q - 1) * error))
        return sum(losses[1:], losses[0]) / len(losses)

    def prediction(self, outputs: jax.Array) -> jax.Array:
        return self._rising(outputs)[len(self.quantiles) // 2]

    def extras(self, outputs: jax.Array) -> tuple[jax.Array, ...]:
        found = self._rising(outputs)
        del found[len(found) // 2]
        return tuple(found)

    def interval(self, outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = self._rising(outputs)
        return found[0], found[-1]

    def _rising(self, outputs: jax.Array) -> list[jax.Array]:
        middle, steps = len(self.quantiles) // 2, jax.nn.softplus(outputs)
        found = [outputs[..., middle]]
        for i in range(middle + 1, len(self.quantiles)):
            found.append(found[-1] + steps[..., i])
            found.insert(0, found[0] - steps[..., len(self.quantiles) - 1 - i])
        return found
