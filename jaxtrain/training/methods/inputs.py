"""Arrays that a training step takes for its method, besides the state and the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
from jax.sharding import Mesh

from jaxtrain.data.batch import Preprocess
from jaxtrain.data.pixel_normalization import Normalization
from jaxtrain.parallel.layout import Layout
from jaxtrain.tasks.base import Task

if TYPE_CHECKING:
    from jaxtrain.config import Config, DataConfig
    from jaxtrain.data.datasets import Dataset
    from jaxtrain.data.sources import Source


@dataclass(frozen=True, eq=False)
class MethodContext:
    """The parts of a run from which a method plans its inputs.

    Attributes:
      config: Config of the run.
      task: Task of the run.
      source: Training split of the run.
      layout: Layout of the run.
      images: Images of a micro-batch, abstract, (B, H, W, C).
    """

    config: Config
    task: Task
    source: Source
    layout: Layout
    images: jax.ShapeDtypeStruct


class MethodInputs:
    """The inputs that a method adds to a step, which gets them as `objective.beside`.

    They are arguments of the step, not constants of the program, and no part of the
    state: checkpoints do without them, and a resumed run loads them again.
    """

    @property
    def abstract(self) -> Any:
        """Shapes, dtypes and shardings: a pytree of `jax.ShapeDtypeStruct`."""
        raise NotImplementedError

    def load(
        self,
        data: DataConfig,
        dataset: Dataset,
        mesh: Mesh,
        prepare: Preprocess,
        seen: Normalization,
    ) -> Any:
        """Return the arrays on the devices.

        Args:
          data: Section of the data.
          dataset: Training split of the run.
          mesh: Mesh of the devices.
          prepare: Prepares training images.
          seen: Statistics that these are normalised with.

        Raises:
          UserError: They cannot be read.
        """
        raise NotImplementedError

    def describe(self) -> dict[str, str]:
        """Return rows of the start table."""
        return {}
