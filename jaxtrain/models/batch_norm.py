"""Batch norm over groups of examples, with a custom backward pass."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxtrain.dtypes import wide, widen
from jaxtrain.errors import UserError
from jaxtrain.models.activations import Activation
from jaxtrain.models.named import NamedLayer, in_own_scope
from jaxtrain.models.ranged import Ranged


class GroupStat(nnx.BatchStat):
    """Running mean or variance, (channels,) with one group, or (groups, channels)."""


class BatchNorm(NamedLayer, Ranged, nnx.BatchNorm):
    """Batch norm (Ioffe and Szegedy 2015) over groups of examples (arXiv:1705.08741).

    In training, the batch consists of `groups` consecutive groups of equal size. Each
    group is normalized by its mean and variance, in at least float32, and has separate
    running statistics, (groups, channels). Evaluation averages the running statistics
    over the groups. Devices communicate only if a group spans several devices. With one
    group, the layer is ordinary batch norm, and running statistics are (channels,).
    """

    def __init__(
        self,
        channels: int,
        *,
        groups: int,
        momentum: float,
        split_dim: int | None,
        **options: Any,
    ):
        metadata: dict[str, Any] = {"split_dim": split_dim}
        super().__init__(
            channels,
            momentum=momentum,
            scale_metadata=metadata,
            bias_metadata=metadata,
            **options,
        )
        shape = (groups, channels) if groups > 1 else (channels,)
        mean, var = (
            jnp.zeros(shape, wide(self.dtype)),
            jnp.ones(shape, wide(self.dtype)),
        )
        self.mean = GroupStat(mean, momentum=momentum, **metadata)
        self.var = GroupStat(var, momentum=momentum, **metadata)

    @in_own_scope
    def __call__(  # pyright: ignore
        self, x: jax.Array, *, relu: bool = False, activation: Activation | None = None
    ) -> jax.Array:
        """Normalize an array (batch, ..., channels), and apply an activation function.

        Args:
          x: Array to normalize.
          relu: Whether to apply ReLU, instead of `activation`.
          activation: Activation function, applied before rounding to the layer's dtype.
            None means no activation.

        Returns:
          Array with the shape of `x`, in the layer's dtype.
        """
        x, activation = self.quantize_input(x), nnx.relu if relu else activation
        # Integer runtimes fuse a convolution with a norm and a ReLU, but not with other
        # activations: apply these after the output quantizer.
        if self.output_range is None or activation in (None, nnx.relu):
            return self.quantize_output(self._normalized(x, activation))
        return activation(self.quantize_output(self._normalized(x, None)))

    def _normalized(self, x: jax.Array, activation: Activation | None) -> jax.Array:
        assert self.scale is not None and self.bias is not None
        scale, bias = self.scale[...], self.bias[...]
        if self.use_running_average:
            y = _apply(x, *self.running(), scale, bias)
            if activation is nnx.relu:
                # Rounding before the ReLU gives the same values, and allows a GPU to
                # fuse batch norm and ReLU with the preceding convolution.
                return nnx.relu(y.astype(self.dtype))
            return (activation(y) if activation else y).astype(self.dtype)
        groups = 1 if self.mean.ndim == 1 else len(self.mean)
        grouped = x.reshape(groups, -1, *x.shape[1:])
        if math.prod(x.shape[:-1]) == groups:
            raise one_value_error(self.layer_path, x.shape, groups)
        mean, var = statistics(jax.lax.stop_gradient(grouped))
        for running, new in ((self.mean, mean), (self.var, var)):
            old = running[...]
            moved = old + (1 - self.momentum) * (new.reshape(old.shape) - old)
            # `running[...] = moved` would search all traced equations for tracers,
            # which takes a quarter of the time to trace a ResNet-50.
            running.set_value(moved)
        arrays = grouped, mean, self._inverse_std(var), scale, bias
        y: Any = normalize(activation, *arrays)
        return y.reshape(x.shape).astype(self.dtype)

    def running(self) -> tuple[jax.Array, jax.Array]:
        """Mean and 1 / standard deviation for evaluation, (channels,) each."""
        mean, var = (
            s[...].reshape(-1, s.shape[-1]).mean(0) for s in (self.mean, self.var)
        )
        return mean, self._inverse_std(var)

    def _inverse_std(self, var: jax.Array) -> jax.Array:
        return jax.lax.rsqrt(var + self.epsilon)


def one_value_error(path: str | None, shape: tuple[int, ...], groups: int) -> UserError:
    """Create the error for a batch norm whose groups have one value per channel."""
    return UserError(
        f"{path or 'batch norm'}: batch norm over one value per channel (input "
        f"{'x'.join(map(str, shape))}, groups of examples: {groups}) gives the same "
        "output for every image; set a larger data.image_size, model.stem = 'cifar', a "
        "larger data.batch_size, a smaller train.accumulate_steps, or a larger "
        "parallel.batch_norm"
    )


def momenta(model: nnx.Module) -> dict[str, float]:
    """Momentum of each running mean and variance, by path."""
    return {
        "/".join(map(str, path)): stat.get_metadata("momentum")
        for path, stat in nnx.to_flat_state(nnx.state(model, GroupStat))
    }


def statistics(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute mean and variance of each group, in at least float32.

    If squares overflow, the variance is NaN instead of infinite, so that outputs and
    gradients are NaN, too, and the step is skipped.

    On GPUs and for half-precision inputs, the variance is computed in one pass, as
    E[x^2] - mean^2; otherwise in two passes, as E[(x - mean)^2]. The rounding error of
    the one-pass variance grows with (mean / standard deviation)^2. For half-precision
    inputs, it is at most a few times their rounding error. For float32 on GPUs, a
    second pass would increase memory traffic by 4 to 10 % (docs/decisions.md).

    Args:
      x: Input, (groups, examples, ..., channels).

    Returns:
      Mean and variance, (groups, 1, ..., 1, channels) each.
    """
    dims, narrow = _within_group(x), widen(x).dtype != x.dtype
    x = widen(x)

    def one_pass(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        total, of_squares = two_sums(x, jnp.square(x), dims)
        count = x.size / total.size
        mean = total / count
        return mean, of_squares / count - jnp.square(mean)

    def two_passes(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean = x.mean(dims, keepdims=True)
        return mean, jnp.square(x - mean).mean(dims, keepdims=True)

    default = one_pass if narrow else two_passes
    mean, var = jax.lax.platform_dependent(
        x, cuda=one_pass, rocm=one_pass, default=default
    )
    return mean, jnp.where(var < jnp.inf, jnp.maximum(var, 0), jnp.nan)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def normalize(
    activation: Activation | None,
    x: jax.Array,
    mean: jax.Array,
    inverse_std: jax.Array,
    scale: jax.Array,
    bias: jax.Array,
) -> jax.Array:
    """Normalize each group by its statistics, in at least float32.

    `mean` and `inverse_std` must be the statistics of `x`. The custom derivative treats
    them as functions of `x`: the gradient of `x` includes the gradients through both,
    and `mean` and `inverse_std` get no gradients. JAX's derivative computes three sums
    over the batch and stores `x - mean`. The custom derivative computes two sums, in
    one pass over arrays that the forward pass stores anyway
    (`benchmarks/batch_norm.py`).

    Args:
      activation: Activation function applied to the result. None means no activation.
      x: Input, (groups, examples, ..., channels).
      mean: Mean of each group, (groups, 1, ..., 1, channels).
      inverse_std: 1 / standard deviation of each group, with the shape of `mean`.
      scale: Scale of each channel, (channels,).
      bias: Bias of each channel, (channels,).
    """
    y = _apply(x, mean, inverse_std, scale, bias)
    return activation(y) if activation else y


def _apply(
    x: jax.Array, mean: jax.Array, inverse_std: jax.Array, scale: Any, bias: Any
) -> jax.Array:
    return (widen(x) - mean) * (inverse_std * scale) + bias


def _forward(activation: Any, *arrays: jax.Array) -> tuple[jax.Array, Any]:
    return normalize(activation, *arrays), arrays


def _backward(activation: Any, residuals: Any, dy: jax.Array) -> tuple[Any, ...]:
    x, mean, inverse_std, scale, _ = residuals
    wide_x = widen(x)
    dy, for_sum, for_product = _activation_grads(activation, residuals, dy)
    sum_dy, product = two_sums(for_sum, for_product * wide_x, _within_group(x))
    # Sum of dy * normalized x. The mean is subtracted after summation, although
    # rounding errors then grow with mean / standard deviation, because XLA:CPU would
    # store x - mean.
    along = inverse_std * (product - mean * sum_dy)
    count = x.size / along.size
    dx = (inverse_std * scale) * (
        dy - sum_dy / count - (wide_x - mean) * (inverse_std * along / count)
    )
    dscale, dbias = (
        s.reshape(-1, len(scale)).sum(0).astype(scale.dtype) for s in (along, sum_dy)
    )
    return dx.astype(x.dtype), None, None, dscale, dbias


normalize.defvjp(_forward, _backward)


def _activation_grads(
    activation: Any, arrays: Any, dy: jax.Array
) -> tuple[jax.Array, ...]:
    """Return three equal arrays: the gradient with respect to the activation's input.

    They are used for `dx`, the sum of `dy`, and the sum of `dy * x`. XLA:GPU would
    store a shared expression, which takes an additional pass over the batch. Therefore,
    the arrays are different expressions, or separated by an optimization barrier.
    """
    if activation is None:
        return dy, dy, dy
    if activation is not nnx.relu:
        x, *rest = arrays
        for_sums, for_dx = (
            jax.vjp(activation, _apply(x, *rest))[1](dy)[0]
            for x in (x, jax.lax.optimization_barrier(x))
        )
        return for_dx, for_sums, for_sums
    y = _apply(*arrays)
    return (
        jnp.where(jnp.maximum(y, 0) != 0, dy, 0),
        jnp.where(y <= 0, 0, dy),
        jnp.where(y > 0, dy, 0),
    )


def _within_group(x: jax.Array) -> tuple[int, ...]:
    return tuple(range(1, x.ndim - 1))


def two_sums(
    a: jax.Array, b: jax.Array, dims: tuple[int, ...]
) -> tuple[jax.Array, jax.Array]:
    """Sum two arrays of equal shape over the same dims, as with `keepdims=True`.

    Reductions on GPUs have two stages, one kernel each. A joint reduction needs two
    kernels; two separate reductions need three, as XLA fuses only their first stages.
    On CPUs, a joint reduction takes 5 to 10 times as long as two separate ones.
    """

    def together(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
        zero = np.zeros((), a.dtype)

        def add(one: Any, other: Any) -> Any:
            return one[0] + other[0], one[1] + other[1]

        sums = jax.lax.reduce((a, b), (zero, zero), add, dims)
        return jnp.expand_dims(sums[0], dims), jnp.expand_dims(sums[1], dims)

    def apart(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
        return a.sum(dims, keepdims=True), b.sum(dims, keepdims=True)

    return jax.lax.platform_dependent(a, b, cuda=together, rocm=together, default=apart)
