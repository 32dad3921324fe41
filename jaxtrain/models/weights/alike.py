"""Architectures of timm and torchvision whose arrays have the same names and shapes.

Names and shapes cannot tell them apart, so the name of a file does, or a config.json.
`alike.json` is written by `tests/oracles/alike.py`, from all models of both libraries.
"""

import functools
import json
import re
from pathlib import Path
from typing import Any

from jaxtrain.models.weights.sources import SOURCES, WeightsSource

FILE = Path(__file__).with_name("alike.json")


def same_function(source: WeightsSource) -> frozenset[str]:
    """Return other names of a model: the same arrays, and the same outputs."""
    return _names(source, "same")


def other_function(source: WeightsSource) -> frozenset[str]:
    """Return the architectures with the same arrays that compute something else."""
    return _names(source, "other") - same_function(source) - {source.architecture}


def named_by(file_name: str) -> str | None:
    """Return the longest architecture with which the name of a file begins.

    Such as resnet50 of resnet50-0676ba61.pth, or efficientnet_b0 of
    efficientnet_b0_rwightman-7f5810bc.pth; None if it begins with none.
    """
    return max(
        (name for name in _all_names() if begins_with(file_name, name)),
        key=len,
        default=None,
    )


def begins_with(file_name: str, architecture: str) -> bool:
    """Whether the name of a file begins with an architecture, as a whole word."""
    return bool(re.match(rf"{re.escape(architecture)}(?![0-9A-Za-z])", file_name))


def sharing_arrays(architecture: str) -> WeightsSource | None:
    """Return a model of ours with the arrays of an architecture that we do not have."""
    rows = (source for sources in SOURCES.values() for source in sources)
    return next((row for row in rows if architecture in other_function(row)), None)


def _names(source: WeightsSource, kind: str) -> frozenset[str]:
    lists = _read().get(f"{source.library}:{source.architecture}", {})
    return frozenset(name.partition(":")[2] for name in lists.get(kind, ()))


@functools.cache
def _read() -> dict[str, Any]:
    return json.loads(FILE.read_text(encoding="utf-8"))["models"]


@functools.cache
def _all_names() -> frozenset[str]:
    known = {s.architecture for sources in SOURCES.values() for s in sources}
    lists = (names for lists in _read().values() for names in lists.values())
    return frozenset(known | {n.partition(":")[2] for names in lists for n in names})
