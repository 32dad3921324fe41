"""EfficientNetV2-S (Tan and Le 2021, arXiv:2104.00298).

Defaults are torchvision's. Weights that came from TensorFlow belong to `padding =
same`, and those that timm trained to norms with epsilon 1e-5.
"""

from jaxtrain.models.activations import silu
from jaxtrain.models.efficientnet import SQUEEZE, head_init
from jaxtrain.models.head import Head, mean_head
from jaxtrain.models.inverted_net import (
    InvertedNet,
    Sides,
    Stem,
    with_norms,
)
from jaxtrain.models.inverted_residual import InvertedStage, round_channels
from jaxtrain.models.layers import Layers


def _fused(
    channels: int, depth: int, stride: int, expansion: float = 4
) -> InvertedStage:
    return InvertedStage(
        channels=channels,
        expansions=(expansion,) * depth,
        stride=stride,
        activation=silu,
        fused=True,
    )


def _stage(
    channels: int, depth: int, stride: int, expansion: float = 6
) -> InvertedStage:
    return InvertedStage(
        channels=channels,
        expansions=(expansion,) * depth,
        stride=stride,
        activation=silu,
        squeeze=SQUEEZE,
    )


class EfficientNetV2S(InvertedNet):
    stem_channels = 24
    # Table 4 of the paper.
    stages = (
        _fused(24, 2, 1, expansion=1),
        _fused(48, 4, 2),
        _fused(64, 4, 2),
        _stage(128, 6, 2, expansion=4),
        _stage(160, 9, 1),
        _stage(256, 15, 2),
    )

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_outputs: int,
        *,
        layers: Layers,
        width: float = 1.0,
        dropout: float = 0.2,
        drop_path: float = 0.2,
        stem: Stem = "imagenet",
        norm_epsilon: float = 1e-3,
        padding: Sides = "symmetric",
    ):
        layers = with_norms(layers, norm_epsilon, padding)
        features = round_channels(1280 * width)
        self.add_convolutions(
            *(image_shape[2], features, silu),
            layers=layers,
            width=width,
            drop_path=drop_path,
            stem=stem,
        )
        head = Head(features, num_outputs, dropout, layers=layers, init=head_init)
        self.add_piece(mean_head, head=head)
