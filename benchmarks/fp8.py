"""What a training step of an H100 makes of convolutions in float8: kernels and bytes.

    python main.py plan --config configs/imagenet_resnet50.py --target h100
        --data.batch-size 128 --model.transform benchmarks/fp8.py:fp8

A transform for `main.py plan` (`make gpu-compiler`), which compiles and runs nothing.
What convolutions of whole 16 channels take, images and kernels, is rounded to
float8_e4m3fn with a scale of 1, the least that any scaling would cost. Compare with the
plan without it; `XLA_FLAGS=--xla_dump_to=FOLDER` shows the instructions, where
`__cudnn$convForwardGraph` of f8e4m3fn operands is a convolution in float8
(docs/decisions.md).
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from flax.nnx.nn import dtypes

from jaxtrain.models.base import Model
from jaxtrain.models.layers import Conv

# Largest number of float8_e4m3fn, and the channels that cuDNN's kernels take at once.
LARGEST, CHANNELS = 448, 16


@jax.custom_jvp
def rounded(x: jax.Array) -> jax.Array:
    """Return the nearest numbers of float8, in the dtype of `x`."""
    return jnp.clip(x, -LARGEST, LARGEST).astype(jnp.float8_e4m3fn).astype(x.dtype)


@rounded.defjvp
def _straight_through(primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    return rounded(*primals), tangents[0]


def _promote(args: Any, /, *, dtype: Any = None, **options: Any) -> Any:
    x, kernel, *rest = dtypes.promote_dtype(args, dtype=dtype, **options)
    return rounded(x), rounded(kernel), *rest


def fp8(model: Model) -> Model:
    """Have the convolutions of a model multiply in float8."""
    for _, layer in nnx.iter_modules(model):
        if isinstance(layer, Conv) and not any(
            n % CHANNELS for n in layer.kernel_shape[2:]
        ):
            layer.promote_dtype = _promote
    return model
