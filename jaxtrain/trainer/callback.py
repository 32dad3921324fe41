"""The interface of callbacks: they watch a run, and may ask something of it."""

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
      step: Number of steps of the weights that were evaluated.
      metrics: Metrics by name.
    """

    split: str
    step: int
    metrics: dict[str, Any]


class Callback:
    """Called at the moments of a run; does nothing by itself.

    It may call `run.request_stop`, `run.request_save` and `run.set_rate_factor`. Its
    memory, saved with each checkpoint, is `run.progress.callbacks[name]`: any JSON.

    Attributes:
      profiles: Whether it profiles steps, for which XLA needs flags of its own.
      sets_rate: Whether it calls `run.set_rate_factor`: the state then has a factor.
    """

    profiles: bool = False
    sets_rate: bool = False

    def on_start(self, run: "RunState") -> None:
        """Begin, before the first step of this start."""

    def on_step_start(self, run: "RunState", batch: "StepBatch") -> None:
        """Look at a call of the training step that is about to be sent."""

    def on_step_end(self, run: "RunState", metrics: dict[str, Any]) -> None:
        """Look at a call that was sent; its metrics may not be computed yet."""

    def on_metrics(self, run: "RunState", call: "Call") -> None:
        """Look at the metrics of a call that the devices have done; calls are in order.

        Raises:
          BadNumbersError: The run is to end here, with exit code 5.
        """

    def on_eval_start(self, run: "RunState", split: str) -> None:
        """Look at a run before an evaluation; the metrics of all steps were seen."""

    def on_eval(self, run: "RunState", evaluation: Evaluation) -> None:
        """Look at an evaluation."""

    def on_save(self, run: "RunState") -> None:
        """Bring `run.progress` up to date, before it is saved with the state."""

    def on_stop(self, run: "RunState") -> None:
        """End what concerns steps, after the last one of this start."""

    def close(self) -> None:
        """Give up what is open, whether the run came to its end or failed."""

    def on_end(self, run: "RunState", summary: dict[str, Any]) -> None:
        """Use a run that is finished: `summary` is in its workdir, its log closed."""


class Callbacks(Callback):
    """Several callbacks, called one after another."""

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
        with contextlib.ExitStack() as stack:  # All, though one fails.
            for one in self._each:
                stack.callback(one.close)

    def on_end(self, run: "RunState", summary: dict[str, Any]) -> None:
        for one in self._each:
            one.on_end(run, summary)


# Made of the config and whether `--profile` is given, before the devices start; None
# where a run has no use for one.
CALLBACKS: Table[Callable[[Config, bool], Callback | None]] = Table("callbacks", {})


def make_callbacks(config: Config, *, profile: bool = False) -> Callbacks:
    """Make the callbacks that plug-ins bring for a run.

    Args:
      config: Config of the run.
      profile: Whether `--profile` is given.

    Raises:
      UserError: Steps are to be profiled, and no plug-in does it.
    """
    made = [make(config, profile) for make in CALLBACKS.values()]
    callbacks = Callbacks(one for one in made if one is not None)
    steps = config.train.profile_steps
    if (profile or steps is not None) and not callbacks.profiles:
        given = "--profile" if profile else f"train.profile_steps = {steps}"
        raise UserError(f"{given}: no plug-in that profiles is installed; leave it out")
    return callbacks
