"""Weights of ResNet-50 from a safetensors file onto a device, against reading the file.

    python benchmarks/weights.py

The file, 102 MB, has PyTorch's layouts: each kernel is transposed on its way. Ours maps
the file and places all arrays on the first device; the peer is `Path.read_bytes`, which
leaves the bytes on the host. They take turns, with the file in the page cache, and the
median of the pairs' ratios counts.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from pairs import compare, take_turns, tell, timed
from safetensors.numpy import save_file

from jaxtrain.parallel import devices
from jaxtrain.weights.foreign import open_file
from jaxtrain.weights.identify import shapes_there
from jaxtrain.weights.sources import SOURCES
from jaxtrain.weights.stored import Transfer

PAIRS = 21
NAME, NUM_CLASSES = "resnet50", 1000


def write(path: Path) -> None:
    """Write random weights by the names, and in the layouts, of timm."""
    rng = np.random.default_rng(0)
    shapes = shapes_there(SOURCES[NAME][0], NAME, 3, NUM_CLASSES)
    save_file({n: rng.random(s, np.float32) for n, s in shapes.items()}, path)


def make_load(path: Path) -> Callable[[], Any]:
    """Return what reads the file onto the first device, as a run that begins does."""
    from jaxtrain.weights.stored import abstract_weights

    where = jax.sharding.SingleDeviceSharding(jax.devices()[0])

    def load() -> Any:
        return jax.block_until_ready(Transfer(open_file(path)).fill(own))

    own = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where),
        abstract_weights(open_file(path).about),
    )
    return load


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    devices.start("auto")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "resnet50.safetensors"
        write(path)
        load, megabytes = make_load(path), path.stat().st_size / 1e6
        for function in (load, path.read_bytes):
            function()
        runs = [lambda: timed(load), lambda: timed(path.read_bytes)]
        ours, peer = take_turns(runs, PAIRS)
    tell("weights", compare(ours, peer, megabytes, "MB/s"))


if __name__ == "__main__":
    main()
