"""What a trained model is, but for its weights: enough to build it and to feed it."""

import dataclasses
import functools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jaxtrain
from jaxtrain.config import ModelConfig
from jaxtrain.data.images import Fit
from jaxtrain.errors import UserError
from jaxtrain.models.base import Model
from jaxtrain.models.blueprint import Blueprint
from jaxtrain.training import precision

# In the folder of a run.
MODEL = "model.json"


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
    jaxtrain: str = field(default=jaxtrain.__version__)

    @property
    def fit(self) -> Fit:
        """How images of other sizes get the size of the model."""
        return Fit(self.crop_pct, self.interpolation)

    def blueprint(self) -> Blueprint:
        """Return what builds the model as it is used: batch norm has one group."""
        return Blueprint(
            config=self.model,
            policy=precision.parse(self.precision),
            image_shape=self.image_shape,
            num_outputs=self.num_outputs,
        )

    @functools.cached_property
    def abstract(self) -> Model:
        """The model without its weights; made once, as a deep one takes long."""
        return self.blueprint().abstract()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, which `from_dict` reads back."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Any, where: str) -> "Description":
        """Read back what `to_dict` returned.

        Args:
          values: as read from JSON.
          where: they were read from, for messages.

        Raises:
          UserError: they are those of another version, or of something else.
        """
        names = {f.name for f in dataclasses.fields(cls)}
        if not isinstance(values, dict) or values.keys() != names:
            known = values.keys() if isinstance(values, dict) else ()
            version = values.get("jaxtrain") if isinstance(values, dict) else None
            differing = ", ".join(sorted(names ^ set(known)))
            raise UserError(
                f"{where} describes no model of jaxtrain {jaxtrain.__version__} "
                f"(written by {version or 'something else'}; differs in {differing}): "
                "use the version that wrote it, or export the model again"
            )
        try:
            kept = {
                k: tuple(v) if isinstance(v, list) else v for k, v in values.items()
            }
            return cls(**{**kept, "model": ModelConfig(**values["model"])})
        except (TypeError, UserError) as error:
            raise UserError(f"{where}: not a model of this version: {error}") from None


def read(workdir: Path) -> Description:
    """Read the description of the model that a run has trained.

    Raises:
      UserError: there is none, or none that this version reads.
    """
    path = workdir / MODEL
    try:
        values = json.loads(path.read_text())
    except FileNotFoundError:
        raise UserError(
            f"{path} is not there: give the folder of a run; one of an earlier version "
            "gets the file when it is trained further, with more train.epochs"
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}): restore it") from None
    return Description.from_dict(values, str(path))
