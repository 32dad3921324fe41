"""The first state of a run whose layers lie on different devices."""

import functools
from typing import Any

import jax

from jaxtrain.training.compiled import Compiled, Several
from jaxtrain.training.stages.cut import Stage, Stages
from jaxtrain.training.state import CreateState, TrainState


class Weights(Several):
    """`root_key -> weights`, as `CreateState.weights`; each stage creates its own."""

    def __init__(self, create: CreateState, stages: Stages, abstract: TrainState):
        self._stages = stages
        self._programs = [
            # XLA drops what the other stages hold.
            Compiled(
                functools.partial(_weights_of, create, stages, stage),
                out_shardings=(shardings.params, shardings.model_state),
            )
            for stage, shardings in zip(
                stages.stages, stages.shardings(abstract), strict=True
            )
        ]

    def parts(self) -> list[Compiled]:
        return self._programs

    def __call__(self, root: jax.Array) -> tuple[Any, Any]:
        return self._stages.merge([program(root) for program in self._programs])


class Begin(Several):
    """`weights -> state`, as `CreateState.begin`."""

    def __init__(self, create: CreateState, stages: Stages, abstract: TrainState):
        self._stages = stages
        self._programs = [
            Compiled(create.begin, out_shardings=shardings, donate_argnums=0)
            for shardings in stages.shardings(abstract)
        ]

    def parts(self) -> list[Compiled]:
        return self._programs

    def __call__(self, weights: tuple[Any, Any]) -> TrainState:
        parts = self._stages.split(weights)
        return self._stages.merge(
            [program(part) for program, part in zip(self._programs, parts, strict=True)]
        )


def _weights_of(
    create: CreateState, stages: Stages, stage: Stage, root: jax.Array
) -> tuple[Any, Any]:
    return stages.part(stage, create.weights(root))
