"""What a model finds in many image files: rows of a table, features, arrays, maps."""

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
    """What is asked of each image.

    Attributes:
      topk: Number of the likeliest classes; 1 of a model without classes, and where
        an image may have several.
      temperature: Divisor of the logits, if any.
      features: What the last layer gets.
      maps: Grad-CAM of the likeliest class.
      outputs: All that the model puts out, as arrays.
      pictures: Image files with the predictions on them.
    """

    topk: int = 1
    temperature: float | None = None
    features: bool = False
    maps: bool = False
    outputs: bool = False
    pictures: bool = False


def check(model: TrainedModel, wanted: Wanted) -> None:
    """Check that a model can be asked for it.

    Raises:
      UserError: it cannot.
    """
    about, decoder = model.description, model.decoder
    channels = model.image_shape[-1]
    if channels not in MODES:
        raise UserError(
            f"the model takes images of {channels} channels, which no image file has: "
            "give arrays to load_model(...).predict in Python"
        )
    if not about.input.are_pictures and wanted.maps:
        raise UserError(
            f"--explain: the model {about.input.taken}, which are no pictures to draw "
            "on; leave it out"
        )
    if wanted.pictures:
        decoder.check_draws("--pictures")
    if not (decoder.columns() or wanted.outputs):
        shapes = jax.tree.map(lambda x: x.shape[1:], model.outputs)
        raise UserError(
            f"task = {about.task!r} has outputs of the shape {shapes} for an image, "
            "which a row of a table cannot hold: --outputs FOLDER writes a file of "
            "each"
        )
    decoder.check_topk(wanted.topk)
    if wanted.maps:
        decoder.check_classes("--explain")


def predict(
    model: TrainedModel, program: Any, names: FileNames, batch_size: int
) -> Batches:
    """Yield what a model finds in image files, batch by batch, in their order.

    It is `decoded`, the named arrays of `OutputDecoder.decode`; `features`; `map`;
    `outputs`, a tree of arrays; (n, ...) each.

    Files are read ahead, and the device computes a batch while the caller has the one
    before. No more than a few batches are in memory.

    Args:
      model: Model that predicts.
      program: What `make_program` returned.
      names: Names of the files.
      batch_size: Number of images in a batch on the device, or of their windows.
    """
    # Beyond the images there is nothing to go through.
    batch_size = min(model.in_windows(batch_size), len(names))
    # A last batch that is smaller would need a program of its own.
    size = min(model.share(batch_size), model.batch_size(len(names)))
    loaded = stream.load(
        lambda i: os.fsdecode(names[i]), len(names), model.description, batch_size
    )
    return stream.computed(loaded, lambda images: model.start(program, images, size))


def make_program(model: TrainedModel, wanted: Wanted) -> Any:
    """Return the program that makes arrays by name of images (`TrainedModel.compiled`).

    What it needs twice, such as the convolutions, XLA computes once.

    Raises:
      UserError: there is nothing that maps could be drawn of.
    """
    place = gradcam.last_place(model) if wanted.maps else 0
    decoder = model.decoder.calibrated(wanted.temperature)

    def function(params: Any, model_state: Any, images: jax.Array) -> Checked:
        arguments = params, model_state, images
        outputs = model.forward(*arguments)
        decoded = decoder.decode(outputs, wanted.topk)
        found: dict[str, Any] = {"decoded": decoded}
        if wanted.outputs:
            found["outputs"] = outputs
        if wanted.features:
            found["features"] = model.features_of(*arguments)
        if wanted.maps:
            classes = decoded["index"][:, 0]
            found["map"] = gradcam.maps(model, place, *arguments, classes)
        return Checked(found, finite_rows((outputs, decoded)))

    return model.compiled(function)


def num_features(model: TrainedModel) -> int:
    """Return how many numbers the last layer gets of an image.

    Raises:
      UserError: the last layer is no `Head`, or gets no row of numbers.
    """
    shape = model.shapes(model.features_of).shape
    if len(shape) != 2:
        raise UserError(
            f"--features: the last layer gets {list(shape[1:])} of an image, and not a "
            "row of numbers"
        )
    return shape[1]


def prediction(model: TrainedModel, batch: ImageBatch, i: int) -> Prediction | None:
    """Return the prediction for an image of a batch; None: `batch.errors` says why."""
    if batch.errors[i] is not None:
        return None
    return model.decoder.prediction(batch.found["decoded"], i)


def table_columns(model: TrainedModel, topk: int) -> Columns:
    """Return the columns of the table, named as timm's inference script names them."""
    return {NAME: str, **model.decoder.columns(topk), ERROR: str}


def rows(model: TrainedModel, batch: ImageBatch, topk: int) -> Iterator[Row]:
    """Yield the rows of a batch; of an image without a prediction, None and why."""
    empty = dict.fromkeys(table_columns(model, topk))
    for i, error in enumerate(batch.errors):
        name = os.fsencode(batch.images[i]).decode("utf-8", "backslashreplace")
        found = prediction(model, batch, i)
        values = {} if found is None else found.row()
        yield {**empty, NAME: name, **values, ERROR: error}
