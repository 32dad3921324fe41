"""Hints: what a layer of the teacher computes, predicted from one of the student.

FitNets (Romero et al. 2014, arXiv:1412.6550) trains a regressor beside the student,
which maps its channels to the teacher's. Here it is the linear one of least squares on
the micro-batch, a 1x1 convolution with a bias, fitted anew in each step: there are no
weights to keep, and the gradients are those of the paper's loss once its regressor has
converged.
"""

import jax
import jax.numpy as jnp

# Added to the second moments of the student's channels, as a part of their mean: those
# that are always 0, or sums of others, have no slope of their own.
RIDGE = 1e-4
# Positions of a micro-batch for each channel of the student, at least: with fewer than
# one the regressor would predict anything.
LEAST_POSITIONS = 4


def hint_losses(student: jax.Array, teacher: jax.Array) -> jax.Array:
    """Return what the regressor leaves of the teacher's activations, (B,).

    The mean square difference over positions and channels, as a part of the variance of
    the teacher's channels over the micro-batch: 1 minus R squared, in the mean.

    Args:
      student: Activations of the student, (B, H, W, C).
      teacher: Those of the teacher, (B, H, W, channels).
    """
    batch = (0, 1, 2)
    theirs = teacher - teacher.mean(batch)
    fitted = jax.lax.stop_gradient(student)
    middle = fitted.mean(batch)
    slopes = _slopes(fitted - middle, theirs)
    # By least squares the loss does not change with the slopes, nor with the means.
    left = theirs - jnp.einsum("bhwc,cd->bhwd", student - middle, slopes)
    variance = jnp.square(theirs).mean()
    return jnp.square(left).mean((1, 2, 3)) / jnp.where(variance > 0, variance, 1)


def _slopes(ours: jax.Array, theirs: jax.Array) -> jax.Array:
    """Return the (C, channels) of least squares, of arrays whose means are 0."""

    def moments(other: jax.Array) -> jax.Array:
        # Products of bf16 or TF32 would be singular.
        highest = jax.lax.Precision.HIGHEST
        sums = jnp.einsum("bhwc,bhwd->cd", ours, other, precision=highest)
        return sums / (ours.size / ours.shape[-1])

    own = moments(ours)
    ridge = RIDGE * jnp.trace(own) / len(own)
    own += jnp.where(ridge > 0, ridge, 1) * jnp.eye(len(own), dtype=own.dtype)
    return jax.scipy.linalg.solve(own, moments(theirs), assume_a="pos")
