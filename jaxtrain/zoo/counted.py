"""Counts of the compiled programs of the models (`benchmarks/zoo.py`)."""

import json
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).with_name("counted.json")


class MatchingWeights(NamedTuple):
    """Weights of another library that a model can begin with.

    Attributes:
      library: timm or torchvision.
      architecture: name of the model there.
      options: of ours, with which it computes the same.
    """

    library: str
    architecture: str
    options: dict[str, Any]


class Counted(NamedTuple):
    """Cost of a model in float32 on one device, at its own size.

    Attributes:
      num_params: trainable parameters.
      forward_flops: of one image, where it is evaluated: multiplications and additions,
        each is one. Those with zeros around an image are left out.
      step_bytes: of a training step on 32 images with SGD and momentum: parameters,
        momenta, images and all that the compiler keeps between forward and backward.
      weights: of other libraries.
    """

    num_params: int
    forward_flops: int
    step_bytes: int
    weights: tuple[MatchingWeights, ...]


def read() -> dict[str, Counted]:
    """Return the counts of the models that were counted."""
    rows = json.loads(FILE.read_text(encoding="utf-8"))
    return {
        name: Counted(
            **{**row, "weights": tuple(MatchingWeights(**w) for w in row["weights"])}
        )
        for name, row in rows.items()
    }
