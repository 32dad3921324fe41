"""Length and periods of a run in optimizer steps."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Timetable:
    """Timetable of a run in steps; a period of None never comes."""

    num_examples: int
    batch_size: int
    steps_per_epoch: int
    total_steps: int
    warmup_steps: int
    eval_every_steps: int | None
    save_every_steps: int
    log_every_steps: int
    stop_after_steps: int
    # Step at which frozen layers are unfrozen; None for never.
    unfreeze_step: int | None = None
    # First step of each training image size; () for a constant size.
    image_sizes: tuple[tuple[int, int], ...] = ()
    # Step from which on there are no mosaics; None for never.
    close_mosaic_step: int | None = None
    # Step from which on ranges and batch-norm statistics are fixed; None for never.
    fix_step: int | None = None
    # Start and cycle of weight averaging (SWA); None for never.
    swa: tuple[int, int] | None = None
    # First step at which evaluations may rank checkpoints or stop the run
    # (`StepTransform.settled_after`).
    ranked_from: int = 0

    def evaluations_after(self, step: int) -> int:
        """Number of validations after a step."""
        every, total = self.eval_every_steps, self.total_steps
        if every is None:
            return 0
        at_the_end = total % every != 0 and step < total
        return total // every - step // every + at_the_end

    def epoch(self, step: int) -> float:
        """Epochs completed after `step` steps, a fraction."""
        return round(step / self.steps_per_epoch, 4)

    def next_boundary(self, step: int) -> int:
        """First step after `step` with an evaluation, save, log line or new phase."""
        periods = (self.eval_every_steps, self.save_every_steps, self.log_every_steps)
        marks = [(step // every + 1) * every for every in periods if every]
        changes = [self.unfreeze_step or 0, self.close_mosaic_step or 0]
        changes.append(self.fix_step or 0)
        changes += [first for first, _ in self.image_sizes]
        marks += [change for change in changes if change > step]
        return min([*marks, self.total_steps])

    def call_sizes(
        self, start: int, steps_per_call: int, stop: int | None = None
    ) -> Iterator[int]:
        """Yield the steps of each call: `steps_per_call`, or 1 before a boundary.

        At most two programs are compiled, and nothing is due within a call. Stops do
        not change the calls, and so not their rounding.

        Args:
          start: Number of steps before the first call.
          steps_per_call: Largest number of steps per call.
          stop: Number of steps after the last call. Defaults to the length of the run.
        """
        step, stop = start, self.total_steps if stop is None else stop
        while step < stop:
            fits = step + steps_per_call <= min(self.next_boundary(step), stop)
            size = steps_per_call if fits else 1
            yield size
            step += size
