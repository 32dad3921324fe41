"""Damage to files, of checkpoints and of weights."""

from pathlib import Path

import numpy as np

from jaxtrain.errors import UserError
from jaxtrain.weights import files as weights


def files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file())


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def read_weights(path: Path, content: bytes) -> None:
    """Read a file of this content: it has tensors, or there is a UserError."""
    path.write_bytes(content)
    try:
        found = weights.read(path)
    except UserError as error:
        assert str(path) in str(error) and len(str(error)) < 1000
    else:
        for array in found.values():
            assert array.nbytes <= len(content)
            np.array(array)
