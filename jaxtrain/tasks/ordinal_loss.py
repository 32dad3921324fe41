"""Ordinal regression by CORN (Shi et al. 2021, arXiv:2111.08851).

There is one logit per level except the lowest, for P(target >= level | target >=
previous level). P(target >= level) is the cumulative product of these probabilities, so
it decreases with the level.
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.tasks.number_losses import NumberLoss


@dataclass(frozen=True, eq=False)
class OrdinalLoss(NumberLoss):
    """CORN loss; the prediction is the median level.

    Attributes:
      levels: Standardized levels of each column, ascending, (columns, levels).
    """

    levels: np.ndarray

    @property
    def num_outputs(self) -> int:
        return self.levels.shape[1] - 1

    @property
    def has_interval(self) -> bool:
        return False

    def losses(self, outputs: jax.Array, target: jax.Array) -> jax.Array:
        """Compute the binary cross entropy, averaged over the levels.

        The cross entropy of a level is 0 if its condition, target >= previous level, is
        false. The paper instead averages each level over the examples that meet its
        condition, so that the loss of an example depends on the other examples.
        """
        between = jnp.asarray((self.levels[:, 1:] + self.levels[:, :-1]) / 2)
        passed = target[..., None] > between.astype(target.dtype)
        first = jnp.ones_like(passed[..., :1])
        applicable = jnp.concatenate([first, passed[..., :-1]], -1)
        entropy = jax.nn.softplus(jnp.where(passed, -outputs, outputs))
        return jnp.mean(jnp.where(applicable, entropy, 0), -1)

    def prediction(self, outputs: jax.Array) -> jax.Array:
        # A matrix product computes the cumulative sums of log-probabilities.
        sums = jnp.asarray(np.triu(np.ones(2 * (self.num_outputs,))), outputs.dtype)
        highest = jax.lax.Precision.HIGHEST
        logs = jnp.dot(jax.nn.log_sigmoid(outputs), sums, precision=highest)
        levels = jnp.asarray(self.levels, outputs.dtype)
        steps = jnp.where(logs >= math.log(0.5), levels[:, 1:] - levels[:, :-1], 0)
        return levels[:, 0] + jnp.sum(steps, -1)
