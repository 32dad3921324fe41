"""Interface of callbacks."""

import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxtrain.config import Config
from jaxtrain.errors import UserError
from jaxtrain.plugin import Table

if TYPE_CHECKING:
    from jaxtrain.trainer.calls import Call
    from jaxtrain.trainer.run_state import RunState
    from jaxtrain.trainer.trainer import StepBatch


class Evaluation(NamedTuple):
    """An evaluation of a run.

    Attributes:
      split: `validation` or `test`.
      step: Training step of the evaluated weights.
      metrics: Metrics by name.
    """

    split: str
    step: int
    metrics: dict[str, Any]


class Callback:
    """Base class of callbacks; every hook does nothing.

    A callback may call `run.request_stop`, `run.request_save` and
    `run.set_rate_factor`. It may store JSON in `run.progress.callbacks[name]`, which is
    saved with each checkpoint.

    Attributes:
      profiles: Whether the callback profiles steps, which requires XLA flags.
      sets_rate: Whether the callback calls `run.set_rate_factor`. The train state then
        contains the factor.
    """

    profiles: bool = False
    sets_rate: bool = False

    def on_start(self, run: "RunState") -> None:
        """Called before the first step, also when a run is resumed."""

    def on_step_start(self, run: "RunState", batch: "StepBatch") -> None:
        """Called before the dispatch of one or more training steps."""

    def on_step_end(self, run: "RunState", metrics: dict[str, Any]) -> None:
        """Called after the dispatch of one or more training steps.

        Args:
          run: State of the run.
          metrics: Metrics of the steps, arrays (steps,) that may not be computed yet.
        """

    def on_metrics(self, run: "RunState", call: "Call") -> None:
        """Called for each dispatch whose steps have finished, in order.

        Raises:
          BadNumbersError: The callback ends the run, with exit code 5.
        """

    def on_eval_start(self, run: "RunState", split: str) -> None:
        """Called before an evaluation, after `on_metrics` of all steps."""

    def on_eval(self, run: "RunState", evaluation: Evaluation) -> None:
        """Called after an evaluation."""

    def on_save(self, run: "RunState") -> None:
        """Called before a checkpoint is saved; may update `run.progress`."""

    def on_stop(self, run: "RunState") -> None:
        """Called after the last step, also if the run was stopped early."""

    def close(self) -> None:
        """Release resources, after success or failure."""

    def on_end(self, run: "RunState", summary: dict[str, Any]) -> None:
        """Called after a complete run, with `summary` saved and the log closed."""


class Callbacks(Callback):
    """Callback that calls several callbacks in order."""

    def __init__(self, callbacks: Iterable[Callback] = ()):
        self._each = tuple(callbacks)
        self.profiles = any(one.profiles for one in self._each)
        self.sets_rate = any(one.sets_rate for one in self._each)

    def on_start(self, run: "RunState") -> None:
        for one in self._each:
            one.on_start(run)

    def on_step_start(self, run: "RunState", batch: "StepBatch") -> None:
        for one in self._each:
            one.on_step_start(run, batch)

    def on_step_end(self, run: "RunState", metrics: dict[str, Any]) -> None:
        for one in self._each:
            one.on_step_end(run, metrics)

    def on_metrics(self, run: "RunState", call: "Call") -> None:
        for one in self._each:
            one.on_metrics(run, call)

    def on_eval_start(self, run: "RunState", split: str) -> None:
        for one in self._each:
            one.on_eval_start(run, split)

    def on_eval(self, run: "RunState", evaluation: Evaluation) -> None:
        for one in self._each:
            one.on_eval(run, evaluation)

    def on_save(self, run: "RunState") -> None:
        for one in self._each:
            one.on_save(run)

    def on_stop(self, run: "RunState") -> None:
        for one in self._each:
            one.on_stop(run)

    def close(self) -> None:
        with contextlib.ExitStack() as stack:  # Closes all, even if one raises.
            for one in self._each:
                stack.callback(one.close)

    def on_end(self, run: "RunState", summary: dict[str, Any]) -> None:
        for one in self._each:
            one.on_end(run, summary)


# Factory: (config, whether `--profile` is given) -> callback, or None if the run does
# not need it. Called before the devices start.
CALLBACKS: Table[Callable[[Config, bool], Callback | None]] = Table("callbacks", {})


def make_callbacks(config: Config, *, profile: bool = False) -> Callbacks:
    """Create the callbacks of plug-ins.

    Args:
      config: Config of the run.
      profile: Whether `--profile` is given.

    Raises:
      UserError: Profiling is requested, but no plug-in supports profiling.
    """
    made = [make(config, profile) for make in CALLBACKS.values()]
    callbacks = Callbacks(one for one in made if one is not None)
    steps = config.train.profile_steps
    if (profile or steps is not None) and not callbacks.profiles:
        given = "--profile" if profile else f"train.profile_steps = {steps}"
        raise UserError(
            f"{given}: no installed plug-in supports profiling; leave the option out"
        )
    return callbacks
