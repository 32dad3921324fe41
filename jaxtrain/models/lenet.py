"""LeNet-5 (LeCun et al. 1998, "Gradient-based learning applied to document
recognition"), as it is used today: ReLU, max pool, all channels connected."""

from flax import nnx

from jaxtrain.models.layers import Head, Layers, Model, Piece, flatten, max_pool


class LeNet(Model):
    """Two convolutions, three dense layers."""

    min_size = 12
    stride = 4

    def __init__(
        self, image_shape: tuple[int, int, int], num_classes: int, *, layers: Layers
    ):
        height, width, channels = image_shape
        self.conv1 = layers.conv(channels, 6, 5)
        self.conv2 = layers.conv(6, 16, 5, padding=0)
        rows, columns = (height // 2 - 4) // 2, (width // 2 - 4) // 2
        self.linear1 = layers.linear(rows * columns * 16, 120)
        self.linear2 = layers.linear(120, 84)
        self.head = Head(84, num_classes, 0.0, layers=layers)

    def pieces(self, rngs: nnx.Rngs | None = None) -> list[Piece]:
        return [
            Piece(("conv1",), lambda x: max_pool(nnx.relu(self.conv1(x)))),
            Piece(("conv2",), lambda x: max_pool(nnx.relu(self.conv2(x)))),
            Piece(("linear1",), lambda x: nnx.relu(self.linear1(flatten(x)))),
            Piece(("linear2",), lambda x: nnx.relu(self.linear2(x))),
            Piece(("head",), lambda x: self.head(x, rngs=rngs)),
        ]
