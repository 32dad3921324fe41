"""Weights by the names and in the layouts of timm (PyTorch Image Models).

A model that timm has, under the same name and with the same layers, has a row in
`FAMILIES`: patterns of our names, and what they are there.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from jaxtrain.config import ModelConfig

# Our name of an array -> its own there, after that of its layer.
LEAVES = {
    "kernel": "weight",
    "scale": "weight",
    "bias": "bias",
    "mean": "running_mean",
    "var": "running_var",
}


@dataclass(frozen=True)
class Family:
    """Models whose layers timm names alike.

    Attributes:
      layers: pattern of our name of a layer -> timm's; each layer matches one.
      first_conv: the layer that sees the image.
      classifier: the layer that puts out the classes.
      options: that must be as they are given here, if they are set.
      input_size: height and width that timm takes for granted.
    """

    layers: Mapping[str, str]
    first_conv: str
    classifier: str
    options: Mapping[str, object] = field(default_factory=dict)
    input_size: int = 224


RESNET = Family(
    layers={
        r"stem_conv": "conv1",
        r"stem_norm": "bn1",
        r"stage(\d+)_block(\d+)/conv(\d)": "layer{0}.{1}.conv{2}",
        r"stage(\d+)_block(\d+)/norm(\d)": "layer{0}.{1}.bn{2}",
        r"stage(\d+)_block(\d+)/shortcut_conv": "layer{0}.{1}.downsample.0",
        r"stage(\d+)_block(\d+)/shortcut_norm": "layer{0}.{1}.downsample.1",
        r"head/linear": "fc",
    },
    first_conv="conv1",
    classifier="fc",
    options={"stem": "imagenet", "width": 1.0},
)

# Of a block, by its number: timm counts from 0.
COUNTED = re.compile(r"stage(\d+)_block(\d+)/")

FAMILIES = {
    "resnet18": RESNET,
    "resnet34": RESNET,
    "resnet50": RESNET,
    "resnet101": RESNET,
    "resnet152": RESNET,
}


def family(config: ModelConfig) -> Family | None:
    """Return the family of a model; None: timm has no such model."""
    found = FAMILIES.get(config.name)
    if found is None:
        return None
    set_otherwise = any(
        getattr(config, name) not in (None, value)
        for name, value in found.options.items()
    )
    return None if set_otherwise else found


def name(family: Family, path: str) -> str:
    """Return timm's name of an array of ours, such as `head/linear/kernel`."""
    layer, _, leaf = path.rpartition("/")
    for pattern, theirs in family.layers.items():
        match = re.fullmatch(pattern, layer)
        if match:
            parts = list(match.groups())
            if COUNTED.match(layer):
                parts[1] = str(int(parts[1]) - 1)
            return f"{theirs.format(*parts)}.{LEAVES[leaf]}"
    raise AssertionError(f"{path} has no name in timm")


def to_torch(array: np.ndarray) -> np.ndarray:
    """Return a kernel in PyTorch's layout: (out, in, rows, columns), or (out, in)."""
    if array.ndim == 4:
        array = array.transpose(3, 2, 0, 1)
    elif array.ndim == 2:
        array = array.T
    return np.ascontiguousarray(array)


def from_torch(array: np.ndarray) -> np.ndarray:
    """Return a kernel of PyTorch in our layout: (rows, columns, in, out), (in, out)."""
    if array.ndim == 4:
        array = array.transpose(2, 3, 1, 0)
    elif array.ndim == 2:
        array = array.T
    return np.ascontiguousarray(array)
