"""What a model finds in many image files: rows of a table, features, arrays, maps."""

import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.data.files import MODES
from jaxtrain.data.image_files import FileNames
from jaxtrain.errors import UserError
from jaxtrain.evaluation.finite import Checked, finite_rows
from jaxtrain.inference import class_maps, found_boxes, gradcam, stream
from jaxtrain.inference.class_maps import SHARE
from jaxtrain.inference.model import TrainedModel
from jaxtrain.inference.stream import Batches, ImageBatch
from jaxtrain.inference.tables import Columns, Row
from jaxtrain.tasks.outputs import TABLE_COLUMNS

NAME, ERROR = TABLE_COLUMNS
# Between the labels of an image.
SEPARATOR = ";"


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
      masks: Classes of the pixels of each image.
    """

    topk: int = 1
    temperature: float | None = None
    features: bool = False
    maps: bool = False
    outputs: bool = False
    masks: bool = False


def check(model: TrainedModel, wanted: Wanted) -> None:
    """Check that a model can be asked for it.

    Raises:
      UserError: it cannot.
    """
    names, about = model.class_names, model.description
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
    in_a_row = model.puts_out_a_row
    if wanted.masks and not model.puts_out_masks:
        raise UserError(
            f"--masks: task = {about.task!r} tells no classes of pixels; leave it out"
        )
    tells = in_a_row or model.puts_out_masks or model.finder is not None
    if not (tells or wanted.outputs):
        shapes = jax.tree.map(lambda x: x.shape[1:], model.outputs)
        raise UserError(
            f"task = {about.task!r} has outputs of the shape {shapes} for an image, "
            "which a row of a table cannot hold: --outputs FOLDER writes a file of "
            "each"
        )
    if names is None or not in_a_row:
        asked = {
            "--topk": wanted.topk != 1,
            "--explain": wanted.maps,
        }
        for option in (option for option, given in asked.items() if given):
            raise UserError(
                f"{option}: task = {about.task!r} has no classes of whole images"
            )
    elif model.several_labels and wanted.topk != 1:
        raise UserError(
            f"--topk: task = {about.task!r} tells every label of an image with a "
            "probability of its own, and ranks none; leave it out"
        )
    elif wanted.topk > len(names):
        raise UserError(f"--topk {wanted.topk}: the model knows {len(names)} classes")


def predict(
    model: TrainedModel, program: Any, names: FileNames, batch_size: int
) -> Batches:
    """Yield what a model finds in image files, batch by batch, in their order.

    It is `output`, or `index` and `prob` of the likeliest classes, and `probabilities`
    of all where an image may have several; `features`; `map`; `outputs`, a tree of
    arrays; (n, ...) each.

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
    last = gradcam.last_piece(model) if wanted.maps else 0
    in_a_row = model.puts_out_a_row

    def function(params: Any, model_state: Any, images: jax.Array) -> Checked:
        arguments = params, model_state, images
        outputs = logits = model.forward(*arguments)
        found: dict[str, Any] = {}
        if wanted.outputs or wanted.masks:
            found["outputs"] = logits
        if model.puts_out_masks:
            found["output"] = class_maps.shares(logits)
        if model.finder is not None:
            found["found"] = model.finder.of(logits)
        if in_a_row and model.class_names is None:
            readout = model.readout
            found["output"] = logits if readout is None else readout.of(logits)
        elif in_a_row:
            # Probabilities may be equal where logits are not.
            _, index = jax.lax.top_k(logits, wanted.topk)
            if wanted.temperature is not None:
                logits = logits / wanted.temperature
            probabilities = model.task.probabilities(logits)
            prob = jnp.take_along_axis(probabilities, index, axis=1)
            found |= {"index": index, "prob": prob}
            if model.several_labels:
                found["probabilities"] = probabilities
        if wanted.features:
            found["features"] = model.features_of(*arguments)
        if wanted.maps:
            found["map"] = gradcam.maps(model, last, *arguments, found["index"][:, 0])
        return Checked(found, finite_rows((outputs, found.get("output", ()))))

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


@dataclass(frozen=True)
class TableLayout:
    """The columns of the table, named as timm's inference script names them.

    Where an image may have several labels these are `labels`, those that it is said to
    have, and the probability of each; of masks it is the share of each class.

    Attributes:
      model: Model that predicts.
      topk: Number of the likeliest classes.
    """

    model: TrainedModel
    topk: int = 1

    @property
    def empty(self) -> bool:
        """Whether there are no columns: outputs are no row, classes or boxes."""
        tells = self.model.puts_out_a_row or self.model.puts_out_masks
        return not tells and self.model.finder is None

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the classes of each row, if it has some."""
        return self.model.class_names if self.model.puts_out_a_row else None

    @functools.cached_property
    def columns(self) -> Columns:
        kinds: Columns = {NAME: str}
        if self.model.finder is not None:
            kinds |= found_boxes.COLUMNS
        elif self.class_names is not None and self.model.several_labels:
            kinds |= {"labels": str, **dict.fromkeys(self._probabilities, float)}
        elif self.class_names is not None:
            values = ("index", int), ("label", str), ("prob", float)
            for name, kind in values:
                kinds |= {f"{name}{end}": kind for end in self._endings}
        else:
            kinds |= dict.fromkeys(self.outputs, float)
        return {**kinds, ERROR: str}

    @property
    def outputs(self) -> tuple[str, ...]:
        """The columns of numbers of a model that names no classes of whole images."""
        if self.empty or self.class_names is not None or self.model.finder is not None:
            return ()
        if self.model.puts_out_masks:
            return tuple(f"{SHARE}{name}" for name in self.model.class_names or ())
        if self.model.readout is not None:
            return self.model.readout.columns
        num = self.model.description.num_outputs
        return tuple(f"output_{i}" for i in range(num))

    @property
    def _probabilities(self) -> list[str]:
        """Columns of the probabilities of all labels."""
        return [f"prob_{name}" for name in self.class_names or ()]

    @property
    def _endings(self) -> list[str]:
        return [""] if self.topk == 1 else [f"_{i}" for i in range(self.topk)]

    def rows(self, batch: ImageBatch) -> Iterator[Row]:
        """Yield the rows of a batch; of an image without a prediction, None and why."""
        empty = dict.fromkeys(self.columns)
        for i, error in enumerate(batch.errors):
            name = os.fsencode(batch.images[i]).decode("utf-8", "backslashreplace")
            values = {} if error is not None else self._values(batch.found, i)
            yield {**empty, NAME: name, **values, ERROR: error}

    def _values(self, found: dict[str, Any], i: int) -> Row:
        if self.model.finder is not None:
            return found_boxes.row(found["found"], i, self.model.finder)
        if self.empty:
            return {}
        if self.class_names is None:
            row, readout = found["output"][i], self.model.readout
            row = row if readout is None else readout.whole(row)
            return dict(zip(self.outputs, map(plain, row), strict=True))
        if self.model.several_labels:
            chances = found["probabilities"][i]
            there = self.model.labels_found(chances)
            names = [n for n, x in zip(self.class_names, there, strict=True) if x]
            probs = dict(zip(self._probabilities, map(plain, chances), strict=True))
            return {"labels": SEPARATOR.join(names), **probs}
        values: Row = {}
        for end, index, prob in zip(
            self._endings, found["index"][i], found["prob"][i], strict=True
        ):
            values[f"index{end}"] = int(index)
            values[f"label{end}"] = self.class_names[index]
            values[f"prob{end}"] = plain(prob)
        return values


def plain(x: np.floating[Any]) -> float:
    """Return the shortest number that is this one in its own dtype."""
    return float(str(x))
