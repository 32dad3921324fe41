"""Execution of a run: placement of the model on devices, and compiled programs."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import jax
from jax.sharding import Mesh

from jaxtrain.data.batch import Preprocess
from jaxtrain.data.pixel_normalization import Normalization
from jaxtrain.errors import UserError
from jaxtrain.models.base import Model
from jaxtrain.parallel.layout import Layout
from jaxtrain.plugin import Table
from jaxtrain.tasks.base import Task
from jaxtrain.training.compiled import Program
from jaxtrain.training.state import TrainState

if TYPE_CHECKING:
    from jaxtrain.config import Config, ParallelConfig

# Programs that initialize the weights, create the state, train (one program per phase),
# and evaluate.
Four = tuple[Program, Program, tuple[Program, ...], Program]


class Execution(abc.ABC):
    """Placement of a model on the devices of a run, and compiled programs.

    `EXECUTIONS` is the registry of subclasses. Class methods create the meshes and
    check the task; `build` returns an instance for a model.
    """

    # Reason why features of frozen layers cannot be cached, or None.
    obstacle: ClassVar[str | None] = None

    @classmethod
    @abc.abstractmethod
    def make_meshes(
        cls, config: ParallelConfig, devices: Sequence[Any] | None = None
    ) -> list[Mesh]:
        """Create one mesh per pipeline stage, in order; the first receives the data.

        Args:
          config: Config section `parallel`.
          devices: Devices of the run. Defaults to `jax.devices()`.

        Raises:
          UserError: The mesh of the section does not match the number of devices.
        """

    @classmethod  # noqa: B027
    def check_task(cls, config: Config, task: Task) -> None:
        """Raise UserError if this execution does not support the task."""

    @classmethod
    @abc.abstractmethod
    def build(
        cls,
        model: Model,
        images: jax.ShapeDtypeStruct,
        layouts: Sequence[Layout],
        num_micro: int,
    ) -> Self:
        """Place an abstract model on the meshes.

        Args:
          model: Model with abstract arrays.
          images: Shape, dtype and sharding of a micro-batch of images, (B, H, W, C).
          layouts: Layout on each mesh of `make_meshes`.
          num_micro: Number of micro-batches of a step.

        Raises:
          UserError: The model cannot be split over this number of meshes.
        """

    @property
    @abc.abstractmethod
    def num_devices(self) -> int:
        """Number of devices of the run."""

    @abc.abstractmethod
    def formats(self, abstract: TrainState) -> tuple[Any, Any]:
        """Return two pytrees like `abstract`: formats (with layouts) and shardings."""

    @abc.abstractmethod
    def programs(
        self,
        setup: Any,
        augmenting: Sequence[Preprocess],
        plain: Preprocess,
        normalization: Normalization,
    ) -> Four:
        """Create the programs of a run.

        Args:
          setup: `jaxtrain.trainer.setup.Setup` of the run.
          augmenting: Preprocessing of training batches, by phase.
          plain: Preprocessing of evaluation batches.
          normalization: Mean and standard deviation of the pixel normalization.
        """

    def check_measurable(self) -> None:  # noqa: B027
        """Raise UserError unless a step is a single program (a `Compiled`)."""

    def describe(self) -> dict[str, str]:
        """Rows of the start-up table."""
        return {}

    def summary(self) -> dict[str, Any]:
        """Entries of summary.json."""
        return {}


# Executions by name: `whole`, on one mesh, and executions of plug-ins.
EXECUTIONS: Table[type[Execution]] = Table(
    "executions", {"whole": "jaxtrain.trainer.single_program:SingleProgram"}
)


def kind_of_execution(config: ParallelConfig) -> type[Execution]:
    """Return the execution class for a config.

    Raises:
      UserError: No installed plug-in provides the class.
    """
    if config.pipeline_stages == 1:
        return EXECUTIONS["whole"]
    if "stages" not in EXECUTIONS:
        raise UserError(
            f"parallel.pipeline_stages = {config.pipeline_stages}: no installed "
            "plug-in splits a model into stages; set parallel.pipeline_stages to 1"
        )
    return EXECUTIONS["stages"]
