"""Array names of timm and torchvision, by model family."""

from collections.abc import Mapping

from jaxtrain.models import googlenet, vgg
from jaxtrain.models.inverted_net import InvertedNet
from jaxtrain.models.mobilenet import MobileNetV2, MobileNetV3
from jaxtrain.weights.names import (
    PER_CHANNEL,
    POINTWISE,
    ArrayNames,
    after_flatten,
    convolution,
)

# Block names: pattern of our names (BLOCK), ResNet names in both libraries (LAYER), and
# names of other families in timm (STAGE).
BLOCK = r"stage(\d+)_block(\d+)"
LAYER, STAGE = "layer{0}.{1:-1}", "stages.{0:-1}.blocks.{1:-1}"


def _within(ours: str, theirs: str, parts: Mapping[str, str]) -> dict[str, str]:
    """Prefix both sides of the mapping `parts`: `ours/KEY` -> `theirs.VALUE`."""
    return {f"{ours}/{part}": f"{theirs}.{name}" for part, name in parts.items()}


_STEM = {"stem_conv": "conv1", "stem_norm": "bn1"}
_REST = {
    **_within(BLOCK, LAYER, {r"conv(\d)": "conv{2}", r"norm(\d)": "bn{2}"}),
    "head/linear": "fc",
}
_SHORTCUT = {"shortcut_conv": "downsample.0", "shortcut_norm": "downsample.1"}
_GATE = {"se/squeeze": "se.fc1", "se/excite": "se.fc2"}
# Both libraries implement squeeze-and-excitation with 1x1 convolutions.
_GATE_LAYOUT = {r".*/se/\w+/kernel": POINTWISE}

RESNET = ArrayNames({**_STEM, **_within(BLOCK, LAYER, _SHORTCUT), **_REST})
SE_RESNET = ArrayNames(
    {**_STEM, **_within(BLOCK, LAYER, {**_SHORTCUT, **_GATE}), **_REST},
    layouts=_GATE_LAYOUT,
)
RESNET_D = ArrayNames(
    {
        "stem1_conv": "conv1.0",
        "stem1_norm": "conv1.1",
        "stem2_conv": "conv1.3",
        "stem2_norm": "conv1.4",
        "stem3_conv": "conv1.6",
        "stem3_norm": "bn1",
        # Index 0 is the pooling layer of the shortcut.
        f"{BLOCK}/shortcut_conv": f"{LAYER}.downsample.1",
        f"{BLOCK}/shortcut_norm": f"{LAYER}.downsample.2",
        **_REST,
    }
)
# Pre-activation ResNets are `resnetv2` in timm.
PREACT_RESNET = ArrayNames(
    {
        "stem_conv": "stem.conv",
        rf"{BLOCK}/((?:conv|norm)\d)": f"{STAGE}.{{2}}",
        rf"{BLOCK}/shortcut_conv": f"{STAGE}.downsample.conv",
        "last_norm": "norm",
        "head/linear": "head.fc",
    },
    layouts={"head/linear/kernel": POINTWISE},
)

TIMM_REGNET = ArrayNames(
    {
        "stem_conv": "stem.conv",
        "stem_norm": "stem.bn",
        rf"{BLOCK}/conv(\d)": "s{0}.b{1}.conv{2}.conv",
        rf"{BLOCK}/norm(\d)": "s{0}.b{1}.conv{2}.bn",
        **_within(BLOCK, "s{0}.b{1}", _GATE),
        f"{BLOCK}/shortcut_conv": "s{0}.b{1}.downsample.conv",
        f"{BLOCK}/shortcut_norm": "s{0}.b{1}.downsample.bn",
        "head/linear": "head.fc",
    },
    layouts=_GATE_LAYOUT,
)
_TRUNK = "trunk_output.block{0}.block{0}-{1:-1}"
_BRANCH = {
    f"{BLOCK}/{ours}{number}": f"{_TRUNK}.f.{letter}.{theirs}"
    for number, letter in enumerate("abc", 1)
    for theirs, ours in enumerate(("conv", "norm"))
}
TORCHVISION_REGNET = ArrayNames(
    {
        "stem_conv": "stem.0",
        "stem_norm": "stem.1",
        **_BRANCH,
        **_within(BLOCK, f"{_TRUNK}.f", _GATE),
        f"{BLOCK}/shortcut_conv": f"{_TRUNK}.proj.0",
        f"{BLOCK}/shortcut_norm": f"{_TRUNK}.proj.1",
        "head/linear": "fc",
    },
    layouts=_GATE_LAYOUT,
)

DENSENET = ArrayNames(
    {
        "stem_conv": "features.conv0",
        "stem_norm": "features.norm0",
        r"block(\d)_layer(\d+)/(\w+)": "features.denseblock{0}.denselayer{1}.{2}",
        r"transition(\d)/(\w+)": "features.transition{0}.{1}",
        "last_norm": "features.norm5",
        "head/linear": "classifier",
    },
    # Names in older files published by torchvision.
    older={r"(.*\.denselayer\d+\.(?:norm|conv))\.(\d)\.(\w+)": "{0}{1}.{2}"},
)

# Pointwise convolutions are dense layers in both libraries and in jaxtrain.
TIMM_CONVNEXT = ArrayNames(
    {
        "stem_conv": "stem.0",
        "stem_norm": "stem.1",
        f"{BLOCK}/depthwise": f"{STAGE}.conv_dw",
        f"{BLOCK}/norm": f"{STAGE}.norm",
        rf"{BLOCK}/dense(\d)": f"{STAGE}.mlp.fc{{2}}",
        f"{BLOCK}/layer_scale/scale": f"{STAGE}.gamma",
        r"stage(\d+)_downsample/norm": "stages.{0:-1}.downsample.0",
        r"stage(\d+)_downsample/conv": "stages.{0:-1}.downsample.1",
        "head_norm": "head.norm",
        "head/linear": "head.fc",
    }
)
# Stages and downsampling layers alternate in torchvision's `features`.
_TURNS: dict[str, str] = {}
for stage in range(1, 5):
    _OURS, _THEIRS = rf"stage{stage}_block(\d+)", f"features.{2 * stage - 1}.{{0:-1}}"
    _TURNS |= {
        f"{_OURS}/depthwise": f"{_THEIRS}.block.0",
        f"{_OURS}/norm": f"{_THEIRS}.block.2",
        f"{_OURS}/dense1": f"{_THEIRS}.block.3",
        f"{_OURS}/dense2": f"{_THEIRS}.block.5",
        f"{_OURS}/layer_scale/scale": f"{_THEIRS}.layer_scale",
        f"stage{stage}_downsample/norm": f"features.{2 * stage - 2}.0",
        f"stage{stage}_downsample/conv": f"features.{2 * stage - 2}.1",
    }
TORCHVISION_CONVNEXT = ArrayNames(
    {
        "stem_conv": "features.0.0",
        "stem_norm": "features.0.1",
        **_TURNS,
        "head_norm": "classifier.0",
        "head/linear": "classifier.2",
    },
    layouts={r".*/layer_scale/scale": PER_CHANNEL},
)

_CONV_NORM = {"conv": "conv", "norm": "bn"}
GOOGLENET = ArrayNames(
    {
        **_within("conv1", "conv1", _CONV_NORM),
        **_within(r"conv(\d)", "conv{0}", _CONV_NORM),
        **_within(r"(inception\d\w)/conv1x1", "{0}.branch1", _CONV_NORM),
        **_within(r"(inception\d\w)/reduce3x3", "{0}.branch2.0", _CONV_NORM),
        **_within(r"(inception\d\w)/conv3x3", "{0}.branch2.1", _CONV_NORM),
        **_within(r"(inception\d\w)/reduce5x5", "{0}.branch3.0", _CONV_NORM),
        **_within(r"(inception\d\w)/conv5x5", "{0}.branch3.1", _CONV_NORM),
        **_within(r"(inception\d\w)/pool_conv", "{0}.branch4.1", _CONV_NORM),
        **_within(r"(aux\d)/conv", "{0}.conv", _CONV_NORM),
        r"(aux\d)/linear": "{0}.fc1",
        r"(aux\d)/head/linear": "{0}.fc2",
        "head/linear": "fc",
    },
    layouts={r"aux\d/linear/kernel": after_flatten(googlenet.POOLED)},
    # Our model may lack the auxiliary heads.
    unused=(r"aux\d\..*",),
)
INCEPTION_V3 = ArrayNames(
    {
        **_within("conv2d_1a_3x3", "Conv2d_1a_3x3", _CONV_NORM),
        **_within(r"conv2d_(\w+)", "Conv2d_{0}", _CONV_NORM),
        **_within(r"mixed_(\w+)/(\w+)", "Mixed_{0}.{1}", _CONV_NORM),
        **_within(r"aux/(\w+)", "AuxLogits.{0}", _CONV_NORM),
        "aux/head/linear": "AuxLogits.fc",
        "head/linear": "fc",
    },
    # Our model may lack the auxiliary head.
    unused=(r"AuxLogits\..*",),
)


def torchvision_vgg(model: type[vgg.VGG]) -> ArrayNames:
    """Return torchvision's array names of a VGG; ReLU and pooling have indices, too."""
    dense = {"dense1/linear": "classifier.0", "dense2/linear": "classifier.3"}
    return ArrayNames(
        {**_vgg_features(model), **dense, "head/linear": "classifier.6"},
        layouts={"dense1/linear/kernel": after_flatten(vgg.POOLED)},
    )


def timm_vgg(model: type[vgg.VGG]) -> ArrayNames:
    """Return timm's array names of a VGG; its dense layers are convolutions in timm."""
    dense = {r"dense(\d)/linear": "pre_logits.fc{0}"}
    return ArrayNames(
        {**_vgg_features(model), **dense, "head/linear": "head.fc"},
        layouts={
            "dense1/linear/kernel": convolution(vgg.POOLED),
            "dense2/linear/kernel": POINTWISE,
        },
    )


def _vgg_features(model: type[vgg.VGG]) -> dict[str, str]:
    names, number, last_stage = {}, 0, 1
    for stage, index in model.block_numbers():
        if stage > last_stage:
            number, last_stage = number + 1, stage
        names[f"stage{stage}_conv{index}"] = f"features.{number}"
        if model.batch_norm:
            number += 1
            names[f"stage{stage}_norm{index}"] = f"features.{number}"
        number += 2
    return names


_SQUEEZE_LAYOUT = {r".*/squeeze_excite/(squeeze|excite)/kernel": POINTWISE}


def timm_inverted(model: type[InvertedNet]) -> ArrayNames:
    """Return timm's array names of a MobileNet or EfficientNet."""
    layers = {"stem/conv": "conv_stem", "stem/norm": "bn1", "head/linear": "classifier"}
    for name, stage, index in model.block_names():
        parts, theirs = model.stages[stage].parts(index), f"blocks.{stage}.{index}"
        convs = [part for part in parts if part != "squeeze_excite"]
        for number, part in enumerate(convs, start=1):
            layers[f"{name}/{part}/conv"] = f"{theirs}.{_timm_conv(part, parts)}"
            layers[f"{name}/{part}/norm"] = f"{theirs}.bn{number}"
        if "squeeze_excite" in parts:
            layers[f"{name}/squeeze_excite/squeeze"] = f"{theirs}.se.conv_reduce"
            layers[f"{name}/squeeze_excite/excite"] = f"{theirs}.se.conv_expand"
    if not issubclass(model, MobileNetV3):
        layers |= {"last/conv": "conv_head", "last/norm": "bn2"}
        return ArrayNames(layers, layouts=_SQUEEZE_LAYOUT)
    last = f"blocks.{len(model.stages)}.0"
    layers |= {**_within("last", last, {"conv": "conv", "norm": "bn1"})}
    layers["dense"] = "conv_head"
    return ArrayNames(layers, layouts={**_SQUEEZE_LAYOUT, "dense/kernel": POINTWISE})


def _timm_conv(part: str, parts: tuple[str, ...]) -> str:
    """Return timm's name of a convolution; the name depends on the block's layers."""
    if part == "fused":
        return "conv_exp" if "project" in parts else "conv"
    if part == "project":
        return "conv_pwl" if parts[0] in ("expand", "fused") else "conv_pw"
    return {"expand": "conv_pw", "depthwise": "conv_dw"}[part]


def torchvision_inverted(model: type[InvertedNet]) -> ArrayNames:
    """Return torchvision's array names of a MobileNet or EfficientNet.

    torchvision numbers the layers of a block. Blocks are numbered consecutively in
    MobileNets, and within each stage in EfficientNets.
    """
    layers = {"stem/conv": "features.0.0", "stem/norm": "features.0.1"}
    consecutive = issubclass(model, MobileNetV2 | MobileNetV3)
    blocks = list(model.block_names())
    for number, (name, stage, index) in enumerate(blocks, start=1):
        block = f"features.{number}" if consecutive else f"features.{stage + 1}.{index}"
        block += ".conv" if issubclass(model, MobileNetV2) else ".block"
        for position, part in enumerate(model.stages[stage].parts(index)):
            names = {"conv": f"{position}.0", "norm": f"{position}.1"}
            if part == "squeeze_excite":
                names = {"squeeze": f"{position}.fc1", "excite": f"{position}.fc2"}
            elif part == "project" and issubclass(model, MobileNetV2):
                names = {"conv": f"{position}", "norm": f"{position + 1}"}
            layers |= _within(f"{name}/{part}", block, names)
    last = f"features.{1 + (len(blocks) if consecutive else len(model.stages))}"
    layers |= {"last/conv": f"{last}.0", "last/norm": f"{last}.1"}
    layers["head/linear"] = "classifier.1"
    if issubclass(model, MobileNetV3):
        layers |= {"dense": "classifier.0", "head/linear": "classifier.3"}
    return ArrayNames(layers, layouts=_SQUEEZE_LAYOUT)
