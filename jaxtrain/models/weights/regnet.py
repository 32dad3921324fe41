"""RegNets of timm and of torchvision."""

from jaxtrain.models.weights.names import POINTWISE, ArrayNames

_BLOCK = r"stage(\d+)_block(\d+)"
_LAYOUTS = {r".*/se/\w+/kernel": POINTWISE}

TIMM = ArrayNames(
    layers={
        r"stem_conv": "stem.conv",
        r"stem_norm": "stem.bn",
        rf"{_BLOCK}/conv(\d)": "s{0}.b{1}.conv{2}.conv",
        rf"{_BLOCK}/norm(\d)": "s{0}.b{1}.conv{2}.bn",
        rf"{_BLOCK}/se/squeeze": "s{0}.b{1}.se.fc1",
        rf"{_BLOCK}/se/excite": "s{0}.b{1}.se.fc2",
        rf"{_BLOCK}/shortcut_conv": "s{0}.b{1}.downsample.conv",
        rf"{_BLOCK}/shortcut_norm": "s{0}.b{1}.downsample.bn",
        r"head/linear": "head.fc",
    },
    first_conv="stem.conv",
    classifier="head.fc",
    layouts=_LAYOUTS,
)


def _torchvision() -> dict[str, str]:
    block = "trunk_output.block{0}.block{0}-{1:-1}"
    names = {
        r"stem_conv": "stem.0",
        r"stem_norm": "stem.1",
        rf"{_BLOCK}/se/squeeze": f"{block}.f.se.fc1",
        rf"{_BLOCK}/se/excite": f"{block}.f.se.fc2",
        rf"{_BLOCK}/shortcut_conv": f"{block}.proj.0",
        rf"{_BLOCK}/shortcut_norm": f"{block}.proj.1",
        r"head/linear": "fc",
    }
    for number, letter in enumerate("abc", 1):
        names[rf"{_BLOCK}/conv{number}"] = f"{block}.f.{letter}.0"
        names[rf"{_BLOCK}/norm{number}"] = f"{block}.f.{letter}.1"
    return names


TORCHVISION = ArrayNames(
    layers=_torchvision(), first_conv="stem.0", classifier="fc", layouts=_LAYOUTS
)
