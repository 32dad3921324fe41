"""State dicts saved by `torch.save` (.pth, .pt, .bin); reading requires PyTorch.

`weights_only=True` unpickles tensors only, and runs no code of the file.
"""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from jaxtrain import extras
from jaxtrain.errors import UserError

# Keys of the weights in dicts saved by training scripts.
CONTAINERS = ("state_dict", "model")
# Prefixes added by wrappers such as `DataParallel` and `torch.compile`.
PREFIXES = ("module.", "_orig_mod.")
# Older PyTorch may execute code in the file despite weights_only: CVE-2025-32434.
OLDEST = (2, 6)
MAX_SHOWN = 200


def shown(text: str) -> str:
    """Shorten text from a file to one line for messages."""
    text = text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."
    return repr(text)[1:-1]


def read(path: Path) -> dict[str, np.ndarray]:
    """Read a state dict; return its arrays, keyed by name.

    Raises:
      UserError: PyTorch is not installed, or too old.
      ValueError: PyTorch rejects the file, or an object in the file is not a tensor.
    """
    if extras.missing("torch"):
        raise UserError(
            f"{path} was written by torch.save and requires PyTorch, which is not "
            "installed: use the model's safetensors file, or pip install torch"
        )
    import torch  # pyright: ignore[reportMissingImports]

    if tuple(map(int, torch.__version__.split(".")[:2])) < OLDEST:
        raise UserError(
            f"{path}: torch {torch.__version__} could run code stored in the file: use "
            "the model's safetensors file, or pip install -U torch (2.6 or later)"
        )
    try:
        value = torch.load(path, map_location="cpu", weights_only=True)
    # pickle, archives, the system and PyTorch's checks raise errors of many types.
    except Exception as error:
        reason = shown(str(error).strip().partition("\n")[0])
        raise ValueError(f"PyTorch raises {type(error).__name__}: {reason}") from None
    return {n: _array(n, x, torch) for n, x in _state_dict(value, torch).items()}


def _state_dict(value: Any, torch: Any) -> dict[str, Any]:
    """Find the dict of tensors in the object that a training script saved."""

    def has_tensors(value: Any) -> bool:
        tensors = value.values() if isinstance(value, dict) else ()
        return any(isinstance(x, torch.Tensor) for x in tensors)

    for name in CONTAINERS:
        if isinstance(value, dict) and not has_tensors(value):
            value = value.get(name, value)
    if not has_tensors(value):
        raise ValueError(
            f"expected a dict of tensors, at the top level or in one of {CONTAINERS}"
        )
    for name, tensor in value.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise ValueError(f"{shown(str(name))} is not a tensor")
    for prefix in PREFIXES:
        if all(name.startswith(prefix) for name in value):
            value = {name.removeprefix(prefix): x for name, x in value.items()}
    return value


def _array(name: str, tensor: Any, torch: Any) -> np.ndarray:
    """Convert a tensor to an array that shares its memory."""
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:  # NumPy has bfloat16 only through ml_dtypes.
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    try:
        return tensor.numpy()
    except (TypeError, RuntimeError) as error:  # Sparse, quantized or float8 tensor.
        raise ValueError(
            f"{shown(name)} cannot be converted to a NumPy array ({error})"
        ) from None
