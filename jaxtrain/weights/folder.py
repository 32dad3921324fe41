"""Directory of an exported model: `model.safetensors` and `config.json`.

Arrays have timm's names and layouts if timm has an equivalent model (see
`weights/sources.py`), so that timm can load them, and jaxtrain's names and layouts
otherwise.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np

from jaxtrain.config.recipe import CONFIG
from jaxtrain.errors import UserError
from jaxtrain.json_files import typed
from jaxtrain.weights import files, sources
from jaxtrain.weights.description import Description
from jaxtrain.weights.names import OWN
from jaxtrain.weights.sources import WeightsSource
from jaxtrain.weights.stored import Weights

WEIGHTS = "model.safetensors"
# Keys in config.json: `OURS` has jaxtrain's fields, which timm ignores. Within `OURS`,
# `OWN_PARTS` has the digests of custom modules.
OURS, OWN_PARTS = "jaxtrain", "own_parts"


class Origin(TypedDict):
    """Origin of an exported model.

    Attributes:
      step: Step of the exported checkpoint; missing or None for an imported model.
      run: ID of the run; missing or None for an imported model.
      weights: Digest of the weights; see `digest`.
    """

    step: NotRequired[int | None]
    run: NotRequired[str | None]
    weights: str


class Exported(TypedDict):
    """Value of the key `OURS` in config.json; `model` is a `Description` as JSON."""

    model: dict[str, Any]
    origin: Origin


def open_folder(folder: Path, config: Mapping[str, Any]) -> Weights:
    """Open the directory of a model exported by jaxtrain.

    Args:
      folder: Path of the directory.
      config: Contents of config.json.

    Raises:
      UserError: The directory is of an incompatible version, or damaged.
    """
    place = str(folder / CONFIG)
    described = typed.convert(config[OURS], Exported, f"{place}: {OURS}")
    about = Description.from_dict(described["model"], place)
    path, source = folder / WEIGHTS, timm_source(about)
    stored = files.read(path)
    origin = {"step": None, "run": None, **described["origin"]}
    weights = Weights.from_file(path, about, stored, source.names if source else OWN)

    def read() -> Mapping[str, np.ndarray]:
        if digest(stored) != origin["weights"]:
            raise UserError(
                f"{path} does not match the digest in {place}; restore both files, or "
                "export the model again"
            )
        return stored

    return replace(weights, where=str(folder), read=read, origin=origin)


def timm_source(about: Description) -> WeightsSource | None:
    """Return the equivalent timm model, or None."""
    if about.members > 1:  # timm has no ensembles.
        return None
    return sources.find("timm", about.model, about.image_shape)


def digest(weights: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of arrays sorted by name, with names, dtypes and shapes."""
    sha256 = hashlib.sha256()
    for key in sorted(weights):
        array = np.ascontiguousarray(weights[key])
        sha256.update(f"{key} {array.dtype.name}{list(array.shape)}\n".encode())
        sha256.update(array.tobytes())
    return sha256.hexdigest()
