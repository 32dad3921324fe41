"""What the host does about bad steps and loss spikes: tell, stop, go back."""

import math
from typing import Any, NoReturn

import jax

from jaxtrain.checkpoints.store import Checkpoints
from jaxtrain.config import TrainConfig
from jaxtrain.data.order import DataOrder
from jaxtrain.errors import BadNumbersError
from jaxtrain.records.run_log import RunLog
from jaxtrain.run.progress import Progress

# Lines of a run, each with the examples of its batch; after that steps are counted.
MAX_TOLD = 20


class LossSpike(Exception):
    """A loss spike came up that the run is to go back for.

    Args:
      step: completed steps before the step of the spike.
      position: of its batch in the data.
      details: for the line that tells of it.
    """

    def __init__(self, step: int, position: int, details: dict[str, Any]):
        super().__init__(step, position, details)
        self.step, self.position, self.details = step, position, details


class BadNumbers:
    """Looks at the metrics of steps once they are read, in order."""

    def __init__(
        self,
        train: TrainConfig,
        order: DataOrder,
        saved: Checkpoints,
        log: RunLog,
        progress: Progress,
    ):
        self._train, self._order = train, order
        self._saved, self._log, self._progress = saved, log, progress

    def look(self, start: int, metrics: dict[str, jax.Array]) -> None:
        """Report the bad steps of one call.

        Args:
          start: completed steps before the call.
          metrics: of the call, (steps,) each.

        Raises:
          BadNumbersError: the limit of bad steps in a row is reached.
          LossSpike: there is one, and `train.on_spike` is "rewind".
        """
        in_a_row = jax.device_get(metrics["bad_steps"]).tolist()
        spikes = [0] * len(in_a_row)
        if "spike" in metrics:
            spikes = jax.device_get(metrics["spike"]).tolist()
        for index, (count, spike) in enumerate(zip(in_a_row, spikes, strict=True)):
            if count or spike:
                names = ["loss", "grad_norm", *(["loss_limit"] if spike else [])]
                found = {n: float(jax.device_get(metrics[n])[index]) for n in names}
                self._look_at(start + index, count, found)

    def _look_at(self, step: int, count: int, found: dict[str, float]) -> None:
        """Report the bad step after `step` steps, the `count`-th in a row."""
        spike = "loss_limit" in found
        self._tell("loss spike" if spike else "bad step", step, found)
        if count >= self._train.max_bad_steps:
            self._stop(step, count, found)
        if spike and self._train.on_spike == "rewind":
            raise LossSpike(step, self._progress.data_position(step), found)

    def _tell(self, event: str, step: int, found: dict[str, float]) -> None:
        """Write one line on the step after `step` steps, if there are not too many."""
        self._progress.bad_steps_told += 1
        if self._progress.bad_steps_told > MAX_TOLD:
            return
        details: dict[str, Any] = {
            name: value if math.isfinite(value) else str(value)
            for name, value in found.items()
        }
        if self._progress.bad_steps_told == MAX_TOLD:
            details["note"] = "the last that is told, others are counted"
        self._log.write(
            "event", step + 1, event=event, **details, examples=self._examples(step)
        )

    def _examples(self, step: int) -> list[int]:
        """Return the indices, in the training split, of the step after `step` steps."""
        return self._order.indices(self._progress.data_position(step)).tolist()

    def _stop(self, step: int, count: int, found: dict[str, float]) -> NoReturn:
        kind, why = "non-finite", ""
        if self._train.on_spike == "skip":
            kind = "bad (non-finite or loss spike)"
        if "loss_limit" in found:
            why = f", a spike above {found['loss_limit']}"
        elif all(map(math.isfinite, found.values())):
            why = ", but the update is not finite"
        message = (
            f"step {step + 1}: {count} {kind} steps in a row (train.max_bad_steps): "
            f"loss {found['loss']}, gradient norm {found['grad_norm']}{why}. They "
            f"changed nothing; the last good checkpoint is {self._saved.newest()}. "
            "Try, in another --workdir or with --fresh, a lower "
            "optimizer.learning_rate, optimizer.clip_norm or a longer warm-up"
        )
        self._log.record("event", step + 1, event=f"stopped at {message}")
        raise BadNumbersError(message)
