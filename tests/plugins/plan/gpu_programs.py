"""Steps as the GPU's compiler makes them: what runs in a process that has it."""

from collections.abc import Sequence
from typing import NamedTuple

from jaxtrain.config import Config
from jaxtrain.plugins.plan import gpu_compiler
from jaxtrain.plugins.plan.measure import (
    bytes_per_device,
    compile_evaluation,
    compile_step,
)
from jaxtrain.plugins.plan.targets import Target
from jaxtrain.trainer.setup import build_setup
from jaxtrain.training.state import num_params


class Step(NamedTuple):
    """A compiled step: its optimized HLO, and bytes of a device.

    `donated_bytes` are those of the arguments that become results where they lie.
    """

    text: str
    state_bytes: int
    donated_bytes: int
    num_params: int


def compile_steps(configs: Sequence[Config], target: Target) -> list[Step]:
    stand_ins = gpu_compiler.start(target)
    found = []
    for config in configs:
        setup = build_setup(config, devices=stand_ins)
        program = compile_step(setup)
        plan = program.memory_analysis()
        assert plan is not None
        found.append(
            Step(
                program.as_text() or "",
                bytes_per_device(setup.abstract_state),
                plan.alias_size_in_bytes,
                num_params(setup.abstract_state.params),
            )
        )
    return found


def compile_evaluations(configs: Sequence[Config], target: Target) -> list[str]:
    """Return the optimized HLO of what each run evaluates a batch with."""
    stand_ins = gpu_compiler.start(target)
    return [
        compile_evaluation(build_setup(config, devices=stand_ins)).as_text() or ""
        for config in configs
    ]
