"""What a trained model is, but for its weights: enough to build it and to feed it."""

import dataclasses
import functools
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import jaxtrain
from jaxtrain.config import MAX_COUNT, ModelConfig
from jaxtrain.config.base import Options
from jaxtrain.config.removed import without_removed
from jaxtrain.data import INPUTS
from jaxtrain.data.fit import CROP_MODES, Fit
from jaxtrain.data.images import FILTERS
from jaxtrain.data.input_kind import PICTURES, InputKind
from jaxtrain.data.window_grid import WindowGrid, grid_of
from jaxtrain.errors import UserError
from jaxtrain.json_files import typed
from jaxtrain.json_files.read import read_object
from jaxtrain.json_files.run_id import FIELD as RUN_ID
from jaxtrain.json_files.run_id import RunId
from jaxtrain.models.base import Model
from jaxtrain.models.blueprint import Blueprint, plain_spec
from jaxtrain.models.projection import Projection
from jaxtrain.training import precision

# In the folder of a run.
MODEL = "model.json"
# What to do about a damaged one.
ANEW = (
    "restore it from a copy, or train further with more train.epochs, which writes it "
    "anew"
)


@dataclass(frozen=True, kw_only=True)
class Description:
    """How a model is built, what its outputs mean, and how images are prepared.

    Attributes:
      task: that it has learnt, as in a config.
      model: name and options.
      precision: as in a config.
      image_shape: height, width and channels of the images that it sees.
      num_outputs: numbers that it puts out for an image.
      class_names: of its outputs; None: they are no classes.
      mean: of each channel, in 0..1, subtracted from images in 0..1.
      std: of each channel, in 0..1, divided by then.
      crop_pct: of the shorter side, what is kept of images that are made smaller.
      interpolation: how images are resized, bilinear or bicubic.
      crop_mode: How images of other shapes become square.
      white_level: Value of images of 16 bits that becomes 255; None: the largest.
      output_spec: Shape of its outputs for an image, or dicts and tuples of shapes.
        None means (num_outputs,).
      column_names: of the numbers that it was trained to predict, if any.
      num_centres: Classes whose centres it has learnt behind its outputs, if any.
      projection: Layers that it has learnt behind its outputs to compare views, if any.
      members: Number of models of an ensemble, whose predictions are averaged; 1: it is
        one model.
      input: Kind of its inputs, and how they become images.
      sliding_size: Height and width of the whole images that predictions are of, in
        windows of `image_shape`; None: they are of images of `image_shape`.
      task_options: of the task, as in the config of the run.
      chosen: what validation chose for the weights (`Task.choose`): lists of a number
        for each output, by name; {} if nothing, or without weights.
      jaxtrain: the version that wrote this.
    """

    task: str
    model: ModelConfig
    precision: str
    image_shape: tuple[int, int, int]
    num_outputs: int
    class_names: tuple[str, ...] | None
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop_pct: float
    interpolation: str
    crop_mode: str = "center"
    white_level: int | None = None
    output_spec: Any = None
    column_names: tuple[str, ...] | None = None
    num_centres: int = 0
    projection: Projection | None = None
    members: int = 1
    input: InputKind = PICTURES
    sliding_size: int | None = None
    task_options: Options = field(default_factory=dict)
    chosen: dict[str, list[float]] = field(default_factory=dict)
    jaxtrain: str = field(default=jaxtrain.__version__)

    @property
    def fit(self) -> Fit:
        """How images of other sizes get the size of the model."""
        how = self.crop_pct, self.interpolation, self.crop_mode
        return Fit(*how, white_level=self.white_level)

    @property
    def stored_shape(self) -> tuple[int, int, int]:
        """Shape of an example before it is prepared, such as an image."""
        return self.input.stored_shape(self.image_shape)

    @property
    def whole_shape(self) -> tuple[int, int, int]:
        """Shape of an example that predictions are of, before it is prepared."""
        if self.sliding_size is None:
            return self.stored_shape
        return self.sliding_size, self.sliding_size, self.image_shape[-1]

    @property
    def grid(self) -> WindowGrid:
        """Windows of a whole image that predictions are of."""
        return grid_of(self.image_shape[:2], self.sliding_size)

    @property
    def stored_dtype(self) -> type[np.generic]:
        return self.input.dtype

    def blueprint(self) -> Blueprint:
        """Return what builds the model as it is used: batch norm has one group."""
        return Blueprint(
            config=self.model,
            policy=precision.parse(self.precision),
            image_shape=self.image_shape,
            num_outputs=self.num_outputs,
            output_spec=self.output_spec,
            num_centres=self.num_centres,
            projection=self.projection,
        )

    @functools.cached_property
    def abstract(self) -> Model:
        """The model, or each model of an ensemble, without its weights.

        It is made once, as a deep one takes long.
        """
        return self.blueprint().abstract()

    def check_is_one(self, named: str) -> None:
        """Check that it is no ensemble.

        Raises:
          UserError: it is one.
        """
        if self.members > 1:
            raise UserError(
                f"{named} is an ensemble of {self.members} models, and one is needed: "
                "give the folder of a run"
            )

    def with_chosen(self, chosen: Any, where: str) -> "Description":
        """Return it with what validation chose for some weights.

        Raises:
          UserError: what was read from a file is something else.
        """
        kind = dict[str, list[float]]
        about = dataclasses.replace(self, chosen=typed.convert(chosen, kind, where))
        about._check(where)
        return about

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, which `from_dict` reads back.

        Inputs other than pictures have a key, the name of their row in `INPUTS`.
        """
        values = dataclasses.asdict(self)
        return values | values.pop("input")

    @classmethod
    def from_dict(cls, values: Any, where: str) -> "Description":
        """Read back what `to_dict` returned.

        Args:
          values: as read from JSON.
          where: they were read from, for messages.

        Raises:
          UserError: they are those of another version, or of something else, or are of
            no model that there can be.
        """
        names = {f.name for f in dataclasses.fields(cls)} - {"input"}
        values = values if isinstance(values, dict) else {}
        # One that is null is of a plug-in that the model does not need.
        others = {n: x for n, x in values.items() if n not in names and x is not None}
        values = {n: x for n, x in values.items() if n in names}
        if values.keys() | (others.keys() - {*INPUTS}) != names:
            version = values.get("jaxtrain")
            differing = ", ".join(sorted(names ^ (values.keys() | others.keys())))
            raise UserError(
                f"{where} describes no model of jaxtrain {jaxtrain.__version__} "
                f"(written by {version or 'something else'}; differs in {differing}): "
                "use the version that wrote it, install the package that brings such "
                "inputs, or export the model again"
            )
        spec = plain_spec(values["output_spec"])
        if spec is None and values["output_spec"] is not None:
            raise UserError(f"{where}: output_spec: expected shapes of sizes above 0")
        model = values["model"]
        if isinstance(model, dict):
            model = without_removed(model, ModelConfig, where, "model")
        values = {**values, "output_spec": spec, "model": model}
        about = typed.convert(values, cls, where)
        about._check(where)
        return dataclasses.replace(about, input=about._input(others, where))

    def _input(self, kinds: dict[str, Any], where: str) -> InputKind:
        """Read the kind of the inputs: its name -> its section; {} is of pictures.

        Raises:
          UserError: it is damaged, or makes images of another shape.
        """
        for name, value in kinds.items():
            found = typed.convert({name: value}, INPUTS[name], where)
            stored = found.stored_shape(self.image_shape)
            if found.image_shape(stored) != self.image_shape:
                raise UserError(
                    f"{where}: {name} = {getattr(found, name)!r}, expected one that "
                    f"makes images of {self.image_shape}"
                )
            return found
        return PICTURES

    def _check(self, where: str) -> None:
        """Check what types do not tell.

        Raises:
          UserError: a value is out of range, or does not fit the others.
        """
        channels, names = self.image_shape[2], self.class_names
        expected = {
            "image_shape": (min(self.image_shape) > 0, "sizes above 0"),
            "num_outputs": (self.num_outputs > 0, "1 or more"),
            "num_centres": (self.num_centres >= 0, "0 or more"),
            "projection": (
                self.projection is None or self.projection.size > 0,
                "a size of 1 or more",
            ),
            "members": (1 <= self.members <= MAX_COUNT, "1 or more"),
            "class_names": (
                names is None or len(names) == self.num_outputs,
                f"{self.num_outputs} names, one for each output",
            ),
            "mean": (
                len(self.mean) == channels and all(0 <= x <= 1 for x in self.mean),
                f"{channels} in 0..1, one a channel",
            ),
            "std": (
                len(self.std) == channels and all(0 < x <= 1 for x in self.std),
                f"{channels} above 0, up to 1, one a channel",
            ),
            "chosen": (
                all(
                    len(x) == self.num_outputs and all(map(math.isfinite, x))
                    for x in self.chosen.values()
                ),
                f"lists of {self.num_outputs} finite numbers, one for each output",
            ),
            "sliding_size": (
                self.sliding_size is None
                or self.sliding_size > max(self.image_shape[:2]),
                f"one above {max(self.image_shape[:2])}",
            ),
            "crop_pct": (0 < self.crop_pct <= 1, "above 0, up to 1"),
            "interpolation": (self.interpolation in FILTERS, " or ".join(FILTERS)),
            "crop_mode": (self.crop_mode in CROP_MODES, " or ".join(CROP_MODES)),
            "white_level": (
                self.white_level is None or 0 < self.white_level < 2**16,
                "1 to 65535",
            ),
        }
        for name, (good, what) in expected.items():
            if not good:
                value = getattr(self, name)
                raise UserError(f"{where}: {name} = {value!r}, expected {what}")


def read(workdir: Path) -> Description:
    """Read the description of the model that a run has trained.

    Raises:
      UserError: there is none, none that this version reads, or that of another run.
    """
    path = workdir / MODEL
    values = read_object(path, advice=ANEW)
    if values is None:
        raise UserError(
            f"{path} is not there: give the folder of a run; without the file {ANEW}"
        )
    RunId.read(workdir).check(values, str(path), ANEW)
    del values[RUN_ID]
    return Description.from_dict(values, str(path))
