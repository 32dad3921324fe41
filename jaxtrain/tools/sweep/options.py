"""What a sweep was asked for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxtrain.config import Config
from jaxtrain.parallel.devices import Platform


@dataclass(frozen=True, kw_only=True)
class SweepOptions:
    """A sweep as its command describes it; it can be sent to other processes.

    Attributes:
      config: Config that the trials change.
      space: Python file that defines `space(trial)`.
      folder: Folder of the sweep.
      num_trials: Number of trials in all, with those that are there.
      sampler: Class of `optuna.samplers`, with `sampler_options`.
      pruner: Class of `optuna.pruners`, with `pruner_options`.
      platform: Platform that trials run on.
      together: Number of trials that are trained in one program.
    """

    config: Config
    space: Path
    folder: Path
    num_trials: int
    sampler: str = "TPESampler"
    sampler_options: Mapping[str, Any] = field(default_factory=dict)
    pruner: str = "MedianPruner"
    pruner_options: Mapping[str, Any] = field(default_factory=dict)
    platform: Platform = "auto"
    together: int = 1
