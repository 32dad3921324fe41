"""Parts of models, as models of their own: the images are what comes before them."""

from jax.nn import relu6

from jaxtrain.models.base import Model
from jaxtrain.models.head import Head, mean_head
from jaxtrain.models.inverted_residual import InvertedResidual, InvertedStage
from jaxtrain.models.layers import Layers
from jaxtrain.models.residual import Bottleneck
from jaxtrain.models.resnet import ResNet, Stem


class BottleneckStage(ResNet):
    """The first stage of ResNet-50: three blocks, without the stem."""

    block = Bottleneck
    depths = (3,)

    def add_stem(
        self, in_channels: int, channels: int, stem: Stem, layers: Layers
    ) -> None:
        assert in_channels == channels


class InvertedResiduals(Model):
    """Two blocks of MobileNetV2: one with a shortcut, one with a stride."""

    def __init__(
        self, image_shape: tuple[int, int, int], num_outputs: int, *, layers: Layers
    ):
        inputs = channels = image_shape[2]
        for number in (1, 2):
            stage = InvertedStage(number * channels, (6,), relu6, stride=number)
            block = InvertedResidual(
                *(inputs, stage.channels, stage, 0), drop_path_rate=0.0, layers=layers
            )
            self.add_piece(InvertedResidual.__call__, **{f"block{number}": block})
            inputs = stage.channels
        self.add_piece(mean_head, head=Head(inputs, num_outputs, 0.0, layers=layers))
