"""Trained weights: named arrays, with the description of the model."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxtrain import own, tasks
from jaxtrain.errors import UserError
from jaxtrain.parallel.device_put import put_like
from jaxtrain.training.state import split_model
from jaxtrain.trees import by_path, path_name
from jaxtrain.weights import files
from jaxtrain.weights.channels import convert
from jaxtrain.weights.description import Description
from jaxtrain.weights.names import OWN, ArrayNames, Differences, Shapes


@dataclass(frozen=True, eq=False)
class Weights:
    """Trained weights; arrays are read lazily.

    Attributes:
      where: Location of the weights, for messages.
      about: Description of the trained model.
      shapes: Shapes of the arrays, keyed by name in the file.
      digest: Function that returns the SHA-256 of the file, or of a checkpoint's list
        of arrays.
      read: Function that returns the arrays, keyed by name in the file; views of the
        file where possible.
      names: Names and layouts of the arrays.
      origin: Dict with `step`, `run` and a digest of the weights; None for weights of
        other libraries.
    """

    where: str
    about: Description
    shapes: Shapes
    digest: Callable[[], str]
    read: Callable[[], Mapping[str, np.ndarray]]
    names: ArrayNames = OWN
    origin: dict[str, Any] | None = None

    @classmethod
    def from_file(
        cls,
        path: Path,
        about: Description,
        stored: Mapping[str, np.ndarray],
        names: ArrayNames,
    ) -> "Weights":
        """Create `Weights` from the arrays of a file, or from views of the file."""
        shapes = {name: x.shape for name, x in stored.items()}
        digest = functools.cache(lambda: files.digest(path))
        return cls(str(path), about, shapes, digest, lambda: stored, names)

    def has_no_head(self, path: str) -> bool:
        """Whether an array belongs to an auxiliary head that the weights lack."""
        name = self.names.name(path)
        return name not in self.shapes and self.names.is_unused(name)

    def differences(self, wanted: Shapes) -> Differences:
        """Compare the names and shapes of the weights with the arrays of a model.

        Args:
          wanted: Shapes of the model's arrays, keyed by path such as `conv1/kernel`.
        """
        return self.names.differences(self.shapes, self.names.shapes(wanted))

    def check_whole(self, wanted: Any, complaint: str) -> None:
        """Check that the arrays match a model exactly.

        Args:
          wanted: Abstract parameters and other state of the model.
          complaint: Start of the error message.

        Raises:
          UserError: Arrays are missing, unknown or misshapen.
        """
        differences = self.differences(shapes_of(wanted))
        if differences:
            raise UserError(
                f"{complaint}: {differences}; the weight file or the model's "
                "code has changed; restore the original file or code"
            )


@dataclass(frozen=True)
class Transfer:
    """Plan for transferring trained weights to a model.

    Attributes:
      weights: Trained weights.
      kept: Paths of arrays that retain their initial values: the last layer if the
        classes differ, layers after a backbone, and auxiliary heads and transforms that
        the weights lack.
      converted: Paths of first-layer kernels to convert to another number of channels.
      rows: Rows on `kept` and `converted` for the start-up table.
    """

    weights: Weights
    kept: frozenset[str] = frozenset()
    converted: frozenset[str] = frozenset()
    rows: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        rows = {"weights": self.weights.where, **self.rows}
        return "\n".join(f"{name}: {text}" for name, text in rows.items())

    def fill(
        self,
        values: Any,
        put: Callable[[Any, Any], Any] = put_like,
        *,
        check_finite: bool = True,
    ) -> Any:
        """Replace initial values with the trained weights, one array at a time.

        Args:
          values: Initial parameters and other state of the model, as arrays or
            `jax.ShapeDtypeStruct`s.
          put: Function (array, initial value) -> array on devices, with the shape,
            dtype and sharding of the initial value.
          check_finite: Whether to reject non-finite arrays.

        Raises:
          UserError: An array is not finite.
        """
        paths, tree = jax.tree_util.tree_flatten_with_path(values)
        stored, filled = self.weights.read(), []
        for path, x in paths:
            ours = path_in_weights(path_name(path))
            if ours not in self.kept:
                array = self._in_our_layout(stored, ours, check_finite)
                if ours in self.converted:
                    array = convert(array, x.shape[-2])
                x = put(array, x)
            filled.append(x)
        return tree.unflatten(filled)

    def _in_our_layout(
        self, stored: Mapping[str, np.ndarray], path: str, check_finite: bool
    ) -> np.ndarray:
        """Return the array at a path of our model, in our layout, as a view."""
        names = self.weights.names
        name = names.name(path)
        if check_finite and not np.isfinite(stored[name]).all():
            raise UserError(
                f"{self.weights.where}: the array {name} has values that are NaN or "
                "infinite; give other weights, such as an older checkpoint"
            )
        return names.layout(path).from_torch(stored[name])


def abstract_weights(about: Description) -> tuple[Any, Any]:
    """Return the shapes and dtypes of a model's parameters and other state."""
    return split_model(about.abstract)[1:]


def abstract_members(about: Description) -> tuple[Any, Any]:
    """Return the abstract weights of ensemble members, in dicts by member number."""
    weights = abstract_weights(about)
    if about.members == 1:
        return weights
    params, state = (dict.fromkeys(map(str, range(about.members)), x) for x in weights)
    return params, state


def check_task(about: Description, where: str) -> None:
    """Raise UserError if the task belongs to a missing plug-in."""
    if about.task not in tasks.TASKS and not own.is_own(about.task):
        raise UserError(
            f"{where}: task = {about.task!r}: expected {', '.join(tasks.TASKS)}; "
            "install the plug-in that provides the task"
        )


def fit_arrays(
    about: Description, params: Any, model_state: Any, where: str
) -> tuple[Any, Any]:
    """Convert weights to the shapes and dtypes of their model or ensemble.

    Grouped batch-norm statistics are averaged over the groups, as in evaluation.

    Raises:
      UserError: The arrays do not match the model, or the task belongs to a missing
        plug-in.
    """
    check_task(about, where)
    if about.members == 1:
        return _fit_one(about, params, model_state, where)
    each = {
        i: _fit_one(about, params.get(i, {}), model_state.get(i, {}), where)
        for i in map(str, range(about.members))
    }
    return {i: x for i, (x, _) in each.items()}, {i: x for i, (_, x) in each.items()}


def _fit_one(
    about: Description, params: Any, model_state: Any, where: str
) -> tuple[Any, Any]:
    wanted = abstract_weights(about)
    arrays, kinds = by_path((params, model_state)), by_path(wanted)
    fitted = {}
    for path in kinds.keys() & arrays.keys():
        array, kind = np.asarray(arrays[path]), kinds[path]
        if array.ndim == kind.ndim + 1 and path.startswith("1/"):
            array = array.mean(-2, dtype=np.promote_types(array.dtype, np.float32))
        if array.shape == kind.shape:
            fitted[path] = array.astype(kind.dtype)
    differing = sorted((kinds.keys() | arrays.keys()) - fitted.keys())
    if differing:
        first = differing[0].partition("/")[2]
        raise UserError(
            f"{where} does not fit model.name = {about.model.name!r}: {first} and "
            f"{len(differing) - 1} more arrays are missing or have other shapes; "
            "restore the code of the model, which has changed since training"
        )
    return jax.tree.structure(wanted).unflatten(fitted[path] for path in kinds)


def shapes_of(weights: tuple[Any, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of parameters and other state, keyed by path in the model."""
    return {path_in_weights(path): x.shape for path, x in by_path(weights).items()}


def path_in_weights(path: str) -> str:
    """Remove the first key (parameters or other state) from the path of an array."""
    return path.partition("/")[2]
