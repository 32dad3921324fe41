"""Trained weights: the model that they belong to, and its arrays by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxtrain import own, tasks
from jaxtrain.errors import UserError
from jaxtrain.training.state import split_model
from jaxtrain.trees import by_path
from jaxtrain.weights.description import Description
from jaxtrain.weights.names import OWN, ArrayNames, Differences, Shapes


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights that were found; no array is read yet.

    Attributes:
      where: Their place, for messages.
      about: Description of their model.
      shapes: Shapes of the arrays, by their names there.
      digest: Function that returns the SHA-256 of the file, or of a checkpoint's list
        of arrays.
      read: Function that returns the arrays by their names there, which may be views of
        a file.
      names: Names and layouts of the arrays.
      origin: `step`, `run`, its id, and digest of weights; None: another library.
    """

    where: str
    about: Description
    shapes: Shapes
    digest: Callable[[], str]
    read: Callable[[], Mapping[str, np.ndarray]]
    names: ArrayNames = OWN
    origin: dict[str, Any] | None = None

    def has_no_head(self, path: str) -> bool:
        """Whether an array is of an auxiliary head that the weights do without."""
        there = self.names.name(path)
        return there not in self.shapes and self.names.is_unused(there)

    def differences(self, wanted: Shapes) -> Differences:
        """Compare with the arrays of a model.

        Args:
          wanted: Shapes of the model's arrays, by our paths such as `conv1/kernel`.
        """
        return self.names.differences(self.shapes, self.names.shapes(wanted))

    def check_whole(self, wanted: Any, complaint: str) -> None:
        """Check that all arrays of a model are there, and no others.

        Args:
          wanted: Parameters and other state of the model, abstract.
          complaint: Begin of the message.

        Raises:
          UserError: They differ.
        """
        differences = self.differences(shapes_of(wanted))
        if differences:
            raise UserError(
                f"{complaint}: {differences}; the code of the model, or the file, is "
                "another"
            )


def abstract_weights(about: Description) -> tuple[Any, Any]:
    """Return shapes and dtypes of the parameters and the other state of a model."""
    return split_model(about.abstract)[1:]


def abstract_members(about: Description) -> tuple[Any, Any]:
    """Return the same of an ensemble: dicts of its models, by their numbers."""
    weights = abstract_weights(about)
    if about.members == 1:
        return weights
    params, state = (dict.fromkeys(map(str, range(about.members)), x) for x in weights)
    return params, state


def fit_arrays(
    about: Description, params: Any, model_state: Any, where: str
) -> tuple[Any, Any]:
    """Return weights of one model with its shapes and dtypes.

    Statistics of several groups of batch norm become their means, as an evaluation
    takes them.

    Raises:
      UserError: They are of another model, or its task is of a plug-in that is missing.
    """
    if about.task not in tasks.TASKS and not own.is_own(about.task):
        raise UserError(
            f"{where}: task = {about.task!r} is none of {', '.join(tasks.TASKS)}: "
            "install the package whose plug-in has it"
        )
    wanted = abstract_weights(about)
    found, kinds = by_path((params, model_state)), by_path(wanted)
    fitted = {}
    for path in kinds.keys() & found.keys():
        array, kind = np.asarray(found[path]), kinds[path]
        if array.ndim == kind.ndim + 1 and path.startswith("1/"):
            array = array.mean(-2, dtype=np.promote_types(array.dtype, np.float32))
        if array.shape == kind.shape:
            fitted[path] = array.astype(kind.dtype)
    differing = sorted((kinds.keys() | found.keys()) - fitted.keys())
    if differing:
        first = differing[0].partition("/")[2]
        raise UserError(
            f"{where} does not fit model.name = {about.model.name!r}: {first} and "
            f"{len(differing) - 1} more arrays are missing or have other shapes; the "
            "code of the model has changed since it was trained"
        )
    return jax.tree.structure(wanted).unflatten(fitted[path] for path in kinds)


def shapes_of(weights: tuple[Any, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of parameters and other state, by our paths."""
    return {ours(path): x.shape for path, x in by_path(weights).items()}


def ours(path: str) -> str:
    """Return the path of an array within the parameters, or within the other state."""
    return path.partition("/")[2]
