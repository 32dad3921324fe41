"""Numbers of a few levels in order, such as grades: which of them are passed.

CORN (Shi et al. 2021, arXiv:2111.08851): an output for each level but the lowest is the
logit of the probability that a number is at least that level, given that it is at least
the level before. Probabilities of at least a level are their products, so that they
never rise from one level to the next.
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.tasks.number_losses import NumberLoss


@dataclass(frozen=True, eq=False)
class OrdinalLoss(NumberLoss):
    """The level that half of the probability lies at or above.

    Attributes:
      levels: Standardised levels of each column, rising, (columns, levels).
    """

    levels: np.ndarray

    @property
    def num_outputs(self) -> int:
        return self.levels.shape[1] - 1

    @property
    def has_interval(self) -> bool:
        return False

    def losses(self, outputs: jax.Array, target: jax.Array) -> jax.Array:
        """Return the mean over the levels of the cross entropies.

        Of levels that do not come up, as the number is below the level before, it is 0.
        The paper divides by the number of those that do in the batch, so that what an
        example adds would depend on the others.
        """
        between = jnp.asarray((self.levels[:, 1:] + self.levels[:, :-1]) / 2)
        passed = target[..., None] > between.astype(target.dtype)
        first = jnp.ones_like(passed[..., :1])
        asked = jnp.concatenate([first, passed[..., :-1]], -1)
        entropy = jax.nn.softplus(jnp.where(passed, -outputs, outputs))
        return jnp.mean(jnp.where(asked, entropy, 0), -1)

    def prediction(self, outputs: jax.Array) -> jax.Array:
        # Logarithms of the products, as sums of those before each by one product.
        sums = jnp.asarray(np.triu(np.ones(2 * (self.num_outputs,))), outputs.dtype)
        highest = jax.lax.Precision.HIGHEST
        logs = jnp.dot(jax.nn.log_sigmoid(outputs), sums, precision=highest)
        levels = jnp.asarray(self.levels, outputs.dtype)
        steps = jnp.where(logs >= math.log(0.5), levels[:, 1:] - levels[:, :-1], 0)
        return levels[:, 0] + jnp.sum(steps, -1)
