"""How long ONNX Runtime takes for one image, of models that are timed in turn."""

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

# Calls of each model before the first that counts, and those that count.
BEFORE, TIMES = 5, 50
# Images that each file is checked on.
CHECKED = 8


def onnx_times(models: Sequence[TrainedModel]) -> tuple[float, ...] | str:
    """Return the median seconds of an image, of files that compute what the models do.

    Returns:
      A number for each model; or why there is none.

    Raises:
      ExportError: a file does not compute what its model does.
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
