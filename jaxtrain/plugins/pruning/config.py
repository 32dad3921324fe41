"""Config section `prune`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxtrain.config.base import Section
from jaxtrain.config.combinations import Incompatible, Needs, check, option
from jaxtrain.config.metadata import field
from jaxtrain.config.optimizer import LBFGS
from jaxtrain.config.parallel import STAGES

# Maximum M: ranking compares all pairs of weights in a group.
MAX_GROUP = 32

PRUNES = option("prune", "sparsity", "pattern")
COMBINATIONS = (
    Incompatible(
        option("prune", "sparsity"),
        option("prune", "pattern"),
        "a pattern determines how many weights become 0",
        "give only one of the two options",
    ),
    Needs(
        option("prune", "end_epochs"),
        option("prune", "sparsity"),
    ),
    Needs(option("prune", "layers", "start_epochs"), PRUNES),
    Incompatible(
        PRUNES,
        STAGES,
        "weights are ranked over all layers, but a stage has only some of the layers",
        "set parallel.pipeline_stages to 1",
    ),
    Incompatible(
        PRUNES,
        LBFGS,
        "the L-BFGS history and line search would change pruned weights",
        "use another optimizer.name",
    ),
)


@dataclass(frozen=True, kw_only=True)
class PruneConfig(Section):
    """Magnitude pruning: sets the smallest weights of kernels to 0, permanently."""

    sparsity: float | None = field(
        None,
        help="Final fraction of zero weights in the pruned layers; None: no weights "
        "are pruned, unless prune.pattern is set.",
    )
    pattern: str | None = field(
        None,
        help="N:M sparsity, such as 2:4: keep N of every M consecutive weights "
        "along the input channels, the largest by magnitude, from prune.start_epochs "
        "on. NVIDIA's sparse tensor cores support 2:4.",
    )
    layers: tuple[str, ...] = field(
        (),
        help="Path patterns of the layers to prune, such as stage*, or backbone; "
        "(): all layers except the first layer, the head, and depthwise "
        "convolutions.",
    )
    start_epochs: float | None = field(
        None,
        help="Epochs after which pruning starts; default: a quarter of the run (with "
        "model.pretrained: 0), or the end of train.freeze_epochs if later.",
    )
    end_epochs: float | None = field(
        None,
        help="Epochs after which the final sparsity is reached, by a cubic schedule "
        "(Zhu and Gupta 2017); default: three quarters of the run.",
    )

    @classmethod
    def combinations(cls) -> tuple[Any, ...]:
        return COMBINATIONS

    @classmethod
    def removed(cls) -> Mapping[str, Any]:
        return {
            "scope": "global",
            "every_epochs": None,
            "initial_sparsity": None,
        }

    def validate(self) -> None:
        self._all(["sparsity"], lambda x: 0 < x < 1, "0 < value < 1")
        self._not_negative("start_epochs", "end_epochs")
        self._check(
            "pattern",
            self.pattern is None or self.group is not None,
            f"N:M with 0 < N < M, and M at most {MAX_GROUP}, such as 2:4",
        )
        check(self, COMBINATIONS, "prune")

    @property
    def group(self) -> tuple[int, int] | None:
        """N (retained weights) and M (group size) of the pattern, or None."""
        found = re.fullmatch(r"([1-9]\d?):([1-9]\d?)", self.pattern or "")
        if found is None:
            return None
        keep, of = int(found[1]), int(found[2])
        return (keep, of) if keep < of <= MAX_GROUP else None

    @property
    def is_on(self) -> bool:
        """Whether the run prunes weights."""
        return self.sparsity is not None or self.pattern is not None
