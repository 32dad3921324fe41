"""Hooks around the calls of a run, such as a profiler."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from jaxtrain.config import Config
from jaxtrain.errors import UserError
from jaxtrain.plugin import Table


class Hooks:
    """Does nothing; benchmarks and profilers override what they need.

    The steps that are done are counted from 0, over all of the run.

    Attributes:
      profiles: Whether they profile steps, for which XLA needs flags of its own.
    """

    profiles: bool = False

    def during(self, attempt: Any) -> AbstractContextManager[Any]:
        """Return a context of all calls, from the first to the last."""
        return contextlib.nullcontext()

    def before_call(self, step: int, num_steps: int) -> None:
        """Look at a call of the train step that is about to be started.

        Args:
          num_steps: of the call.
        """

    def after_call(self, step: int, metrics: Any) -> None:
        """Look at a call that was started; its results may not be there yet.

        Args:
          step: steps that are done once the call is.
          metrics: of the call, (steps,) each, on the device.
        """

    def after_evaluation(self, step: int, metrics: Mapping[str, Any]) -> str | None:
        """Return why the run is to end after an evaluation; None lets it go on.

        A run that ends so is saved, as one that was asked to stop early. Of several
        processes the word of the first counts.

        Args:
          metrics: of the validation split, by name.
        """
        return None


class JoinedHooks(Hooks):
    """Several hooks, called one after another."""

    def __init__(self, hooks: Sequence[Hooks]):
        self._hooks = hooks
        self.profiles = any(one.profiles for one in hooks)

    @contextlib.contextmanager
    def during(self, attempt: Any) -> Iterator[None]:
        with contextlib.ExitStack() as entered:
            for one in self._hooks:
                entered.enter_context(one.during(attempt))
            yield

    def before_call(self, step: int, num_steps: int) -> None:
        for one in self._hooks:
            one.before_call(step, num_steps)

    def after_call(self, step: int, metrics: Any) -> None:
        for one in self._hooks:
            one.after_call(step, metrics)

    def after_evaluation(self, step: int, metrics: Mapping[str, Any]) -> str | None:
        reasons = [one.after_evaluation(step, metrics) for one in self._hooks]
        return next((reason for reason in reasons if reason is not None), None)


# Called with the config and whether `--profile` is given, before the devices start;
# None where a run has no use for them.
HOOKS: Table[Callable[[Config, bool], Hooks | None]] = Table("hooks", {})


def make_hooks(config: Config, *, profile: bool = False) -> Hooks:
    """Return the hooks that plug-ins bring for a run.

    Args:
      profile: Whether `--profile` is given.

    Raises:
      UserError: Steps are to be profiled, and no plug-in does it.
    """
    made = [make(config, profile) for make in HOOKS.values()]
    each = [one for one in made if one is not None]
    hooks = JoinedHooks(each) if len(each) > 1 else next(iter(each), Hooks())
    steps = config.train.profile_steps
    if (profile or steps is not None) and not hooks.profiles:
        what = "--profile" if profile else f"train.profile_steps = {steps}"
        raise UserError(f"{what}: no plug-in that profiles is installed; leave it out")
    return hooks
