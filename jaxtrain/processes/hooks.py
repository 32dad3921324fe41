"""What others may do around the calls of a run, such as a profiler."""

import contextlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any


class Hooks:
    """Does nothing; benchmarks and profilers override what they need.

    The steps that are done are counted from 0, over all of the run.
    """

    def during(self, attempt: Any) -> AbstractContextManager[Any]:
        """Return what is entered before the first call, and left after the last.

        Args:
          attempt: `jaxtrain.run.attempt.Attempt` that takes the steps.
        """
        return contextlib.nullcontext()

    def before_call(self, step: int, num_steps: int) -> None:
        """Look at a call of the train step that is about to be started.

        Args:
          step: steps that are done.
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
          step: steps that are done.
          metrics: of the validation split, by name.
        """
        return None
