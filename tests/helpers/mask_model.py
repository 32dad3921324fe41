"""A tiny model of maps: two convolutions of 3x3 pixels and one of 1x1."""

from flax import nnx

from jaxtrain.models.base import Model


class Maps(Model):
    def __init__(self, image_shape, num_outputs, *, layers, output_spec, channels=16):
        first = layers.conv(image_shape[2], channels, 3, bias=False)
        self.add_piece(block, conv1=first, norm1=layers.batch_norm(channels))
        second = layers.conv(channels, channels, 3, bias=False)
        self.add_piece(block, conv2=second, norm2=layers.batch_norm(channels))
        self.add_piece(last, head=layers.conv(channels, output_spec[-1], 1))


def block(conv, norm, x, rngs):
    return nnx.relu(norm(conv(x)))


def last(conv, x, rngs):
    return conv(x)
