"""Timetable of a run: its length and its periods, in optimizer steps."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Timetable:
    """Length and periods of a run, in optimizer steps; None disables a period."""

    num_examples: int
    batch_size: int
    steps_per_epoch: int
    total_steps: int
    warmup_steps: int
    eval_every_steps: int | None
    save_every_steps: int
    log_every_steps: int
    stop_after_steps: int
    # Step at which frozen layers are unfrozen, or None.
    unfreeze_step: int | None = None
    # Pairs (first step, training image size); () for a constant size.
    image_sizes: tuple[tuple[int, int], ...] = ()
    # First step without mosaic augmentation, or None.
    close_mosaic_step: int | None = None
    # First step with fixed quantizer ranges and batch-norm statistics, or None.
    fix_step: int | None = None
    # First step and period of stochastic weight averaging (SWA), or None.
    swa: tuple[int, int] | None = None
    # First step at which evaluations may rank checkpoints or stop the run
    # (`StepTransform.settled_after`).
    ranked_from: int = 0

    def evaluations_after(self, step: int) -> int:
        """Number of evaluations on the validation split that remain after a step."""
        every, total = self.eval_every_steps, self.total_steps
        if every is None:
            return 0
        at_the_end = total % every != 0 and step < total
        return total // every - step // every + at_the_end

    def epoch(self, step: int) -> float:
        """Number of epochs after `step` steps, rounded to 4 decimals."""
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
        """Yield the number of steps of each call of the training step.

        A call has `steps_per_call` steps, or a single step if a boundary is nearer.
        Therefore at most two programs are compiled, and no boundary is within a call. A
        resumed run has the same calls, so its results are rounded in the same way.

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
