"""GoogLeNet of torchvision."""

from jaxtrain.models.googlenet import POOLED
from jaxtrain.models.weights.names import ArrayNames, after_flatten

BRANCHES = {
    "conv1x1": "branch1",
    "reduce3x3": "branch2.0",
    "conv3x3": "branch2.1",
    "reduce5x5": "branch3.0",
    "conv5x5": "branch3.1",
    "pool_conv": "branch4.1",
}

GOOGLENET = ArrayNames(
    layers={
        r"conv(\d)/conv": "conv{0}.conv",
        r"conv(\d)/norm": "conv{0}.bn",
        **{
            rf"(inception\d\w)/{ours}/conv": f"{{0}}.{theirs}.conv"
            for ours, theirs in BRANCHES.items()
        },
        **{
            rf"(inception\d\w)/{ours}/norm": f"{{0}}.{theirs}.bn"
            for ours, theirs in BRANCHES.items()
        },
        r"(aux\d)/conv/conv": "{0}.conv.conv",
        r"(aux\d)/conv/norm": "{0}.conv.bn",
        r"(aux\d)/linear": "{0}.fc1",
        r"(aux\d)/head/linear": "{0}.fc2",
        r"head/linear": "fc",
    },
    first_conv="conv1.conv",
    classifier="fc",
    layouts={r"aux\d/linear/kernel": after_flatten(POOLED, POOLED)},
    # Where our model has no auxiliary heads.
    unused=(r"aux\d\..*",),
)
