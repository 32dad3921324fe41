"""The length and the periods of a run in optimizer steps."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Timetable:
    """A run in steps. A period of None never comes."""

    num_examples: int
    batch_size: int
    steps_per_epoch: int
    total_steps: int
    warmup_steps: int
    eval_every_steps: int | None
    save_every_steps: int
    log_every_steps: int
    stop_after_steps: int
    # Steps after which the layers that were frozen are trained, too; None: never.
    unfreeze_step: int | None = None
    # From which step on the training images have which size; (): always the same.
    image_sizes: tuple[tuple[int, int], ...] = ()
    # Steps after which there are no more mosaics; None: never.
    close_mosaic_step: int | None = None
    # Steps after which ranges and batch-norm statistics stay; None: never.
    fix_step: int | None = None
    # Steps before the weights are averaged (SWA), and of a cycle; None: they never are.
    swa: tuple[int, int] | None = None
    # Steps from which on evaluations rank checkpoints and may stop the run
    # (`StepTransform.settled_after`).
    ranked_from: int = 0

    def evaluations_after(self, step: int) -> int:
        """Return the number of evaluations on the validation split after a step."""
        every, total = self.eval_every_steps, self.total_steps
        if every is None:
            return 0
        at_the_end = total % every != 0 and step < total
        return total // every - step // every + at_the_end

    def epoch(self, step: int) -> float:
        """Return the number of epochs that `step` steps are."""
        return round(step / self.steps_per_epoch, 4)

    def next_boundary(self, step: int) -> int:
        """Return the first step after `step` at which more than a step is due."""
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
        """Yield the number of steps of each call: `steps_per_call`, or 1 up to a mark.

        So at most two programs are compiled, and nothing is due within a call. Where a
        run stops does not change its calls, nor then its rounding.

        Args:
          start: Number of steps before the first call.
          steps_per_call: Most steps of a call.
          stop: Number of steps after the last call. Defaults to those of the run.
        """
        step, stop = start, self.total_steps if stop is None else stop
        while step < stop:
            fits = step + steps_per_call <= min(self.next_boundary(step), stop)
            size = steps_per_call if fits else 1
            yield size
            step += size
