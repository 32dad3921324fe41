"""Execution of a run: which devices hold the model, and the programs of its steps."""

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

# What creates the weights, begins a run with them, trains, by phases, and evaluates.
Four = tuple[Program, Program, tuple[Program, ...], Program]


class Execution(abc.ABC):
    """Placement of a model on the devices of a run, and the programs of its steps.

    A row of `EXECUTIONS`: the class makes the meshes and checks the task; an object of
    it, which `build` returns, knows the model.
    """

    # Why features of frozen pieces cannot be kept; None: they can.
    obstacle: ClassVar[str | None] = None

    @classmethod
    @abc.abstractmethod
    def make_meshes(
        cls, config: ParallelConfig, devices: Sequence[Any] | None = None
    ) -> list[Mesh]:
        """Return the meshes that hold the model in turn; the data go to the first.

        Args:
          config: Section of the config.
          devices: Devices of the run. Defaults to `jax.devices()`.

        Raises:
          UserError: The section does not fit the devices.
        """

    @classmethod  # noqa: B027
    def check_task(cls, config: Config, task: Task) -> None:
        """Raise UserError if the task cannot be trained in this way."""

    @classmethod
    @abc.abstractmethod
    def build(
        cls,
        model: Model,
        images: jax.ShapeDtypeStruct,
        layouts: Sequence[Layout],
        num_micro: int,
    ) -> Self:
        """Place an abstract model.

        Args:
          model: Model whose arrays are shapes alone.
          images: Shape of a micro-batch.
          layouts: Layout on each mesh of `make_meshes`.
          num_micro: Number of micro-batches of a step.

        Raises:
          UserError: The model cannot be placed on so many meshes.
        """

    @property
    @abc.abstractmethod
    def num_devices(self) -> int:
        """Number of devices of the run."""

    @abc.abstractmethod
    def formats(self, abstract: TrainState) -> tuple[Any, Any]:
        """Return the formats (order in memory) and the shardings of a state."""

    @abc.abstractmethod
    def programs(
        self,
        setup: Any,
        augmenting: Sequence[Preprocess],
        plain: Preprocess,
        normalization: Normalization,
    ) -> Four:
        """Return the programs of a run.

        Args:
          setup: `jaxtrain.trainer.setup.Setup` of the run.
          augmenting: Preparation of the training batches of each phase.
          plain: Preparation of the batches of evaluations.
          normalization: Statistics that the images are normalised with.
        """

    def check_measurable(self) -> None:  # noqa: B027
        """Raise UserError unless a step is a single program (a `Compiled`)."""

    def describe(self) -> dict[str, str]:
        """Return rows of the table at the start of a run."""
        return {}

    def summary(self) -> dict[str, Any]:
        """Return entries of summary.json."""
        return {}


# One mesh that holds the whole model, and what plug-ins bring.
EXECUTIONS: Table[type[Execution]] = Table(
    "executions", {"whole": "jaxtrain.trainer.whole:Whole"}
)


def kind_of_execution(config: ParallelConfig) -> type[Execution]:
    """Return the execution that a config asks for.

    Raises:
      UserError: No plug-in here has it.
    """
    if config.pipeline_stages == 1:
        return EXECUTIONS["whole"]
    if "stages" not in EXECUTIONS:
        raise UserError(
            f"parallel.pipeline_stages = {config.pipeline_stages}: no plug-in here "
            "cuts a model into stages; set parallel.pipeline_stages to 1"
        )
    return EXECUTIONS["stages"]
