"""Batch prediction on image files."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax

from jaxtrain.data.files import MODES
from jaxtrain.data.image_files import FileNames
from jaxtrain.errors import UserError
from jaxtrain.evaluation.finite import Checked, finite_rows
from jaxtrain.inference import gradcam, stream
from jaxtrain.inference.model import TrainedModel
from jaxtrain.inference.stream import Batches, ImageBatch
from jaxtrain.inference.tables import Columns, Row
from jaxtrain.tasks.outputs import TABLE_COLUMNS
from jaxtrain.tasks.prediction import Prediction

NAME, ERROR = TABLE_COLUMNS


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Results to compute for each image.

    Attributes:
      topk: Number of most likely classes to return; 1 for multi-label models and models
        without classes.
      temperature: Divisor of the logits. None for no scaling.
      features: Whether to return the inputs of the last layer.
      maps: Whether to compute the Grad-CAM heat map of the most likely class.
      outputs: Whether to return the raw outputs as arrays.
      pictures: Whether to draw the predictions on the images.
    """

    topk: int = 1
    temperature: float | None = None
    features: bool = False
    maps: bool = False
    outputs: bool = False
    pictures: bool = False


def check(model: TrainedModel, wanted: Wanted) -> None:
    """Check that a model supports the requested results.

    Raises:
      UserError: The model does not support a result.
    """
    about, decoder = model.description, model.decoder
    channels = model.image_shape[-1]
    if channels not in MODES:
        raise UserError(
            f"the model takes images of {channels} channels, which image files cannot "
            "have: pass arrays to load_model(...).predict in Python"
        )
    if not about.input.are_images and wanted.maps:
        raise UserError(
            f"--explain: the model takes {about.input.noun}s, but Grad-CAM overlays "
            "need images; leave --explain out"
        )
    if wanted.pictures:
        decoder.check_draws("--pictures")
    if not (decoder.columns() or wanted.outputs):
        shapes = jax.tree.map(lambda x: x.shape[1:], model.outputs)
        raise UserError(
            f"task = {about.task!r} has outputs of the shape {shapes} for an image, "
            "which do not fit into a table row: write one file per image with "
            "--outputs DIR"
        )
    decoder.check_topk(wanted.topk)
    if wanted.maps:
        decoder.check_classes("--explain")


def predict(
    model: TrainedModel, program: Any, names: FileNames, batch_size: int
) -> Batches:
    """Yield batches of predictions for image files, in the order of the files.

    `ImageBatch.results` is a dict with `decoded` (result of `OutputDecoder.decode`)
    and, on request, `features`, `map` and `outputs` (raw outputs, a pytree). All arrays
    are (n, ...).

    Files are prefetched, and the devices compute a batch while the caller handles the
    previous batch. At most a few batches are in memory.

    Args:
      model: Model that predicts.
      program: Result of `make_program`.
      names: Paths of the files.
      batch_size: Batch size on the devices: number of images, or of sliding windows if
        the model uses them.
    """
    # The batch size is at most the number of images.
    batch_size = min(model.in_windows(batch_size), len(names))
    # Pad the last batch to the size of the others, to compile only one program.
    size = min(model.share(batch_size), model.batch_size(len(names)))
    loaded = stream.load(
        lambda i: os.fsdecode(names[i]), len(names), model.description, batch_size
    )
    return stream.computed(loaded, lambda images: model.start(program, images, size))


def make_program(model: TrainedModel, wanted: Wanted) -> Any:
    """Return the jitted program that computes the requested results.

    XLA merges computations that the results share, such as convolutions.

    Raises:
      UserError: The model has no activations for Grad-CAM.
    """
    place = gradcam.last_place(model) if wanted.maps else 0
    decoder = model.decoder.calibrated(wanted.temperature)

    def function(params: Any, model_state: Any, images: jax.Array) -> Checked:
        arguments = params, model_state, images
        outputs = model.forward(*arguments)
        decoded = decoder.decode(outputs, wanted.topk)
        arrays: dict[str, Any] = {"decoded": decoded}
        if wanted.outputs:
            arrays["outputs"] = outputs
        if wanted.features:
            arrays["features"] = model.features_of(*arguments)
        if wanted.maps:
            classes = decoded["index"][:, 0]
            arrays["map"] = gradcam.heat_maps(model, place, *arguments, classes)
        return Checked(arrays, finite_rows((outputs, decoded)))

    return model.compiled(function)


def num_features(model: TrainedModel) -> int:
    """Return the number of input features of the last layer.

    Raises:
      UserError: The last layer is not a `Head`, or its input is not a vector.
    """
    shape = model.shapes(model.features_of).shape
    if len(shape) != 2:
        raise UserError(
            "--features: expected a feature vector per image, but the input of the "
            f"last layer has the shape {list(shape[1:])}; leave --features out"
        )
    return shape[1]


def prediction(model: TrainedModel, batch: ImageBatch, i: int) -> Prediction | None:
    """Return the prediction for image `i`, or None if the image has an error."""
    if batch.errors[i] is not None:
        return None
    return model.decoder.prediction(batch.results["decoded"], i)


def table_columns(model: TrainedModel, topk: int) -> Columns:
    """Return the columns of the prediction table, named as in timm's `inference.py`."""
    return {NAME: str, **model.decoder.columns(topk), ERROR: str}


def rows(model: TrainedModel, batch: ImageBatch, topk: int) -> Iterator[Row]:
    """Yield the row of each image in the prediction table; missing values are None."""
    empty = dict.fromkeys(table_columns(model, topk))
    for i, error in enumerate(batch.errors):
        name = os.fsencode(batch.images[i]).decode("utf-8", "backslashreplace")
        result = prediction(model, batch, i)
        values = {} if result is None else result.row()
        yield {**empty, NAME: name, **values, ERROR: error}
