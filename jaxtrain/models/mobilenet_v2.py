"""MobileNetV2 (Sandler et al. 2018, arXiv:1801.04381).

Defaults are those of torchvision and timm, which agree.
"""

import jax
from flax import nnx

from jaxtrain.models.head import Head, mean_head
from jaxtrain.models.inverted_net import InvertedNet, Stem, with_norms
from jaxtrain.models.inverted_residual import InvertedStage, round_channels
from jaxtrain.models.layers import Layers

# Of the last layer, as in torchvision.
head_init = nnx.initializers.normal(0.01)


def _stage(
    channels: int, depth: int, stride: int, expansion: float = 6
) -> InvertedStage:
    return InvertedStage(
        channels=channels,
        expansions=(expansion,) * depth,
        stride=stride,
        activation=jax.nn.relu6,
    )


class MobileNetV2(InvertedNet):
    stem_channels = 32
    # Table 2 of the paper.
    stages = (
        _stage(16, 1, 1, expansion=1),
        _stage(24, 2, 2),
        _stage(32, 3, 2),
        _stage(64, 4, 2),
        _stage(96, 3, 1),
        _stage(160, 3, 2),
        _stage(320, 1, 1),
    )

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
    ):
        layers = with_norms(layers, norm_epsilon)
        # As in the paper, a net of less than its width keeps these.
        features = round_channels(1280 * max(1.0, width))
        self.add_convolutions(
            *(image_shape[2], features, jax.nn.relu6),
            layers=layers,
            width=width,
            drop_path=drop_path,
            stem=stem,
        )
        head = Head(features, num_outputs, dropout, layers=layers, init=head_init)
        self.add_piece(mean_head, head=head)
