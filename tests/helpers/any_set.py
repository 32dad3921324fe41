"""A source of the user's own: arrays in a file, with any targets and facts."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrain import own
from jaxtrain.data.slices import NamedSplits
from jaxtrain.data.stores import ArrayStore
from tests.helpers.zoo import texture

SOURCE = f"{Path(__file__)}:open_set"
NUM_TEST = 12
own.allow([SOURCE])


def write_set(
    folder: Path, target: np.ndarray, facts: dict[str, Any], *, near: bool = False
) -> str:
    """Write a grey picture for each target, and return the path that `open_set` takes.

    Args:
      folder: Folder of the file.
      target: Targets of all examples, (N, ...).
      facts: Facts of the set.
      near: Whether the first two pictures are nearly equal.
    """
    pictures = np.stack([texture(i, 16)[..., :1] for i in range(len(target))])
    if near:
        pictures[1] = np.minimum(pictures[0], 254) + 1
    path = folder / "set.npz"
    np.savez(path, image=pictures, label=target, facts=json.dumps(facts))
    return str(path)


def open_set(path: str) -> tuple[ArrayStore, NamedSplits]:
    """Open such a file; the last examples are the test split."""
    with np.load(path) as saved:
        facts = json.loads(str(saved["facts"]))
        store = ArrayStore(saved["image"], saved["label"], facts)
    train, test = np.split(np.arange(len(store.images)), [-NUM_TEST])
    return store, {"train": [train], "test": [test]}
