"""Phases of steps, from sections of a config."""

from collections.abc import Mapping
from typing import Any

from jaxtrain.config import OptimizerConfig, TrainConfig
from jaxtrain.config.optimizer import LINE_SEARCH
from jaxtrain.training.clipping import with_clipping
from jaxtrain.training.phase import Phase
from jaxtrain.training.rates import with_rates


def make_phase(
    optimizer: OptimizerConfig,
    train: TrainConfig,
    tx: Any,
    schedule: Any,
    momenta: Mapping[str, float],
    *,
    rates: Mapping[str, float] | None = None,
    **fields: Any,
) -> Phase:
    """Make a phase whose optimizer clips, and has the rates, as the sections say."""
    tx = with_clipping(tx, optimizer.clip_norm, optimizer.clip_ratio)
    return Phase(
        tx=with_rates(tx, rates or {}),
        schedule=schedule,
        momenta=momenta,
        num_micro=train.accumulate_steps,
        line_search=optimizer.name == LINE_SEARCH,
        remat=train.remat,
        **fields,
    )
