"""What others may do around the calls and the saves of a run."""

from typing import Any


class Hooks:
    """Does nothing; faults, benchmarks and profilers override what they need.

    The steps that are done are counted from 0, over all of the run.
    """

    def before_call(
        self, step: int, num_steps: int, data: Any, batches: Any
    ) -> tuple[Any, Any]:
        """Return the data and the batches that a call of the train step is to take.

        Args:
          step: steps that are done.
          num_steps: of the call.
          data: arrays on the device; {}: the batches hold the examples.
          batches: (steps, batch, ...) each.
        """
        return data, batches

    def after_call(self, step: int, metrics: Any) -> None:
        """Look at a call that was started; its results may not be there yet.

        Args:
          step: steps that are done once the call is.
          metrics: of the call, (steps,) each, on the device.
        """

    def before_save(self, step: int) -> None:
        """Look at a save that is about to be written, in the process that writes it.

        Raises:
          CheckpointError: it fails.
        """
