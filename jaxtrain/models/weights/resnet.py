"""ResNets: timm and torchvision name their layers alike."""

from jaxtrain.models.weights.names import POINTWISE, ArrayNames

_BLOCK = r"stage(\d+)_block(\d+)"
_STEM = {r"stem_conv": "conv1", r"stem_norm": "bn1"}
_SHORTCUT = {
    rf"{_BLOCK}/shortcut_conv": "layer{0}.{1:-1}.downsample.0",
    rf"{_BLOCK}/shortcut_norm": "layer{0}.{1:-1}.downsample.1",
}
_REST = {
    rf"{_BLOCK}/conv(\d)": "layer{0}.{1:-1}.conv{2}",
    rf"{_BLOCK}/norm(\d)": "layer{0}.{1:-1}.bn{2}",
    r"head/linear": "fc",
}

RESNET = ArrayNames(
    layers={**_STEM, **_SHORTCUT, **_REST}, first_conv="conv1", classifier="fc"
)
SE_RESNET = ArrayNames(
    layers={
        **RESNET.layers,
        rf"{_BLOCK}/se/squeeze": "layer{0}.{1:-1}.se.fc1",
        rf"{_BLOCK}/se/excite": "layer{0}.{1:-1}.se.fc2",
    },
    first_conv="conv1",
    classifier="fc",
    layouts={r".*/se/\w+/kernel": POINTWISE},
)
# Its pool is number 0 of the shortcut.
RESNET_D = ArrayNames(
    layers={
        r"stem1_conv": "conv1.0",
        r"stem1_norm": "conv1.1",
        r"stem2_conv": "conv1.3",
        r"stem2_norm": "conv1.4",
        r"stem3_conv": "conv1.6",
        r"stem3_norm": "bn1",
        rf"{_BLOCK}/shortcut_conv": "layer{0}.{1:-1}.downsample.1",
        rf"{_BLOCK}/shortcut_norm": "layer{0}.{1:-1}.downsample.2",
        **_REST,
    },
    first_conv="conv1.0",
    classifier="fc",
)
# timm's `resnetv2`.
PREACT_RESNET = ArrayNames(
    layers={
        r"stem_conv": "stem.conv",
        rf"{_BLOCK}/((?:conv|norm)\d)": "stages.{0:-1}.blocks.{1:-1}.{2}",
        rf"{_BLOCK}/shortcut_conv": "stages.{0:-1}.blocks.{1:-1}.downsample.conv",
        r"last_norm": "norm",
        r"head/linear": "head.fc",
    },
    first_conv="stem.conv",
    classifier="head.fc",
    layouts={r"head/linear/kernel": POINTWISE},
)
