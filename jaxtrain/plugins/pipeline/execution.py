"""Execution of a run with pipeline parallelism."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import jax
from jax.sharding import Mesh

from jaxtrain.config import Config, ParallelConfig
from jaxtrain.data.batch import Preprocess
from jaxtrain.data.pixel_normalization import Normalization
from jaxtrain.errors import UserError, counted
from jaxtrain.models.base import Model
from jaxtrain.parallel.layout import Layout
from jaxtrain.plugins.pipeline.cut import Stages, build_stages, make_stage_meshes
from jaxtrain.plugins.pipeline.steps import (
    make_create,
    make_eval_step,
    make_train_step,
)
from jaxtrain.tasks.base import Task, defines
from jaxtrain.trainer.execution import Execution, Four
from jaxtrain.trainer.setup import Setup
from jaxtrain.training.state import TrainState
from jaxtrain.training.transforms.base import overrides


@dataclass(frozen=True)
class Pipeline(Execution):
    """Execution of a model in pipeline stages, each on a subset of the devices.

    Attributes:
      stages: Stages of the model.
      num_micro: Number of micro-batches of a step.
    """

    stages: Stages
    num_micro: int

    obstacle: ClassVar[str | None] = (
        "the model is split into stages (parallel.pipeline_stages)"
    )

    @classmethod
    def make_meshes(
        cls, config: ParallelConfig, devices: Sequence[Any] | None = None
    ) -> list[Mesh]:
        return make_stage_meshes(config, devices)

    @classmethod
    def check_task(cls, config: Config, task: Task) -> None:
        """Raise UserError if the task has an `objective`, which needs all layers."""
        stages = config.parallel.pipeline_stages
        if defines(task, "objective"):
            raise UserError(
                f"parallel.pipeline_stages = {stages} with task = "
                f"{config.task.name!r}: the task defines an objective of the full "
                "model, but a stage has only some of the layers; set "
                "parallel.pipeline_stages = 1"
            )

    @classmethod
    def build(
        cls,
        model: Model,
        images: jax.ShapeDtypeStruct,
        layouts: Sequence[Layout],
        num_micro: int,
    ) -> Self:
        return cls(build_stages(model, images, layouts, num_micro), num_micro)

    @property
    def num_devices(self) -> int:
        return sum(stage.layout.mesh.size for stage in self.stages.stages)

    def formats(self, abstract: TrainState) -> tuple[Any, Any]:
        shardings = self.stages.merge(self.stages.shardings(abstract))
        return shardings, shardings

    def programs(
        self,
        setup: Setup,
        augmenting: Sequence[Preprocess],
        plain: Preprocess,
        normalization: Normalization,
    ) -> Four:
        stages, abstract = self.stages, setup.abstract_state
        for one in setup.create.transforms:
            if one.moves_weights:
                raise UserError(
                    f"parallel.pipeline_stages: the step transform {one.name!r} "
                    "computes gradients at perturbed weights, which pipeline stages do "
                    "not support; set parallel.pipeline_stages = 1"
                )
            if overrides(one, "on_gradients"):
                raise UserError(
                    f"parallel.pipeline_stages: the step transform {one.name!r} needs "
                    "the gradients of all layers, but a stage has only some of the "
                    "layers; set parallel.pipeline_stages = 1"
                )
        weights, begin = make_create(setup.create, stages, abstract)
        train = tuple(
            make_train_step(
                setup.task,
                stages,
                phase,
                preprocess,
                abstract,
                setup.policy.output_dtype,
            )
            for phase, preprocess in zip(setup.phases, augmenting, strict=True)
        )
        return weights, begin, train, make_eval_step(setup.task, stages, plain)

    def check_measurable(self) -> None:
        raise UserError(
            f"parallel.pipeline_stages = {len(self.stages.stages)}: a pipelined step "
            "consists of several programs, but only a single program can be measured; "
            "leave parallel.pipeline_stages out"
        )

    def describe(self) -> dict[str, str]:
        stages, idle_share = self.stages.stages, self.stages.timeline.idle_share
        flops = sum(stage.flops for stage in stages)
        batches = counted(self.num_micro, "micro-batch", "micro-batches")
        return {
            "pipeline": f"{len(stages)} stages, {batches}, {idle_share:.1%} idle",
            **{
                f"stage {i}": f"{counted(stage.layout.mesh.size, 'device')}, "
                f"{stage.flops / flops:.1%} of the FLOPs: {stage.names[0]} to "
                f"{stage.names[-1]}"
                for i, stage in enumerate(stages, start=1)
            },
        }

    def summary(self) -> dict[str, Any]:
        return {"pipeline_idle_share": self.stages.timeline.idle_share}
