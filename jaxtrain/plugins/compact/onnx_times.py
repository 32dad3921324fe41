"""Latency of several models in ONNX Runtime, measured in alternation."""

import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxtrain import extras
from jaxtrain.errors import UserError
from jaxtrain.export.export import export
from jaxtrain.export.request import Request
from jaxtrain.inference.model import TrainedModel
from jaxtrain.plugins.onnx import onnx_file

# Number of warm-up calls, and number of timed calls, per model.
BEFORE, TIMES = 5, 50
# Number of images on which each ONNX file is compared with its model.
CHECKED = 8


def onnx_times(models: Sequence[TrainedModel]) -> tuple[float, ...] | str:
    """Export models to ONNX, and measure their median latency at batch size 1.

    Returns:
      Seconds per image of each model, or the reason why latency cannot be measured.

    Raises:
      ExportError: The outputs of an ONNX file differ from the outputs of its model.
    """
    if library := extras.missing("onnx", "onnxruntime"):
        return f"not measured: {library} is not installed"
    shape = models[0].image_shape
    images = np.random.default_rng(0).normal(size=(CHECKED, *shape)).astype(np.float32)
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for number, model in enumerate(models):
            path, request = (
                Path(folder) / f"{number}.onnx",
                Request(model=model, batch=1),
            )
            try:
                export("onnx", request, path, images)
            except UserError as error:
                return f"not measured: {error}"
            runs.append(onnx_file.load(path, request))
        seconds: list[list[float]] = [[] for _ in models]
        for turn in range(BEFORE + TIMES):
            for run, times in zip(runs, seconds, strict=True):
                start = time.perf_counter()
                run(images[:1])
                if turn >= BEFORE:
                    times.append(time.perf_counter() - start)
    return tuple(map(statistics.median, seconds))
