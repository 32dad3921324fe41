"""Whether the files beside the weights are what was written."""

import os
from pathlib import Path

from jaxtrain.config.recipe import CONFIG, WEIGHTS
from jaxtrain.errors import UserError
from jaxtrain.inference import load
from jaxtrain.inference.description import MODEL
from jaxtrain.inference.temperature import TEMPERATURE
from jaxtrain.json_files.read import has_digest
from jaxtrain.records.workdir import DATA, EVALUATION, OWN_PARTS, SKIPS, SUMMARY

GOOD = "good"
UNKNOWN = "has no digest: written by an earlier version, or changed by hand"


def verify_json(workdir: Path) -> dict[str, str]:
    """Return `GOOD`, `UNKNOWN` or the damage of each file that others depend on."""
    names = (CONFIG, DATA, OWN_PARTS, MODEL, SUMMARY, SKIPS, TEMPERATURE, EVALUATION)
    found = [workdir / name for name in names if os.path.lexists(workdir / name)]
    return {path.name: _state(path) for path in found}


def verify_model(folder: Path) -> dict[str, str]:
    """Return the same of the files of a model in a folder, weights included."""
    found = {CONFIG: _state(folder / CONFIG)}
    weights = next((name for name in WEIGHTS if (folder / name).is_file()), WEIGHTS[0])
    try:
        trained = load.find(str(folder))
        trained.read()
        found[weights] = UNKNOWN if trained.origin is None else GOOD
    except UserError as error:
        found[weights] = str(error)
    return found


def _state(path: Path) -> str:
    try:
        return GOOD if has_digest(path) else UNKNOWN
    except UserError as error:
        return str(error)
