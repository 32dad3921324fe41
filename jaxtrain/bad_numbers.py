"""What the host does about bad steps: tell of the first, stop after too many."""

import math
from typing import Any, NoReturn

import jax

from jaxtrain.checkpoint import Checkpoints
from jaxtrain.config import Config
from jaxtrain.data.pipeline import train_indices
from jaxtrain.errors import BadNumbersError
from jaxtrain.logging import RunLog
from jaxtrain.plan import Plan
from jaxtrain.progress import Progress

# Lines of a run, each with the examples of its batch; after that steps are counted.
MAX_TOLD = 20


class BadNumbers:
    """Looks at the metrics of steps once they are read, in order."""

    def __init__(
        self,
        config: Config,
        plan: Plan,
        saved: Checkpoints,
        log: RunLog,
        progress: Progress,
    ):
        self._config, self._plan = config, plan
        self._saved, self._log, self._progress = saved, log, progress

    def look(self, start: int, metrics: dict[str, jax.Array]) -> None:
        """Tell of the bad steps among those of one call.

        Args:
          start: completed steps before the call.
          metrics: of the call, (steps,) each.

        Raises:
          BadNumbersError: the limit of bad steps in a row is reached.
        """
        in_a_row = jax.device_get(metrics["bad_steps"]).tolist()
        if not any(in_a_row):
            return
        values = {name: jax.device_get(metrics[name]) for name in ("loss", "grad_norm")}
        for index, count in enumerate(in_a_row):
            step = start + index
            found = {name: float(array[index]) for name, array in values.items()}
            if count:
                self._tell("bad step", step, found)
            if count >= self._config.train.max_bad_steps:
                self._stop(step, count, found)

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
        plan = self._plan
        return train_indices(
            self._config.seed, step, plan.num_examples, plan.batch_size
        ).tolist()

    def _stop(self, step: int, count: int, found: dict[str, float]) -> NoReturn:
        finite = all(map(math.isfinite, found.values()))
        message = (
            f"step {step + 1}: {count} non-finite steps in a row "
            f"(train.max_bad_steps): loss {found['loss']}, gradient norm "
            f"{found['grad_norm']}{', but the update is not finite' if finite else ''}."
            " They changed nothing; the last good checkpoint is "
            f"{self._saved.newest()}. Try, in another "
            "--workdir or with --fresh, a lower optimizer.learning_rate, "
            "optimizer.clip_norm or a longer warm-up"
        )
        self._log.write("event", step + 1, event=f"stopped at {message}")
        raise BadNumbersError(message)
