"""Conversion of outputs to numbers (readout), and output shapes."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.errors import UserError
from jaxtrain.trees import by_path

if TYPE_CHECKING:
    from jaxtrain.tasks.base import Task

# Reserved names of columns in a table of predictions.
TABLE_COLUMNS: tuple[str, str] = ("filename", "error")


class Readout(NamedTuple):
    """Conversion of outputs to columns of numbers.

    Attributes:
      name: Name of the array in an exported file.
      columns: Names of the numbers.
      of: Traced function from outputs (B, num_outputs) to numbers (B, len(columns)).
      shift: Offset of each column, float64, to add to the result of `of`, for numbers
        so far from 0 that float32 would lose their differences. None means no offset.
      decimals: Number of decimals to round each column to, if there is a `shift`.
    """

    name: str
    columns: tuple[str, ...]
    of: Callable[[jax.Array], jax.Array]
    shift: tuple[float, ...] | None = None
    decimals: tuple[int, ...] = ()

    def add_offset(self, numbers: np.ndarray) -> np.ndarray:
        """Add `shift` to numbers computed by `of`, in float64; round to `decimals`.

        Without a `shift`, the numbers are returned unchanged.
        """
        if self.shift is None:
            return numbers
        moved = numbers.astype(np.float64) + np.array(self.shift)
        each = zip(np.moveaxis(moved, -1, 0), self.decimals, strict=True)
        return np.stack([np.round(x, places) for x, places in each], -1)

    def traced(self, outputs: jax.Array) -> jax.Array:
        """Apply `of`, and add `shift` without a change of dtype. Traced."""
        numbers = self.of(outputs)
        if self.shift is None:
            return numbers
        return numbers + jnp.asarray(self.shift, numbers.dtype)


def check_columns(columns: Sequence[str]) -> None:
    """Check the column names of a table of predictions.

    Raises:
      UserError: Duplicate or reserved names.
    """
    taken: set[str] = {*TABLE_COLUMNS}
    for name in columns:
        if name in taken:
            raise UserError(
                f"the target column {name!r} duplicates a column of the table of "
                "predictions; rename the target column"
            )
        taken.add(name)


def in_numbers(tree: Any) -> str:
    """Format the arrays of a tree as text; long arrays are abbreviated."""
    texts = []
    for path, x in by_path(tree).items():
        text = np.array2string(np.asarray(x), precision=4, threshold=12)
        texts.append(f"{path} {text}".strip())
    return ", ".join(texts)


def is_shape(spec: Any) -> bool:
    """Whether an output spec is a single shape rather than a pytree of shapes."""
    return isinstance(spec, tuple) and all(isinstance(size, int) for size in spec)


def abstract_outputs(task: "Task", batch: tuple[int, ...], dtype: Any) -> Any:
    """Abstract outputs of a task for a batch, a pytree of `jax.ShapeDtypeStruct`."""

    def shaped(shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((*batch, *shape), dtype)

    spec = (task.num_outputs,) if task.output_spec is None else task.output_spec
    return jax.tree.map(shaped, spec, is_leaf=is_shape)
