"""Input arrays of a training method, in addition to state and batch."""

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
    """Arguments of `Method.plan_inputs`.

    Attributes:
      config: Config of the run.
      task: Task of the run.
      source: Training split of the run.
      layout: Layout of the run.
      images: Shape, dtype and sharding of the images of a micro-batch, (B, H, W, C).
    """

    config: Config
    task: Task
    source: Source
    layout: Layout
    images: jax.ShapeDtypeStruct


class MethodInputs:
    """Inputs of a method, passed to the step as `objective.method_arrays`.

    The inputs are arguments of the compiled step rather than constants. They are not
    part of the state: checkpoints do not contain them, and a resumed run loads them
    again.
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
        """Load the arrays onto the devices.

        Args:
          data: Config section of the data.
          dataset: Training split of the run.
          mesh: Mesh of the devices.
          prepare: Preprocessing of training images.
          seen: Mean and standard deviation of the pixel normalization.

        Raises:
          UserError: The inputs cannot be read.
        """
        raise NotImplementedError

    def describe(self) -> dict[str, str]:
        """Rows of the start-up table, by label."""
        return {}
