"""ResNets: timm and torchvision name their layers alike."""

from jaxtrain.models.weights.names import Names

RESNET = Names(
    layers={
        r"stem_conv": "conv1",
        r"stem_norm": "bn1",
        r"stage(\d+)_block(\d+)/conv(\d)": "layer{0}.{1:-1}.conv{2}",
        r"stage(\d+)_block(\d+)/norm(\d)": "layer{0}.{1:-1}.bn{2}",
        r"stage(\d+)_block(\d+)/shortcut_conv": "layer{0}.{1:-1}.downsample.0",
        r"stage(\d+)_block(\d+)/shortcut_norm": "layer{0}.{1:-1}.downsample.1",
        r"head/linear": "fc",
    },
    first_conv="conv1",
    classifier="fc",
)
