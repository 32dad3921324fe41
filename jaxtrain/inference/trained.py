"""Trained weights wherever they come from: what they are, and their arrays by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxtrain.errors import UserError
from jaxtrain.inference import ensemble
from jaxtrain.inference.description import Description
from jaxtrain.inference.model import TrainedModel
from jaxtrain.models.weights.names import OWN, ArrayNames, Differences, Shapes
from jaxtrain.trees import by_path, path_name


@dataclass(frozen=True, eq=False)
class Trained:
    """Weights that were found; no array is read yet.

    Attributes:
      where: they lie, for messages.
      about: the model.
      shapes: of the arrays, by their names there.
      digest: returns the SHA-256 of the file, or of what stands for a checkpoint.
      read: returns the arrays by their names there, which may be views of a file.
      names: their names and layouts.
      origin: `step`, `run`, its id, and digest of weights; None: of another library.
    """

    where: str
    about: Description
    shapes: Shapes
    digest: Callable[[], str]
    read: Callable[[], Mapping[str, np.ndarray]]
    names: ArrayNames = OWN
    origin: dict[str, Any] | None = None

    def take(self, stored: Mapping[str, np.ndarray], path: str) -> np.ndarray:
        """Return an array of ours in our layout, as a view of what is stored.

        Raises:
          UserError: It is not finite.
        """
        name = self.names.name(path)
        if not np.isfinite(stored[name]).all():
            raise UserError(
                f"{self.where}: {name} is not finite, and nor is what a model makes of "
                "it: give other weights, such as an older checkpoint"
            )
        return self.names.layout(path).from_torch(stored[name])

    def has_no_head(self, path: str) -> bool:
        """Say whether this is of an auxiliary head, which a file may do without."""
        there = self.names.name(path)
        return there not in self.shapes and self.names.is_unused(there)

    def differences(self, wanted: Shapes) -> Differences:
        """Return what of a model is not there, and the other way round.

        Args:
          wanted: shapes of the model's arrays, by our paths such as `conv1/kernel`.
        """
        return self.names.differences(self.shapes, self.names.shapes(wanted))


def load(trained: Trained) -> TrainedModel:
    """Read the weights of a model.

    Raises:
      UserError: they are others than the model has, or damaged.
    """
    about, wanted = trained.about, ensemble.abstract(trained.about)
    differences = trained.differences(shapes_of(wanted))
    if differences:
        raise UserError(
            f"{trained.where} does not fit model.name = {about.model.name!r}: "
            f"{differences}; the code of the model, or the file, is another"
        )

    stored = trained.read()

    def array(path: Any, _: Any) -> np.ndarray:
        return trained.take(stored, ours(path_name(path)))

    params, model_state = jax.tree_util.tree_map_with_path(array, wanted)
    origin = trained.origin
    if origin is None:
        origin = {"step": None, "run": None, "weights": trained.digest()}
    return ensemble.make(about, params, model_state, origin, trained.where)


def shapes_of(weights: tuple[Any, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of parameters and other state, by our paths."""
    return {ours(path): x.shape for path, x in by_path(weights).items()}


def ours(path: str) -> str:
    """Return the path of an array within the parameters, or within the other state."""
    return path.partition("/")[2]
