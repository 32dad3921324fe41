"""Static quantisation by ONNX Runtime: products of 8-bit numbers."""

import contextlib
import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrain.export.needs import need

# Images that tell the ranges, of the data that the model was trained on.
CALIBRATION_IMAGES = 256
BATCH = 32


def quantize(path: Path, images: np.ndarray, batch: int | None) -> None:
    """Quantise an ONNX file in its place.

    Weights get a scale for each output channel, activations one each, from the smallest
    and the largest number that they have on the images. The file says so in pairs of
    QuantizeLinear and DequantizeLinear (QDQ), which runtimes join with the operator
    between them.

    Args:
      path: the file, in float32.
      images: as the file takes them.
      batch: images at a time; None: any number.
    """
    library = need("onnxruntime.quantization")

    class Reader(library.CalibrationDataReader):
        def __init__(self, batches: Iterator[np.ndarray]):
            self.batches = batches

        def get_next(self) -> dict[str, Any] | None:
            images = next(self.batches, None)
            return None if images is None else {"images": images}

    # The library leaves files beside the one that it reads.
    with tempfile.TemporaryDirectory(dir=path.parent) as folder, _quiet():
        source = Path(folder) / "float.onnx"
        os.replace(path, source)
        library.quantize_static(
            str(source),
            str(path),
            Reader(_batches(images, batch or BATCH)),
            quant_format=library.QuantFormat.QDQ,
            per_channel=True,
            activation_type=library.QuantType.QUInt8,
            weight_type=library.QuantType.QInt8,
        )


def _batches(images: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Yield whole batches; of too few images, one that repeats them."""
    if len(images) < size:
        images = np.resize(images, (size, *images.shape[1:]))
    for start in range(0, len(images) - size + 1, size):
        yield images[start : start + size]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the library from warning that the graph was not prepared: it was, by us."""
    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
