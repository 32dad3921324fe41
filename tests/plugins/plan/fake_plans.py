"""Facts of a step that nobody compiled."""

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from jaxtrain.config import Config
from jaxtrain.environments import Environment
from jaxtrain.plugins.plan import gpu_compiler
from jaxtrain.plugins.plan.facts import Facts
from jaxtrain.plugins.plan.targets import Target

FACTS = Facts(
    device_kind="NVIDIA H100 80GB HBM3",
    usable_bytes=None,
    num_devices=1,
    mesh={},
    batch_size=64,
    num_params=1000,
    state_bytes=8_000,
    input_bytes=1_000,
    cached=False,
    peak_bytes=10**9,
    checkpoint_bytes=8_000,
    flops=10**12,
    products="bfloat16",
    kernels=[(10**9, 10**12, 1)],
    exchanges=[],
    minimum_bytes=0,
)


def facts(**fields: Any) -> Facts:
    return dataclasses.replace(FACTS, **fields)


def use_fake_compiler(
    monkeypatch: pytest.MonkeyPatch,
    cache: Path,
    peak_bytes: Callable[[Config], int] = lambda config: 10**9,
) -> list[Config]:
    """Let nothing be compiled for GPUs; return the configs that would have been."""
    compiled: list[Config] = []

    def call(
        target: Target, function: object, configs: Sequence[Config], _: Target
    ) -> Sequence[Facts]:
        compiled.extend(configs)
        return [
            facts(
                num_devices=target.num_devices,
                batch_size=config.data.batch_size,
                peak_bytes=peak_bytes(config),
            )
            for config in configs
        ]

    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr(Environment, "find", lambda _: Path(sys.executable))
    monkeypatch.setattr(gpu_compiler, "ready", contextlib.nullcontext)
    monkeypatch.setattr(gpu_compiler, "call", call)
    return compiled
