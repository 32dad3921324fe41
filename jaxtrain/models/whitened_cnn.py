"""Small CNNs from CIFAR-10 speed runs; the first convolution whitens image patches."""

from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import nnx
from flax.typing import Initializer

from jaxtrain.config.models import WhitenedCNNConfig
from jaxtrain.models.base import Model
from jaxtrain.models.batch_norm import BatchNorm
from jaxtrain.models.head import Head
from jaxtrain.models.layers import Layers, lecun_normal, scale_channels
from jaxtrain.models.pools import flatten, max_pool
from jaxtrain.models.whitening import whitening_kernel


class WhitenedCNN(Model):
    """A whitening convolution, then groups of two convolutions with max pooling.

    The network follows airbench94 (Jordan 2024, arXiv:2404.00498), which is based on
    hlb-CIFAR10. The kernel of the first convolution is initialized by
    `whitening_kernel` and usually frozen. The outputs of this convolution and their
    negatives pass through a ReLU (GELU in airbench94). The other kernels are
    initialized by `identity_like`.

    Attributes:
      patch: Height and width of the whitened patches in pixels.
      patch_stride: Stride of the patches in pixels.
      channels: Number of output channels of each group, at width 1.
    """

    Options: ClassVar = WhitenedCNNConfig

    min_size = 9
    stride = 8
    patch = 2
    patch_stride = 1
    channels: tuple[int, ...] = (64, 256, 256)
    kernels_from_images: ClassVar = {"whiten": whitening_kernel}

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_outputs: int,
        *,
        layers: Layers,
        width: float = 1.0,
        dropout: float = 0.0,
        global_pool: Literal["max"] | None = None,
    ):
        """Create the layers.

        Args:
          global_pool: `max` applies global max pooling before the last layer, as in
            airbench94. None flattens the activations instead.
        """
        rows, columns, channels = image_shape
        components = self.patch**2 * channels
        whiten = layers.conv(
            channels,
            components,
            self.patch,
            stride=self.patch_stride,
            padding=0,
            bias=False,
            init=nnx.initializers.orthogonal(),
        )
        self.add_piece(_both_signs, whiten=whiten)
        channels = 2 * components
        rows, columns = (
            (n - self.patch) // self.patch_stride + 1 for n in (rows, columns)
        )
        for index, base in enumerate(self.channels, 1):
            wider = scale_channels(base, width)
            self._add_group(f"group{index}", channels, wider, layers)
            channels, rows, columns = wider, rows // 2, columns // 2
        num_pixels = 1 if global_pool else rows * columns
        head = Head(num_pixels * channels, num_outputs, dropout, layers=layers)
        self.add_piece(_pooled_head if global_pool else _head, head=head)

    def _add_group(
        self, name: str, in_channels: int, channels: int, layers: Layers
    ) -> None:
        init = identity_like(lecun_normal)
        self.add_piece(
            _pool_block,
            **{
                f"{name}_conv1": layers.conv(
                    in_channels, channels, 3, bias=False, init=init, split="out"
                ),
                # Low momentum, as a run has only a few hundred steps.
                f"{name}_norm1": layers.batch_norm(channels, momentum=0.6, split=True),
            },
        )
        self.add_piece(
            _block,
            **{
                f"{name}_conv2": layers.conv(
                    channels, channels, 3, bias=False, init=init, split="in"
                ),
                f"{name}_norm2": layers.batch_norm(channels, momentum=0.6),
            },
        )


def identity_like(init: Initializer) -> Initializer:
    """Make an initializer of Dirac kernels: output channel i equals input channel i.

    Args:
      init: Initializer of the output channels without an input channel of the same
        index.
    """

    def create(key: jax.Array, shape: tuple[int, ...], *args: Any) -> jax.Array:
        rows, columns, inputs, outputs = shape
        kernel = init(key, shape, *args)
        centre = jnp.zeros(shape, kernel.dtype)
        centre = centre.at[rows // 2, columns // 2].set(jnp.eye(inputs, outputs))
        return jnp.where(jnp.arange(outputs) < inputs, centre, kernel)

    return create


def _both_signs(conv: nnx.Conv, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
    x = conv(x)
    return nnx.relu(jnp.concatenate([x, -x], axis=-1))


def _pool_block(
    conv: nnx.Conv, norm: BatchNorm, x: jax.Array, rngs: nnx.Rngs | None
) -> jax.Array:
    # Pooling before the norm, which then processes only a quarter of the pixels.
    return norm(max_pool(conv(x)), relu=True)


def _block(
    conv: nnx.Conv, norm: BatchNorm, x: jax.Array, rngs: nnx.Rngs | None
) -> jax.Array:
    return norm(conv(x), relu=True)


def _head(head: Head, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
    return head(flatten(x), rngs)


def _pooled_head(head: Head, x: jax.Array, rngs: nnx.Rngs | None) -> jax.Array:
    return head(x.max((1, 2)), rngs)


WhitenedCNNSmall = WhitenedCNN.variant(min_size=8, patch_stride=2, channels=(32, 64))
