"""Four plain convolutions and two dense layers, without normalisation."""

from flax import nnx

from jaxtrain.models.layers import (
    Head,
    Layers,
    Model,
    Piece,
    flatten,
    max_pool,
    scale_channels,
)


class CNN4(Model):
    """Four blocks of convolution, ReLU and pool, then two dense layers."""

    min_size = 16
    stride = 16

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        num_classes: int,
        *,
        layers: Layers,
        width: float = 1.0,
        dropout: float = 0.0,
    ):
        rows, columns, channels = image_shape
        c1, c2, c3, c4 = (scale_channels(c, width) for c in (32, 64, 128, 128))
        self.conv1 = layers.conv(channels, c1, 3)
        self.conv2 = layers.conv(c1, c2, 3)
        self.conv3 = layers.conv(c2, c3, 3)
        self.conv4 = layers.conv(c3, c4, 3)
        features = scale_channels(64, width)
        self.linear = layers.linear((rows // 16) * (columns // 16) * c4, features)
        self.head = Head(features, num_classes, dropout, layers=layers)

    def pieces(self, rngs: nnx.Rngs | None = None) -> list[Piece]:
        return [
            Piece(("conv1",), lambda x: max_pool(nnx.relu(self.conv1(x)))),
            Piece(("conv2",), lambda x: max_pool(nnx.relu(self.conv2(x)))),
            Piece(("conv3",), lambda x: max_pool(nnx.relu(self.conv3(x)))),
            Piece(("conv4",), lambda x: max_pool(nnx.relu(self.conv4(x)))),
            Piece(("linear",), lambda x: nnx.relu(self.linear(flatten(x)))),
            Piece(("head",), lambda x: self.head(x, rngs=rngs)),
        ]
