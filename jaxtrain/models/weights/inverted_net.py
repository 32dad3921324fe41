"""MobileNets and EfficientNets: names follow from what the blocks consist of."""

from jaxtrain.models.inverted_net import InvertedNet
from jaxtrain.models.mobilenet import MobileNetV2, MobileNetV3
from jaxtrain.models.weights.names import POINTWISE, ArrayNames

# Of the dense layers of a squeeze-and-excitation, both libraries have convolutions.
SQUEEZE = r".*/squeeze_excite/(squeeze|excite)/kernel"


def timm(model: type[InvertedNet]) -> ArrayNames:
    """Return the names of a model in timm, which numbers the norms of a block."""
    layers = {"stem/conv": "conv_stem", "stem/norm": "bn1", "head/linear": "classifier"}
    layouts = {SQUEEZE: POINTWISE}
    for name, stage, index in model.block_names():
        parts = model.stages[stage].parts(index)
        theirs = f"blocks.{stage}.{index}"
        convs = [part for part in parts if part != "squeeze_excite"]
        for number, part in enumerate(convs, start=1):
            layers[f"{name}/{part}/conv"] = f"{theirs}.{_timm_conv(part, parts)}"
            layers[f"{name}/{part}/norm"] = f"{theirs}.bn{number}"
        if "squeeze_excite" in parts:
            layers[f"{name}/squeeze_excite/squeeze"] = f"{theirs}.se.conv_reduce"
            layers[f"{name}/squeeze_excite/excite"] = f"{theirs}.se.conv_expand"
    if issubclass(model, MobileNetV3):
        last = f"blocks.{len(model.stages)}.0"
        layers |= {"last/conv": f"{last}.conv", "last/norm": f"{last}.bn1"}
        layers |= {"dense": "conv_head"}
        layouts["dense/kernel"] = POINTWISE
    else:
        layers |= {"last/conv": "conv_head", "last/norm": "bn2"}
    return ArrayNames(
        layers, first_conv="conv_stem", classifier="classifier", layouts=layouts
    )


def _timm_conv(part: str, parts: tuple[str, ...]) -> str:
    """Return the name of a convolution, which depends on the others of its block."""
    if part == "fused":
        return "conv_exp" if "project" in parts else "conv"
    if part == "project":
        return "conv_pwl" if parts[0] in ("expand", "fused") else "conv_pw"
    return {"expand": "conv_pw", "depthwise": "conv_dw"}[part]


def torchvision(model: type[InvertedNet]) -> ArrayNames:
    """Return the names of a model in torchvision, which numbers the parts of a block.

    It numbers the blocks of MobileNets through, and those of EfficientNets by stage.
    """
    layers = {"stem/conv": "features.0.0", "stem/norm": "features.0.1"}
    layouts = {SQUEEZE: POINTWISE}
    through = issubclass(model, MobileNetV2 | MobileNetV3)
    blocks = list(model.block_names())
    for number, (name, stage, index) in enumerate(blocks, start=1):
        block = f"features.{number}" if through else f"features.{stage + 1}.{index}"
        for place, part in enumerate(model.stages[stage].parts(index)):
            if part == "squeeze_excite":
                layers[f"{name}/{part}/squeeze"] = f"{block}.block.{place}.fc1"
                layers[f"{name}/{part}/excite"] = f"{block}.block.{place}.fc2"
                continue
            names = f"{block}.block.{place}.0", f"{block}.block.{place}.1"
            if issubclass(model, MobileNetV2):
                names = f"{block}.conv.{place}.0", f"{block}.conv.{place}.1"
                if part == "project":
                    names = f"{block}.conv.{place}", f"{block}.conv.{place + 1}"
            layers[f"{name}/{part}/conv"], layers[f"{name}/{part}/norm"] = names
    last = f"features.{1 + (len(blocks) if through else len(model.stages))}"
    layers |= {"last/conv": f"{last}.0", "last/norm": f"{last}.1"}
    classifier = "classifier.1"
    if issubclass(model, MobileNetV3):
        classifier = "classifier.3"
        layers["dense"] = "classifier.0"
    layers["head/linear"] = classifier
    return ArrayNames(
        layers, first_conv="features.0.0", classifier=classifier, layouts=layouts
    )
