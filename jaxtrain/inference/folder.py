"""A model in one folder: `model.safetensors` and `config.json`, as timm has them.

timm itself reads the folder where it has the model (see `models/weights/sources.py`):
weights then have its names and layouts, and otherwise ours.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from jaxtrain.checkpoints.digest import flatten, name
from jaxtrain.errors import UserError
from jaxtrain.inference.description import Description
from jaxtrain.inference.model import TrainedModel, abstract_weights, make_model
from jaxtrain.models.weights import sources
from jaxtrain.models.weights.sources import Source
from jaxtrain.records.whole import reported, whole
from jaxtrain.records.workdir import write_json

WEIGHTS, CONFIG = "model.safetensors", "config.json"
# The key of what timm does not know in its JSON.
OURS = "jaxtrain"


def is_model(folder: Path) -> bool:
    return (folder / WEIGHTS).exists()


def write(model: TrainedModel, folder: Path) -> None:
    """Write a model into a new folder, whole or not at all.

    Raises:
      UserError: something is there already, or it cannot be written.
    """
    weights = to_named(model)
    with whole("--out", folder, folder=True) as partial, reported("--out", folder):
        (partial / WEIGHTS).write_bytes(save(weights, metadata={"format": "pt"}))
        write_json(partial / CONFIG, _config(model, digest(weights)))


def load(folder: Path) -> TrainedModel:
    """Load the model of a folder.

    Raises:
      UserError: the folder was not written by this version, or is damaged.
    """
    path = folder / CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        weights = load_file(folder / WEIGHTS)
    except (OSError, ValueError, SafetensorError) as error:
        raise UserError(f"{folder}: not a whole model ({error}): export it") from None
    if not isinstance(config, dict) or OURS not in config:
        raise UserError(
            f"{path} was not written by jaxtrain: export a run with --format "
            "safetensors"
        )
    about = Description.from_dict(config[OURS]["model"], str(path))
    origin = config[OURS]["origin"]
    if digest(weights) != origin["weights"]:
        raise UserError(f"{folder / WEIGHTS} is not what {path} was written with")
    params, model_state = from_named(about, weights, str(folder))
    return make_model(about, params, model_state, origin, str(folder))


def to_named(model: TrainedModel) -> dict[str, np.ndarray]:
    """Return the weights by their names in the file, in the layouts that it has."""
    named, theirs = _names(model.description), _timm(model.description)
    found = {}
    for path, x in flatten((model.params, model.model_state)):
        array = np.asarray(x)
        if theirs is not None:
            array = theirs.names.layout(_ours(path)).to_torch(array)
        found[named[name(path)]] = np.ascontiguousarray(array)
    return found


def from_named(
    about: Description, weights: dict[str, np.ndarray], where: str
) -> tuple[Any, Any]:
    """Return parameters and other state of weights by their names in the file.

    Raises:
      UserError: there are others than the model has.
    """
    names = _names(about)
    differing = sorted(set(names.values()) ^ weights.keys())
    if differing:
        raise UserError(
            f"{where}: {differing[0]} and {len(differing) - 1} more arrays are missing "
            f"or unknown to model.name = {about.model.name!r}"
        )
    theirs = _timm(about)

    def array(path: Any, _: Any) -> np.ndarray:
        found = weights[names[name(path)]]
        if theirs is not None:
            found = theirs.names.layout(_ours(path)).from_torch(found)
        return np.ascontiguousarray(found)

    return jax.tree_util.tree_map_with_path(array, abstract_weights(about))


def _names(about: Description) -> dict[str, str]:
    """Map the path of each array, below params (0) or other state (1), to its name."""
    theirs, found = _timm(about), {}
    for path, _ in flatten(abstract_weights(about)):
        ours = _ours(path)
        found[name(path)] = (
            theirs.names.name(ours) if theirs else ours.replace("/", ".")
        )
    assert len(set(found.values())) == len(found)
    return found


def _timm(about: Description) -> Source | None:
    """Return timm's model that computes what this one does, if there is one."""
    return sources.find("timm", about.model)


def _ours(path: Any) -> str:
    """Return the path of an array within the parameters, or within the other state."""
    return name(path).partition("/")[2]


def digest(weights: dict[str, np.ndarray]) -> str:
    """Return the SHA-256 of names, dtypes, shapes and values, in the order of names."""
    found = hashlib.sha256()
    for key in sorted(weights):
        array = np.ascontiguousarray(weights[key])
        found.update(f"{key} {array.dtype.name}{list(array.shape)}\n".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def _config(model: TrainedModel, weights: str) -> dict[str, Any]:
    about = model.description
    height, width, channels = about.image_shape
    theirs = _timm(about)
    layers = {}
    if theirs is not None:
        layers = {
            "first_conv": theirs.names.first_conv,
            "classifier": theirs.names.classifier,
        }
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
            "num_classes": about.num_outputs,
            **layers,
        },
        "model_args": {"in_chans": channels} if channels != 3 else {},
    }
    origin = {**model.origin, "weights": weights}
    return {**config, OURS: {"model": about.to_dict(), "origin": origin}}
