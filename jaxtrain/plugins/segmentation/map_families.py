"""Parameter names of torchvision's segmentation models."""

from typing import Any

from jaxtrain.weights.families import RESNET
from jaxtrain.weights.names import POINTWISE, ArrayNames

_BACKBONE = {
    ours: f"backbone.{theirs}"
    for ours, theirs in RESNET.layers.items()
    if ours != "head/linear"
}
_AUXILIARY = {
    "aux/conv/conv": "aux_classifier.0",
    "aux/conv/norm": "aux_classifier.1",
    "aux/head/linear": "aux_classifier.4",
}
# The last layers are 1x1 convolutions in torchvision, but linear layers in jaxtrain.
_MAPS: dict[str, Any] = {
    "layouts": {r"(aux/)?head/linear/kernel": POINTWISE},
    # Weights that a model without an auxiliary head does not use.
    "unused": (r"aux_classifier\..*",),
}
FCN = ArrayNames(
    {
        **_BACKBONE,
        **_AUXILIARY,
        "last/conv": "classifier.0",
        "last/norm": "classifier.1",
        "head/linear": "classifier.4",
    },
    **_MAPS,
)
_BRANCHES = "classifier.0.convs"
DEEPLAB_V3 = ArrayNames(
    {
        **_BACKBONE,
        **_AUXILIARY,
        r"aspp/conv(\d)/conv": f"{_BRANCHES}.{{0:-1}}.0",
        r"aspp/conv(\d)/norm": f"{_BRANCHES}.{{0:-1}}.1",
        "aspp/pooled/conv": f"{_BRANCHES}.4.1",
        "aspp/pooled/norm": f"{_BRANCHES}.4.2",
        "aspp/project/conv": "classifier.0.project.0",
        "aspp/project/norm": "classifier.0.project.1",
        "last/conv": "classifier.1",
        "last/norm": "classifier.2",
        "head/linear": "classifier.4",
    },
    **_MAPS,
)
