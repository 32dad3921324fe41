"""Jitted functions compiled ahead of time, with their compilation time."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import jax

from jaxtrain.parallel.device_memory import check_fits
from jaxtrain.plugin import hints_on
from jaxtrain.processes import cluster
from jaxtrain.training.flops import count_flops

LESS_MEMORY = (
    "set a smaller data.batch_size, more train.accumulate_steps, train.remat, or use "
    "more devices"
)

_total_seconds = 0.0


def total_seconds() -> float:
    """Total seconds of tracing and compilation in this process so far."""
    return _total_seconds


class Compiled:
    """A function compiled once for each set of shapes and dtypes of its last argument.

    All other arguments must have the same shapes and dtypes in each call.

    The matmul precision is the value of `jax.default_matmul_precision` at creation. All
    processes of a run must compile the same programs in the same order. They wait for
    each other after each compilation; otherwise a process with a warm compilation cache
    would time out in its first collective (on CPUs after 30 s).

    If the compiler reports that a program needs more memory than the devices have, the
    call raises UserError before the program runs.

    Attributes:
      seconds: Total seconds of tracing and compilation.
      compiling: Whether a compilation is in progress, in any process of the run.
      programs: Compiled programs; the key has the (shape, dtype) of each array of the
        last argument.
      flops: FLOPs of each program (see `count_flops`), with the keys of `programs`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        purpose: str = "a part of a step",
        fix: str | None = None,
        *,
        together: bool = True,
        **jit_options: Any,
    ):
        """Jit a function.

        Args:
          function: Pure function of arrays.
          purpose: Name of the function in messages, such as `a training step`.
          fix: Advice in the out-of-memory message, an imperative. Defaults to
            `LESS_MEMORY` and the hints of plug-ins.
          together: Whether processes wait for each other after compilation.
          **jit_options: Options of `jax.jit`.
        """
        self._purpose, self._together = purpose, together
        self._fix = LESS_MEMORY + hints_on("memory of a step") if fix is None else fix
        self._jitted = jax.jit(function, **jit_options)
        self._products: Any = getattr(jax.config, "jax_default_matmul_precision")  # noqa: B009
        self.seconds = 0.0
        self.compiling = False
        self.programs: dict[Any, jax.stages.Compiled] = {}
        self.flops: dict[Any, int] = {}

    def __call__(self, *args: Any, **named: Any) -> Any:
        arrays = _shapes(args)
        if arrays not in self.programs:
            # Calling `self.compile` would add a frame to the tracebacks of users.
            with self._compiling():
                self._compile(arrays, self._jitted.trace(*args, **named))
        return self.programs[arrays](*args, **named)

    def compile(self, *args: Any, **named: Any) -> jax.stages.Compiled:
        """Compile for arguments that are arrays or `jax.ShapeDtypeStruct`s."""
        arrays = _shapes(args)
        if arrays not in self.programs:
            with self._compiling():
                self._compile(arrays, self._jitted.trace(*args, **named))
        return self.programs[arrays]

    def lower(self, *args: Any, **named: Any) -> jax.stages.Lowered:
        """Lower to StableHLO."""
        with jax.default_matmul_precision(self._products):
            return self._jitted.trace(*args, **named).lower()

    def flops_a_step(self) -> float | None:
        """FLOPs per training step, or None if not compiled.

        The last argument of the compiled function must have the batches of all steps,
        stacked along a leading axis.
        """
        for arrays, flops in self.flops.items():
            (num_steps, *_), _ = arrays[0]
            return flops / num_steps
        return None

    @contextlib.contextmanager
    def _compiling(self) -> Iterator[None]:
        global _total_seconds
        self.compiling, start = True, time.perf_counter()
        try:
            with jax.default_matmul_precision(self._products):
                yield
            seconds = time.perf_counter() - start
            self.seconds += seconds
            _total_seconds += seconds
            if self._together:
                cluster.current().barrier()
        finally:
            self.compiling = False

    def _compile(self, arrays: Any, traced: Any) -> None:
        program = traced.lower().compile()
        check_fits(program, self._purpose, self._fix)
        self.flops[arrays] = count_flops(traced.jaxpr.jaxpr)
        self.programs[arrays] = program


def _shapes(args: tuple[Any, ...]) -> Any:
    return tuple((x.shape, x.dtype) for x in jax.tree.leaves(args[-1]))


class Program(Protocol):
    """Interface of `Compiled`, and of objects that run several `Compiled` functions."""

    def __call__(self, *args: Any, **named: Any) -> Any: ...

    def flops_a_step(self) -> float | None: ...

    @property
    def seconds(self) -> float: ...

    @property
    def compiling(self) -> bool: ...
