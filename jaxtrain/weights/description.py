"""Description of a trained model without its weights: architecture, task, input."""

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
from jaxtrain.config.fields import read_part
from jaxtrain.config.model import MODELS
from jaxtrain.data import INPUTS
from jaxtrain.data.fit import CROP_MODES, Fit
from jaxtrain.data.images import FILTERS
from jaxtrain.data.input_kind import PICTURES, InputKind
from jaxtrain.data.window_grid import WindowGrid, grid_of
from jaxtrain.errors import UserError
from jaxtrain.json_files import typed
from jaxtrain.json_files.read import read_object
from jaxtrain.json_files.run_id import FIELD as RUN_ID, RunId
from jaxtrain.models.base import Model
from jaxtrain.models.blueprint import Blueprint, plain_spec
from jaxtrain.models.projection import Projection
from jaxtrain.training import precision

# Name of the description's file in the directory of a run.
MODEL = "model.json"
# For error messages: fix for a missing or damaged file.
RESTORE = (
    "restore the file from a copy, or resume the run with more train.epochs, which "
    "rewrites the file"
)


@dataclass(frozen=True, kw_only=True)
class Description:
    """Architecture of a model, meaning of its outputs, and preprocessing.

    Attributes:
      task: Task that the model was trained for, as in a config.
      model: Name and options of the architecture.
      precision: Precision policy, as in a config.
      image_shape: Height, width and channels of the model's input.
      num_outputs: Number of outputs for an image.
      class_names: Class names of the outputs. None if the outputs are not classes.
      mean: Mean of each channel, in 0..1, subtracted from images in 0..1.
      std: Standard deviation of each channel, in 0..1, by which images are divided.
      crop_pct: Ratio of the centre-crop size to the shorter side of larger images.
      interpolation: Interpolation of resizing, bilinear or bicubic.
      crop_mode: Conversion of non-square images to squares.
      white_level: 16-bit value that is mapped to 255. None means 65535.
      output_spec: Shape of the outputs for an image, or dicts and tuples of shapes.
        None means (num_outputs,).
      column_names: Names of the numbers that a regression model predicts.
      num_centres: Number of learnt class centres of an embedding model, if any.
      projection: Projection head of self-supervised training, if any.
      members: Number of models of an ensemble, whose predictions are averaged; 1 for a
        single model.
      input: Type of the inputs, with their conversion to images.
      sliding_size: Height and width of larger images that are predicted in sliding
        windows of `image_shape`. None disables sliding windows.
      task_options: Options of the task, as in the config of the run.
      chosen: Values fitted on the validation split (`Task.choose`): lists of one number
        per output, by name. Empty if nothing was fitted.
      jaxtrain: Version of jaxtrain that wrote the description.
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
        """Options for resizing images to the model's input size."""
        options = self.crop_pct, self.interpolation, self.crop_mode
        return Fit(*options, white_level=self.white_level)

    @property
    def stored_shape(self) -> tuple[int, int, int]:
        """Shape of a stored example, not preprocessed, at the model's input size."""
        return self.input.stored_shape(self.image_shape)

    @property
    def whole_shape(self) -> tuple[int, int, int]:
        """Shape of an example to predict, before preprocessing and sliding windows."""
        if self.sliding_size is None:
            return self.stored_shape
        return self.sliding_size, self.sliding_size, self.image_shape[-1]

    @property
    def grid(self) -> WindowGrid:
        """Sliding windows of an image."""
        return grid_of(self.image_shape[:2], self.sliding_size)

    @property
    def stored_dtype(self) -> type[np.generic]:
        return self.input.dtype

    def blueprint(self) -> Blueprint:
        """Return the blueprint for inference, with one batch-norm group."""
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
        """Abstract model; for an ensemble, the abstract model of each member.

        Cached, as tracing a deep model is slow.
        """
        return self.blueprint().abstract()

    def check_is_one(self, named: str) -> None:
        """Check that the model is not an ensemble.

        Raises:
          UserError: The model is an ensemble.
        """
        if self.members > 1:
            raise UserError(
                f"{named} is an ensemble of {self.members} models: expected a single "
                "model; give the directory of a run"
            )

    def with_chosen(self, chosen: Any, where: str) -> "Description":
        """Return the description with values fitted on validation data.

        Raises:
          UserError: The values, read from a file, are invalid.
        """
        kind = dict[str, list[float]]
        about = dataclasses.replace(self, chosen=typed.convert(chosen, kind, where))
        about._check(where)
        return about

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values for `from_dict`.

        For input types other than `PICTURES`, the dict has an additional key, the name
        of the type in `INPUTS`.
        """
        values = dataclasses.asdict(self)
        return values | values.pop("input")

    @classmethod
    def from_dict(cls, values: Any, where: str) -> "Description":
        """Restore a description from the result of `to_dict`.

        Args:
          values: Parsed JSON value.
          where: Path of the file, for messages.

        Raises:
          UserError: The values are of an incompatible version, malformed, or
            inconsistent.
        """
        names = {f.name for f in dataclasses.fields(cls)} - {"input"}
        values = values if isinstance(values, dict) else {}
        # A null field belongs to a plug-in that the model does not use.
        others = {n: x for n, x in values.items() if n not in names and x is not None}
        values = {n: x for n, x in values.items() if n in names}
        if values.keys() | (others.keys() - {*INPUTS}) != names:
            version = values.get("jaxtrain")
            differing = ", ".join(sorted(names ^ (values.keys() | others.keys())))
            raise UserError(
                f"{where} does not have the format of jaxtrain {jaxtrain.__version__} "
                f"(written by {version or 'another program'}; differs in {differing}): "
                "use the version that wrote the file, install the plug-in of the input "
                "type, or export the model again"
            )
        spec = plain_spec(values["output_spec"])
        if spec is None and values["output_spec"] is not None:
            raise UserError(f"{where}: output_spec: expected shapes with sizes above 0")
        model: ModelConfig = read_part(values.pop("model"), MODELS, f"{where}: model")
        # `read_part` has parsed `model`, so `typed.convert` gets {} as a placeholder.
        values = {**values, "output_spec": spec, "model": {}}
        about = dataclasses.replace(typed.convert(values, cls, where), model=model)
        about._check(where)
        return dataclasses.replace(about, input=about._input(others, where))

    def _input(self, kinds: dict[str, Any], where: str) -> InputKind:
        """Parse the section of the input type; {} means `PICTURES`.

        Raises:
          UserError: The section is damaged, or the input type produces images of
            another shape than `image_shape`.
        """
        for name, value in kinds.items():
            kind = typed.convert({name: value}, INPUTS[name], where)
            stored = kind.stored_shape(self.image_shape)
            if kind.image_shape(stored) != self.image_shape:
                raise UserError(
                    f"{where}: {name} = {getattr(kind, name)!r} does not produce "
                    f"images of shape {self.image_shape}"
                )
            return kind
        return PICTURES

    def _check(self, where: str) -> None:
        """Check value ranges, which the types of the fields do not express.

        Raises:
          UserError: A value is out of range, or inconsistent with others.
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
                f"{channels} numbers in 0..1, one per channel",
            ),
            "std": (
                len(self.std) == channels and all(0 < x <= 1 for x in self.std),
                f"{channels} numbers above 0, up to 1, one per channel",
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
                f"a size above {max(self.image_shape[:2])}",
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
                raise UserError(f"{where}: {name} = {value!r}: expected {what}")


def read(workdir: Path) -> Description:
    """Read the description of a run's model.

    Raises:
      UserError: The file is missing, of an incompatible version, or of another run.
    """
    path = workdir / MODEL
    values = read_object(path, advice=RESTORE)
    if values is None:
        raise UserError(
            f"{path} does not exist: give the directory of a run, or {RESTORE}"
        )
    RunId.read(workdir).check(values, str(path), RESTORE)
    del values[RUN_ID]
    return Description.from_dict(values, str(path))
