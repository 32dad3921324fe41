"""Readable forms of the outputs of a model, and the shapes of these."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain.errors import UserError
from jaxtrain.trees import by_path

if TYPE_CHECKING:
    from jaxtrain.tasks.base import Task

# What a table of predictions has beside numbers of the task.
TABLE_COLUMNS: tuple[str, str] = ("filename", "error")


class Readout(NamedTuple):
    """Columns of numbers, of the outputs of a model without classes.

    Attributes:
      name: What an exported file calls the array.
      columns: What each of its numbers is called, as in a table.
      of: Function of outputs (B, num_outputs), traced, that returns these numbers,
        (B, len(columns)).
      shift: Addends of the columns, float64, of numbers so far from 0 that float32
        would round their differences off: `of` leaves them out. None adds none.
      decimals: Of each column with a `shift`, the decimals that `of` knows.
    """

    name: str
    columns: tuple[str, ...]
    of: Callable[[jax.Array], jax.Array]
    shift: tuple[float, ...] | None = None
    decimals: tuple[int, ...] = ()

    def whole(self, numbers: np.ndarray) -> np.ndarray:
        """Return values of `of`, (..., columns), in float64 with the shift added."""
        if self.shift is None:
            return numbers
        moved = numbers.astype(np.float64) + np.array(self.shift)
        each = zip(np.moveaxis(moved, -1, 0), self.decimals, strict=True)
        return np.stack([np.round(x, places) for x, places in each], -1)

    def traced(self, outputs: jax.Array) -> jax.Array:
        """Return the numbers in the dtype of the outputs, with the shift."""
        numbers = self.of(outputs)
        if self.shift is None:
            return numbers
        return numbers + jnp.asarray(self.shift, numbers.dtype)


def check_columns(columns: Sequence[str]) -> None:
    """Check that a table of predictions can have columns of these names.

    Raises:
      UserError: two are the same, or one is what the table calls another column.
    """
    taken: set[str] = {*TABLE_COLUMNS}
    for name in columns:
        if name in taken:
            raise UserError(
                f"the target column {name!r} would be in the table of predictions "
                "twice: give it another name"
            )
        taken.add(name)


def in_numbers(tree: Any) -> str:
    """Return the arrays of a tree as text; of many numbers, the first and the last."""
    texts = []
    for path, x in by_path(tree).items():
        text = np.array2string(np.asarray(x), precision=4, threshold=12)
        texts.append(f"{path} {text}".strip())
    return ", ".join(texts)


def is_shape(spec: Any) -> bool:
    """Whether an output spec is one shape, and no tree of several."""
    return isinstance(spec, tuple) and all(isinstance(size, int) for size in spec)


def abstract_outputs(task: "Task", batch: tuple[int, ...], dtype: Any) -> Any:
    """Return the shapes of the outputs for a batch, jax.ShapeDtypeStruct each."""

    def shaped(shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((*batch, *shape), dtype)

    spec = (task.num_outputs,) if task.output_spec is None else task.output_spec
    return jax.tree.map(shaped, spec, is_leaf=is_shape)
