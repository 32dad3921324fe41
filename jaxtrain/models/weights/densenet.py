"""DenseNets: timm and torchvision name their layers alike."""

from jaxtrain.models.weights.names import ArrayNames

DENSENET = ArrayNames(
    layers={
        r"stem_(conv|norm)": "features.{0}0",
        r"block(\d)_layer(\d+)/(\w+)": "features.denseblock{0}.denselayer{1}.{2}",
        r"transition(\d)/(\w+)": "features.transition{0}.{1}",
        r"last_norm": "features.norm5",
        r"head/linear": "classifier",
    },
    first_conv="features.conv0",
    classifier="classifier",
    # Of the files that torchvision has published.
    older={r"(.*\.denselayer\d+\.(?:norm|conv))\.(\d)\.(\w+)": "{0}{1}.{2}"},
)
