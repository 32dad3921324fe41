"""Inception v3: timm and torchvision name their layers alike."""

from jaxtrain.models.weights.names import ArrayNames

INCEPTION_V3 = ArrayNames(
    layers={
        r"conv2d_(\w+)/conv": "Conv2d_{0}.conv",
        r"conv2d_(\w+)/norm": "Conv2d_{0}.bn",
        r"mixed_(\w+)/(\w+)/conv": "Mixed_{0}.{1}.conv",
        r"mixed_(\w+)/(\w+)/norm": "Mixed_{0}.{1}.bn",
        r"aux/(\w+)/conv": "AuxLogits.{0}.conv",
        r"aux/(\w+)/norm": "AuxLogits.{0}.bn",
        r"aux/head/linear": "AuxLogits.fc",
        r"head/linear": "fc",
    },
    first_conv="Conv2d_1a_3x3.conv",
    classifier="fc",
    # Where our model has no auxiliary head.
    unused=(r"AuxLogits\..*",),
)
