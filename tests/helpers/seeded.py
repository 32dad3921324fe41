"""Weights and images made from names alone: the same in every environment.

Needs NumPy only, as the scripts in `tests/oracles` import it beside PyTorch.
"""

import hashlib
import math
import re
import zlib
from collections.abc import Mapping

import numpy as np

# The last convolution of an inverted residual block, and the place of the block in its
# stage, where the name tells it.
NARROWING = re.compile(
    r"(?:(?:blocks|features)\.\d+\.(\d+)\.|features\.\d+\.)"
    r"(?:conv_pwl?|block\.\d\.0|conv\.\d)\.weight"
)


def weights(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return float32 values for an array in PyTorch's layout.

    Kernels keep the size of what passes, about; statistics of norms are no 0 and 1.
    """
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    leaf = name.rpartition(".")[2]
    if leaf in ("running_var", "gamma", "layer_scale"):
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    if leaf == "running_mean" or leaf == "bias":
        return (0.1 * rng.standard_normal(shape)).astype(np.float32)
    if len(shape) == 1:
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    scale = math.sqrt(2 / math.prod(shape[1:]))
    if ".se.fc" in name:
        # Activations grow from block to block here. Gates that they open and shut
        # would make of rounding errors other outputs: measured 7e-2 in a RegNet.
        scale /= 20
    scale *= _gain(name, shape)
    return rng.standard_normal(shape, np.float32) * np.float32(scale)


def _gain(name: str, shape: tuple[int, ...]) -> float:
    """Return a factor on a kernel, 1 but for those that end inverted residual blocks.

    The sums of up to 32 branches would grow to where the gates of the blocks switch
    from 0 to 1 at once: PyTorch's float32 was then 0.26 off its float64.
    """
    found = NARROWING.fullmatch(name)
    if not found or shape[0] >= shape[1] or shape[2:] != (1, 1):
        return 1.0
    if found[1] is None:
        return 0.5
    return 0.8 if found[1] == "0" else 0.2


def images(size: int, channels: int = 3) -> np.ndarray:
    """Return two images of coloured squares and noise, float32, normalised.

    Returns:
      (2, size, size, channels).
    """
    rng = np.random.default_rng(size)
    coarse = rng.standard_normal((2, 4, 4, channels))
    at = np.arange(size) * 4 // size
    fine = rng.standard_normal((2, size, size, channels))
    return (1.5 * coarse[:, at][:, :, at] + 0.5 * fine).astype(np.float32)


def digest(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Return the SHA-256 of the names and shapes of arrays, in the order of names."""
    lines = [f"{name} {list(shape)}" for name, shape in sorted(shapes.items())]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
