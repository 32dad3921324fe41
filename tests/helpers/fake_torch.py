"""A stand-in for PyTorch, which the tests do without: tensors, and a `load` of ours."""

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load as load_safetensors


@dataclass(frozen=True)
class Tensor:
    """A tensor; like PyTorch's, it gives no array of bfloat16."""

    array: np.ndarray

    @property
    def dtype(self) -> str:
        return self.array.dtype.name

    def detach(self) -> "Tensor":
        return self

    def view(self, dtype: str) -> "Tensor":
        return Tensor(self.array.view(dtype))

    def numpy(self) -> np.ndarray:
        if self.dtype == "bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.array


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, whatever it is called."""
    arrays = load_safetensors(path.read_bytes())
    return {name: Tensor(array) for name, array in arrays.items()}


def install(
    patch: pytest.MonkeyPatch, load: Callable[[Path], Any] = load_tensors
) -> list[dict[str, Any]]:
    """Put it in the place of PyTorch; return the options of calls of `torch.load`."""
    found: list[dict[str, Any]] = []
    torch: Any = ModuleType("torch")
    torch.__version__ = "2.10.0+cpu"
    torch.__spec__ = ModuleSpec("torch", None, origin=__file__)
    torch.Tensor, torch.bfloat16, torch.int16 = Tensor, "bfloat16", "int16"

    def recorded(path: Path, **options: Any) -> Any:
        found.append(options)
        return load(path)

    torch.load = recorded
    patch.setitem(sys.modules, "torch", torch)
    return found


def remove(patch: pytest.MonkeyPatch) -> None:
    """Make as if PyTorch was not installed."""
    found = importlib.util.find_spec
    patch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *a: None if name == "torch" else found(name, *a),
    )
