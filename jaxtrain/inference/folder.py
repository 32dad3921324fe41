"""Export to timm's format: a directory with `model.safetensors` and `config.json`.

Weights have timm's names and layouts if timm has the architecture, otherwise
jaxtrain's.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from jaxtrain import own
from jaxtrain.config import own_references
from jaxtrain.config.recipe import CONFIG
from jaxtrain.inference.model import TrainedModel
from jaxtrain.json_files.write import write_digested
from jaxtrain.records.atomic_output import atomic_output, reported
from jaxtrain.trees import by_path
from jaxtrain.weights.folder import OURS, OWN_PARTS, WEIGHTS, digest, timm_source
from jaxtrain.weights.names import OWN
from jaxtrain.weights.stored import path_in_weights


def write(model: TrainedModel, folder: Path) -> None:
    """Write a model into a new directory, atomically.

    Raises:
      UserError: The path exists, or cannot be written.
    """
    weights = to_named(model)
    with (
        atomic_output("--out", folder, folder=True) as partial,
        reported("--out", folder),
    ):
        (partial / WEIGHTS).write_bytes(save(weights, metadata={"format": "pt"}))
        write_digested(partial / CONFIG, _config(model, weights))


def to_named(model: TrainedModel) -> dict[str, np.ndarray]:
    """Return the weights by name, with the names and layouts of the exported file."""
    source = timm_source(model.description)
    names, weights = source.names if source else OWN, {}
    arrays = by_path((model.params, model.model_state))
    for path, x in arrays.items():
        array = names.layout(path_in_weights(path)).to_torch(np.asarray(x))
        # `ascontiguousarray` would turn a scalar into an array of rank 1.
        weights[names.name(path_in_weights(path))] = np.asarray(array, order="C")
    assert len(weights) == len(arrays)
    return weights


def _config(model: TrainedModel, weights: Mapping[str, np.ndarray]) -> dict[str, Any]:
    about = model.description
    height, width, channels = about.image_shape
    source = timm_source(about)
    layers: dict[str, Any] = {}
    arguments: dict[str, Any] = {"in_chans": channels} if channels != 3 else {}
    if source is not None:
        layers = {
            "first_conv": source.names.first_conv,
            "classifier": source.names.classifier,
        }
        if any(map(source.names.is_unused, weights)):
            arguments |= source.auxiliary
    config: dict[str, Any] = {
        "architecture": source.architecture if source else about.model.name,
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
