"""Execution on one mesh: each step is a single program."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import jax
from jax.sharding import Mesh

from jaxtrain.config import ParallelConfig
from jaxtrain.data.batch import Preprocess
from jaxtrain.data.pixel_normalization import Normalization
from jaxtrain.evaluation.evaluate import EVALUATION, compiler
from jaxtrain.evaluation.reducers import TaskMetrics
from jaxtrain.models.base import Model
from jaxtrain.parallel.layout import Layout
from jaxtrain.parallel.mesh import make_mesh
from jaxtrain.trainer.execution import Execution, Four
from jaxtrain.trainer.programs import compiled_step, view_of
from jaxtrain.trainer.setup import Setup
from jaxtrain.training.compiled import Compiled
from jaxtrain.training.eval_step import make_apply
from jaxtrain.training.state import TrainState
from jaxtrain.training.step import make_train_step

# For messages: purpose of the programs that create the state, and fix for out-of-memory
# errors.
FIRST_STATE = (
    "the initial state of the run",
    "set parallel.fsdp or a smaller model",
)


@dataclass(frozen=True)
class SingleProgram(Execution):
    """Execution of the full model on one mesh."""

    layout: Layout

    @classmethod
    def make_meshes(
        cls, config: ParallelConfig, devices: Sequence[Any] | None = None
    ) -> list[Mesh]:
        return [make_mesh(config, devices)]

    @classmethod
    def build(
        cls,
        model: Model,
        images: jax.ShapeDtypeStruct,
        layouts: Sequence[Layout],
        num_micro: int,
    ) -> Self:
        (layout,) = layouts
        return cls(layout)

    @property
    def num_devices(self) -> int:
        return self.layout.mesh.size

    def formats(self, abstract: TrainState) -> tuple[Any, Any]:
        return self.layout.formats(abstract), self.layout.state(abstract)

    def programs(
        self,
        setup: Setup,
        augmenting: Sequence[Preprocess],
        plain: Preprocess,
        normalization: Normalization,
    ) -> Four:
        states, create, config = setup.state_formats, setup.create, setup.config
        weights = (states.params, states.model_state)
        train = tuple(
            compiled_step(
                setup,
                make_train_step(
                    setup.task,
                    setup.graphdef,
                    phase,
                    preprocess,
                    setup.layout,
                    mixes=config.data.augment.mixes,
                    method=setup.method,
                    normalization=normalization,
                ),
            )
            for phase, preprocess in zip(setup.phases, augmenting, strict=True)
        )
        apply = make_apply(
            setup.task,
            setup.graphdef,
            plain,
            setup.layout,
            view_of(config),
            setup.splits.input_shape[:2],
        )
        compiled = compiler(apply, setup.mesh, *EVALUATION)
        return (
            Compiled(create.weights, *FIRST_STATE, out_shardings=weights),
            Compiled(
                create.begin, *FIRST_STATE, out_shardings=states, donate_argnums=0
            ),
            train,
            compiled((TaskMetrics(setup.task),)),
        )
