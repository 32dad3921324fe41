"""Root of the config schema, with the checks that involve several sections."""

from dataclasses import dataclass, make_dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated

from jaxtrain.config import (
    augment,
    classification,
    data,
    log,
    model,
    optimizer,
    parallel,
    train_combinations,
)
from jaxtrain.config.base import Section, report, row_of
from jaxtrain.config.checkpoint import CheckpointConfig
from jaxtrain.config.classification import ClassificationConfig
from jaxtrain.config.combinations import check
from jaxtrain.config.data import DataConfig
from jaxtrain.config.log import LoggingConfig
from jaxtrain.config.metadata import field, with_metadata
from jaxtrain.config.methods import PlainConfig
from jaxtrain.config.model import MODELS, ModelConfig
from jaxtrain.config.models import ConvNetConfig
from jaxtrain.config.optimizer import OPTIMIZERS, OptimizerConfig
from jaxtrain.config.optimizers import SGDConfig
from jaxtrain.config.parallel import ParallelConfig
from jaxtrain.config.part import METHODS, TASKS, Part, convert_parts
from jaxtrain.config.train import TrainConfig
from jaxtrain.errors import UserError
from jaxtrain.plugin import Table

# Sections of plug-ins, by name.
SECTIONS: Table[type[Section]] = Table("sections", {})


@dataclass(frozen=True, kw_only=True)
class CoreConfig(Section):
    """Config of a run, without the sections of plug-ins."""

    seed: int = field(
        0,
        help="Random seed: for initial weights, data order, augmentation and dropout.",
        common=True,
    )
    precision: Annotated[str, row_of("jaxtrain.training:POLICIES", exact=False)] = (
        field(
            "fp32",
            help="Precision policy: a name, such as bf16, or "
            "params=DTYPE,compute=DTYPE,output=DTYPE.",
            common=True,
            other_names="amp",
        )
    )

    task: Part = field(
        default_factory=ClassificationConfig,
        help="Task that the model is trained for, with its options.",
        table=TASKS,
        code_of_model=True,
        common=True,
    )
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(
        default_factory=ConvNetConfig,
        help="Model, or import path of a Flax module, with its options.",
        table=MODELS,
        code_of_model=True,
        common=True,
        other_names="arch",
    )
    optimizer: OptimizerConfig = field(
        default_factory=SGDConfig,
        help="Optimizer, with its options.",
        table=OPTIMIZERS,
        common=True,
        other_names="opt optim",
    )
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    method: Part = field(
        default_factory=PlainConfig,
        help="Training method: how a step computes its gradients, with its options.",
        table=METHODS,
        common=True,
        other_names="method",
    )
    train: TrainConfig = field(default_factory=lambda: TrainConfig(epochs=10))
    checkpoint: CheckpointConfig = field(
        default_factory=CheckpointConfig, may_change_on_resume=True
    )
    logging: LoggingConfig = field(
        default_factory=LoggingConfig, may_change_on_resume=True
    )

    def __post_init__(self) -> None:
        convert_parts(self)
        super().__post_init__()

    def validate(self) -> None:
        self._check("seed", 0 <= self.seed < 2**32, "a number from 0 to 2**32 - 1")
        for group in ONE_OF.values():
            given = {
                path: value
                for path in group
                if (value := attrgetter(path)(self)) is not None
            }
            if len(given) > 1:
                shown = " and ".join(
                    f"{path} = {value}" for path, value in given.items()
                )
                report(f"{shown}: give only one of {', '.join(group)}", *[*given][1:])
        if self.data.batch_size % self.train.accumulate_steps:
            report(
                f"data.batch_size = {self.data.batch_size} is not divisible by "
                f"train.accumulate_steps = {self.train.accumulate_steps}; change one "
                "of the two",
                "train.accumulate_steps",
            )
        group = self.parallel.batch_norm
        if group != "global" and self.micro_batch_size % group:
            report(
                f"parallel.batch_norm = {group} does not divide the "
                f"{self.micro_batch_size} examples of data.batch_size / "
                "train.accumulate_steps; set parallel.batch_norm to a divisor of this "
                "number, or to global",
                "parallel.batch_norm",
            )
        check(self, COMBINATIONS)

    @property
    def micro_batch_size(self) -> int:
        """Number of examples in a micro-batch, over all devices."""
        return self.data.batch_size // self.train.accumulate_steps

    @property
    def norm_groups(self) -> int:
        """Number of groups with separate batch-norm statistics in a micro-batch."""
        group = self.parallel.batch_norm
        return 1 if group == "global" else self.micro_batch_size // group


for _name, _section in SECTIONS.items():
    if _name in CoreConfig.__dataclass_fields__ or not _name.isidentifier():
        raise UserError(
            f"sections: the name {_name!r} of a plug-in's section is taken, or not an "
            "identifier: uninstall the plug-in"
        )
    if not (isinstance(_section, type) and issubclass(_section, Section)):
        raise UserError(
            f"sections: the plug-in section {_name!r} is {_section!r}, not a subclass "
            "of Section: uninstall the plug-in"
        )

# Name of a group -> fields, only one of which may be set. An override on the command
# line unsets the field of the group that the config file sets.
ONE_OF: dict[str, tuple[str, ...]] = {}
for _path, _group in with_metadata(CoreConfig, "one_of").items():
    ONE_OF[_group] = (*ONE_OF.get(_group, ()), _path)

# All rules on options that exclude or require each other.
COMBINATIONS = (
    *parallel.COMBINATIONS,
    *classification.COMBINATIONS,
    *train_combinations.COMBINATIONS,
    *optimizer.COMBINATIONS,
    *model.COMBINATIONS,
    *data.COMBINATIONS,
    *augment.COMBINATIONS,
    *log.COMBINATIONS,
    *(row for section in SECTIONS.values() for row in section.combinations()),
)

if TYPE_CHECKING:
    Config = CoreConfig
else:
    Config = make_dataclass(
        "Config",
        [
            (name, section, field(default_factory=section))
            for name, section in SECTIONS.items()
        ],
        bases=(CoreConfig,),
        namespace={
            "__doc__": "Config of a run: the return value of `get_config()`.",
            "__module__": __name__,
        },
        frozen=True,
        kw_only=True,
    )
