"""What some slow tests need and a bare machine lacks: data sets, programs, compilers.

Where such a thing is missing the test is skipped, and on CI, which installs it, fails.
A test of the default run needs none of it: `.ci/run` runs those on a bare machine.
"""

import gzip
import os
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
import pytest

from jaxtrain.environments import Environment
from jaxtrain.errors import UserError

FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")


def missing(message: str) -> NoReturn:
    """Skip the test; on CI, fail it."""
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def fashion_mnist_files() -> Path:
    """Return the folder of Debian's Fashion-MNIST, as gzipped IDX files."""
    if not FASHION_MNIST.is_dir():
        missing(f"no {FASHION_MNIST}: install Debian's package dataset-fashion-mnist")
    return FASHION_MNIST


def fashion_mnist(kind: Literal["train", "t10k"]) -> tuple[np.ndarray, np.ndarray]:
    """Return images, uint8 (N, 28, 28), and labels, uint8 (N,), of one split."""

    def read(name: str, header: int) -> Any:
        data = (fashion_mnist_files() / f"{kind}-{name}-ubyte.gz").read_bytes()
        return np.frombuffer(gzip.decompress(data), np.uint8, offset=header)

    return read("images-idx3", 16).reshape(-1, 28, 28), read("labels-idx1", 8)


def need(environment: Environment) -> None:
    """Check that an environment of Python is there."""
    try:
        environment.find()
    except UserError as error:
        missing(str(error))
