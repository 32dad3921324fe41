"""ConvNeXt: both libraries have dense layers where ours are."""

from jaxtrain.models.weights.names import PER_CHANNEL, ArrayNames

_BLOCK = r"stage(\d+)_block(\d+)"
TIMM = ArrayNames(
    layers={
        r"stem_conv": "stem.0",
        r"stem_norm": "stem.1",
        rf"{_BLOCK}/depthwise": "stages.{0:-1}.blocks.{1:-1}.conv_dw",
        rf"{_BLOCK}/norm": "stages.{0:-1}.blocks.{1:-1}.norm",
        rf"{_BLOCK}/dense(\d)": "stages.{0:-1}.blocks.{1:-1}.mlp.fc{2}",
        rf"{_BLOCK}/layer_scale/scale": "stages.{0:-1}.blocks.{1:-1}.gamma",
        r"stage(\d+)_downsample/norm": "stages.{0:-1}.downsample.0",
        r"stage(\d+)_downsample/conv": "stages.{0:-1}.downsample.1",
        r"head_norm": "head.norm",
        r"head/linear": "head.fc",
    },
    first_conv="stem.0",
    classifier="head.fc",
)


def _torchvision() -> dict[str, str]:
    """Return the names in torchvision: stages and what is between them take turns."""
    layers = {
        r"stem_conv": "features.0.0",
        r"stem_norm": "features.0.1",
        r"head_norm": "classifier.0",
        r"head/linear": "classifier.2",
    }
    for stage in range(1, 5):
        block, theirs = (
            rf"stage{stage}_block(\d+)",
            f"features.{2 * stage - 1}.{{0:-1}}",
        )
        layers |= {
            rf"{block}/depthwise": f"{theirs}.block.0",
            rf"{block}/norm": f"{theirs}.block.2",
            rf"{block}/dense1": f"{theirs}.block.3",
            rf"{block}/dense2": f"{theirs}.block.5",
            rf"{block}/layer_scale/scale": f"{theirs}.layer_scale",
            rf"stage{stage}_downsample/norm": f"features.{2 * stage - 2}.0",
            rf"stage{stage}_downsample/conv": f"features.{2 * stage - 2}.1",
        }
    return layers


TORCHVISION = ArrayNames(
    layers=_torchvision(),
    first_conv="features.0.0",
    classifier="classifier.2",
    layouts={r".*/layer_scale/scale": PER_CHANNEL},
)
