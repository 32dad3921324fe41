"""Parameter counts, FLOPs and memory of the models, from `benchmarks/zoo.py`."""

import json
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).with_name("counted.json")


class MatchingWeights(NamedTuple):
    """Weights of another library that a jaxtrain model can load.

    Attributes:
      library: Library, timm or torchvision.
      architecture: Name of the model in that library.
      options: Options with which jaxtrain's model has the same outputs.
    """

    library: str
    architecture: str
    options: dict[str, Any]


class Counted(NamedTuple):
    """Cost of a model in float32 on one device, at its default image size.

    Attributes:
      num_params: Number of trainable parameters.
      forward_flops: FLOPs of a forward pass on one image in evaluation, excluding
        padding; a multiply-add is two FLOPs.
      step_bytes: Memory in bytes of a training step on 32 images with SGD and momentum:
        parameters, momentum, images, and activations stored for the backward pass.
      weights: Compatible weights of other libraries.
    """

    num_params: int
    forward_flops: int
    step_bytes: int
    weights: tuple[MatchingWeights, ...]


def read() -> dict[str, Counted]:
    """Read the stored costs, by model name."""
    rows = json.loads(FILE.read_text(encoding="utf-8"))
    return {
        name: Counted(
            **{**row, "weights": tuple(MatchingWeights(**w) for w in row["weights"])}
        )
        for name, row in rows.items()
    }
