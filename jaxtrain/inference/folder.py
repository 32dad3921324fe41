"""A model in one folder: `model.safetensors` and `config.json`, as timm has them.

timm itself reads the folder where it has the model (see `models/weights/sources.py`):
weights then have its names and layouts, and otherwise ours.
"""

import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np
from safetensors.numpy import save

from jaxtrain import own
from jaxtrain.config import own_references
from jaxtrain.errors import UserError
from jaxtrain.inference.description import Description
from jaxtrain.inference.model import TrainedModel
from jaxtrain.inference.trained import Trained, ours
from jaxtrain.json_files import typed
from jaxtrain.json_files.write import write_digested
from jaxtrain.models.weights import files, sources
from jaxtrain.models.weights.names import OWN
from jaxtrain.models.weights.sources import WeightsSource
from jaxtrain.records.whole import reported, whole
from jaxtrain.trees import by_path

WEIGHTS, CONFIG = "model.safetensors", "config.json"
# The key of what timm does not know in its JSON, and of the digests in it of the files
# with parts of the user's own.
OURS, OWN_PARTS = "jaxtrain", "own_parts"


class Origin(TypedDict):
    """Where an exported model comes from.

    Attributes:
      step: Step of its checkpoint; missing or None means that it was imported.
      run: Id of the run; missing or None likewise.
      weights: Digest of the weights: see `digest`.
    """

    step: NotRequired[int | None]
    run: NotRequired[str | None]
    weights: str


class Exported(TypedDict):
    """What `config.json` holds under `OURS`; `model` is read by `Description`."""

    model: dict[str, Any]
    origin: Origin


def write(model: TrainedModel, folder: Path) -> None:
    """Write a model into a new folder, whole or not at all.

    Raises:
      UserError: something is there already, or it cannot be written.
    """
    weights = to_named(model)
    with whole("--out", folder, folder=True) as partial, reported("--out", folder):
        (partial / WEIGHTS).write_bytes(save(weights, metadata={"format": "pt"}))
        write_digested(partial / CONFIG, _config(model, weights))


def open_folder(folder: Path, config: Mapping[str, Any]) -> Trained:
    """Open a folder that was written here, whose config.json was read already.

    Raises:
      UserError: it was written by another version, or is damaged.
    """
    place = str(folder / CONFIG)
    described = typed.convert(config[OURS], Exported, f"{place}: {OURS}")
    origin = described["origin"]
    about = Description.from_dict(described["model"], place)
    path, theirs = folder / WEIGHTS, _timm(about)
    stored = files.read(path)

    def read() -> Mapping[str, np.ndarray]:
        if digest(stored) != origin["weights"]:
            raise UserError(f"{path} is not what {place} was written with")
        return stored

    return Trained(
        where=str(folder),
        about=about,
        shapes={name: x.shape for name, x in stored.items()},
        digest=functools.cache(lambda: files.digest(path)),
        read=read,
        names=theirs.names if theirs else OWN,
        origin={"step": None, "run": None, **origin},
    )


def to_named(model: TrainedModel) -> dict[str, np.ndarray]:
    """Return the weights by their names in the file, in the layouts that it has."""
    theirs = _timm(model.description)
    names, found = theirs.names if theirs else OWN, {}
    arrays = by_path((model.params, model.model_state))
    for path, x in arrays.items():
        array = names.layout(ours(path)).to_torch(np.asarray(x))
        # `ascontiguousarray` would give a scalar a dim.
        found[names.name(ours(path))] = np.asarray(array, order="C")
    assert len(found) == len(arrays)
    return found


def _timm(about: Description) -> WeightsSource | None:
    """Return timm's model that computes what this one does, if there is one."""
    if about.members > 1:  # Which timm does not have.
        return None
    return sources.find("timm", about.model, about.image_shape)


def digest(weights: Mapping[str, np.ndarray]) -> str:
    """Return the SHA-256 of names, dtypes, shapes and values, in the order of names."""
    found = hashlib.sha256()
    for key in sorted(weights):
        array = np.ascontiguousarray(weights[key])
        found.update(f"{key} {array.dtype.name}{list(array.shape)}\n".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def _config(model: TrainedModel, weights: Mapping[str, np.ndarray]) -> dict[str, Any]:
    about = model.description
    height, width, channels = about.image_shape
    theirs = _timm(about)
    layers: dict[str, Any] = {}
    arguments: dict[str, Any] = {"in_chans": channels} if channels != 3 else {}
    if theirs is not None:
        layers = {
            "first_conv": theirs.names.first_conv,
            "classifier": theirs.names.classifier,
        }
        if any(map(theirs.names.is_unused, weights)):
            arguments |= theirs.auxiliary
    config: dict[str, Any] = {
        "architecture": theirs.architecture if theirs else about.model.name,
        "num_classes": about.num_outputs,
        "label_names": about.class_names,
        "pretrained_cfg": {
            "input_size": [channels, height, width],
            "mean": about.mean,
            "std": about.std,
            "crop_pct": about.crop_pct,
            "interpolation": about.interpolation,
            "crop_mode": about.crop_mode,
            "num_classes": about.num_outputs,
            **layers,
        },
        "model_args": arguments,
    }
    origin = {**model.origin, "weights": digest(weights)}
    names = [name for _, name in own_references(about.model)]
    parts = own.digests([*names, about.task])
    described = {"model": about.to_dict(), "origin": origin, OWN_PARTS: parts}
    return {**config, OURS: described}
