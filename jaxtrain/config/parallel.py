"""The section `parallel`: device mesh, pipeline stages and collectives."""

from dataclasses import dataclass
from typing import Literal

from jaxtrain.config.base import Section, report
from jaxtrain.config.combinations import Incompatible, option
from jaxtrain.config.metadata import field, with_metadata
from jaxtrain.config.optimizer import (
    DISTANCE,
    LBFGS,
    LOOKAHEAD,
    OWN_OPTIMIZER,
    SCHEDULE_FREE,
)

Preset = Literal["data_parallel", "fsdp", "zero1", "tensor", "spatial", "2d"]

STAGES = option("parallel", "pipeline_stages")
# Reason why pipelines exclude weight averages with recomputed batch-norm statistics.
NEW_STATISTICS = (
    "batch-norm statistics of averaged weights are recomputed with the full model, but "
    "a stage has only some of the layers"
)
COMBINATIONS = (
    Incompatible(
        STAGES,
        option("data", "train_image_size", "progressive_sizes", "sliding_size"),
        "the programs of a pipeline are compiled for images of one size",
        "leave the image-size option out",
    ),
    Incompatible(
        STAGES,
        LBFGS,
        "the line search of lbfgs needs the full model on every device",
        "use another optimizer.name",
    ),
    Incompatible(
        STAGES,
        DISTANCE,
        "the learning-rate estimate sums over all layers, but a stage has only some of "
        "the layers",
        "use another optimizer.name",
    ),
    Incompatible(STAGES, SCHEDULE_FREE, NEW_STATISTICS, "use another optimizer.name"),
    Incompatible(
        STAGES, LOOKAHEAD, NEW_STATISTICS, "leave optimizer.lookahead_steps out"
    ),
    Incompatible(
        STAGES,
        OWN_OPTIMIZER,
        "each stage would get only the gradients of its layers, which a custom "
        "optimizer may not expect",
        "use a built-in optimizer",
    ),
    Incompatible(
        STAGES,
        option("train", "steps_per_call"),
        "a pipeline dispatches steps one by one",
        "set train.steps_per_call to 1",
    ),
)


@dataclass(frozen=True, kw_only=True)
class ParallelConfig(Section):
    """Distribution of the model and the batch over devices."""

    preset: Preset = field(
        "data_parallel",
        help="Sharding over the devices: data_parallel (the batch), fsdp (the batch "
        "and the train state), zero1 (the batch and the optimizer state), tensor "
        "(channels), spatial (the rows of the images) or 2d (fsdp over groups of 2 "
        "devices with sharded channels).",
        may_change_on_resume=True,
    )
    data: int | None = field(
        None,
        help="Size of the mesh axis that shards the batch and replicates the train "
        "state; -1: all remaining devices; None: set by parallel.preset.",
        may_change_on_resume=True,
        mesh_axis=True,
    )
    fsdp: int | None = field(
        None,
        help="Size of the mesh axis that shards the batch and the train state; "
        "-1: all remaining devices; None: set by parallel.preset.",
        may_change_on_resume=True,
        mesh_axis=True,
    )
    model: int | None = field(
        None,
        help="Size of the mesh axis that shards channels of convolutions and the "
        "classes; -1: all remaining devices; None: set by parallel.preset.",
        may_change_on_resume=True,
        mesh_axis=True,
    )
    spatial: int | None = field(
        None,
        help="Size of the mesh axis that shards the rows of images; -1: all remaining "
        "devices; None: set by parallel.preset.",
        may_change_on_resume=True,
        mesh_axis=True,
    )
    spatial_width: int | None = field(
        None,
        help="Size of the mesh axis that shards the columns of images; -1: all "
        "remaining devices; None: set by parallel.preset.",
        may_change_on_resume=True,
        mesh_axis=True,
    )
    cpu_devices: int | Literal["auto"] = field(
        "auto",
        help="Number of CPU devices over which the batch is sharded if there is no "
        "GPU; auto: at most one per core, with enough work for each.",
        may_change_on_resume=True,
        fixed_in_trials="JAX reads the number of devices only once in a process",
    )
    pipeline_stages: int = field(
        1,
        help="Pipeline parallelism: number of consecutive stages of layers, each on a "
        "separate group of devices; train.accumulate_steps is the number of "
        "micro-batches.",
        may_change_on_resume=True,
    )
    batch_norm: Literal["global"] | int = field(
        "global",
        help="Number of examples that share batch-norm statistics, or global: the "
        "entire (micro-)batch, synchronized over devices in every layer.",
    )
    reduce_dtype: Literal["float32", "bfloat16"] | None = field(
        None,
        help="Dtype of the all-reduce of gradients over the batch axes of the mesh; "
        "None: the dtype of the parameters, at least float32.",
    )
    xla_flags: Literal["default", "overlap"] = field(
        "default",
        help="Named set of XLA flags for several GPUs: overlap hides collectives "
        "behind computation. No effect on CPU.",
        may_change_on_resume=True,
        fixed_in_trials="JAX reads the flags only once in a process",
    )

    def validate(self) -> None:
        self._all(MESH_AXES, lambda size: size == -1 or size > 0, "-1 or above 0")
        rest = [name for name in MESH_AXES if getattr(self, name) == -1]
        if len(rest) > 1:
            report(
                f"{' and '.join(f'parallel.{name} = -1' for name in rest)}: only one "
                "axis may be -1, which takes all remaining devices; give the sizes of "
                "the other axes",
                *(f"parallel.{name}" for name in rest[1:]),
            )
        self._check(
            "cpu_devices",
            self.cpu_devices == "auto" or self.cpu_devices > 0,
            "auto, or a number of devices above 0",
        )
        self._positive("pipeline_stages")
        self._check(
            "batch_norm",
            self.batch_norm == "global" or self.batch_norm > 0,
            "global, or a number of examples above 0",
        )


MESH_AXES = tuple(with_metadata(ParallelConfig, "mesh_axis"))
