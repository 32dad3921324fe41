"""MobileNetV3 (Howard et al. 2019, arXiv:1905.02244).

Defaults are timm's; torchvision's weights belong to norms with epsilon 1e-3, and
TensorFlow's to the same and `padding = same`.
"""

from typing import ClassVar

import jax
from flax import nnx

from jaxtrain.models.activations import hard_sigmoid, hard_swish
from jaxtrain.models.head import Head
from jaxtrain.models.inverted_net import InvertedNet, Sides, Stem, with_norms
from jaxtrain.models.inverted_residual import InvertedStage, Squeeze, round_channels
from jaxtrain.models.layers import Layers

# A quarter of the channels within the block.
SQUEEZE = Squeeze(
    features=lambda channels, hidden: round_channels(hidden / 4),
    activation=nnx.relu,
    gate=hard_sigmoid,
)
# Of the last layers, as in torchvision.
dense_init = nnx.initializers.normal(0.01)


class MobileNetV3(InvertedNet):
    stem_channels = 16
    # Of the last convolution, at width 1, and of the layer that follows the mean.
    last_channels: ClassVar[int]
    features: ClassVar[int]

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_outputs: int,
        *,
        layers: Layers,
        width: float = 1.0,
        dropout: float = 0.2,
        drop_path: float = 0.0,
        stem: Stem = "imagenet",
        norm_epsilon: float = 1e-5,
        padding: Sides = "symmetric",
    ):
        layers = with_norms(layers, norm_epsilon, padding)
        last_channels = round_channels(self.last_channels * width)
        self.add_convolutions(
            *(image_shape[2], last_channels, hard_swish),
            layers=layers,
            width=width,
            drop_path=drop_path,
            stem=stem,
        )
        # As in timm, a net of less than its width keeps these.
        features = round_channels(self.features * max(1.0, width))
        dense = layers.linear(last_channels, features, init=dense_init)
        head = Head(features, num_outputs, dropout, layers=layers, init=dense_init)
        self.add_piece(_head, dense=dense, head=head)


def _head(
    dense: nnx.Linear, head: Head, x: jax.Array, rngs: nnx.Rngs | None
) -> jax.Array:
    return head(hard_swish(dense(x.mean((1, 2)))), rngs)


# Tables 1 and 2 of the paper.
class MobileNetV3Large(MobileNetV3):
    last_channels, features = 960, 1280
    stages = (
        InvertedStage(channels=16, expansions=(1,), activation=nnx.relu),
        InvertedStage(channels=24, expansions=(4, 3), stride=2, activation=nnx.relu),
        InvertedStage(
            channels=40,
            expansions=(3, 3, 3),
            stride=2,
            size=5,
            activation=nnx.relu,
            squeeze=SQUEEZE,
        ),
        InvertedStage(
            channels=80,
            expansions=(6, 2.5, 2.3, 2.3),
            stride=2,
            activation=hard_swish,
        ),
        InvertedStage(
            channels=112, expansions=(6, 6), activation=hard_swish, squeeze=SQUEEZE
        ),
        InvertedStage(
            channels=160,
            expansions=(6, 6, 6),
            stride=2,
            size=5,
            activation=hard_swish,
            squeeze=SQUEEZE,
        ),
    )


class MobileNetV3Small(MobileNetV3):
    last_channels, features = 576, 1024
    stages = (
        InvertedStage(
            channels=16,
            expansions=(1,),
            stride=2,
            activation=nnx.relu,
            squeeze=SQUEEZE,
        ),
        InvertedStage(
            channels=24, expansions=(4.5, 3.67), stride=2, activation=nnx.relu
        ),
        InvertedStage(
            channels=40,
            expansions=(4, 6, 6),
            stride=2,
            size=5,
            activation=hard_swish,
            squeeze=SQUEEZE,
        ),
        InvertedStage(
            channels=48,
            expansions=(3, 3),
            size=5,
            activation=hard_swish,
            squeeze=SQUEEZE,
        ),
        InvertedStage(
            channels=96,
            expansions=(6, 6, 6),
            stride=2,
            size=5,
            activation=hard_swish,
            squeeze=SQUEEZE,
        ),
    )
