"""Bad steps and loss spikes on the host: report them, and stop after too many."""

import math
from typing import Any, NoReturn

import jax

from jaxtrain.errors import BadNumbersError
from jaxtrain.trainer.attempt import Attempt

# Lines of a run, each with the examples of its batch; after that steps are counted.
MAX_TOLD = 20


def look(attempt: Attempt, start: int, metrics: dict[str, jax.Array]) -> None:
    """Report the bad steps of one call; calls are looked at in order.

    Args:
      start: Completed steps before the call.
      metrics: Metrics of the call, (steps,) each.

    Raises:
      BadNumbersError: The limit of bad steps in a row is reached.
    """
    in_a_row = jax.device_get(metrics["bad_steps"]).tolist()
    spikes = [0] * len(in_a_row)
    if "spike" in metrics:
        spikes = jax.device_get(metrics["spike"]).tolist()
    train = attempt.job.setup.config.train
    for index, (count, spike) in enumerate(zip(in_a_row, spikes, strict=True)):
        if not (count or spike):
            continue
        step = start + index
        names = ["loss", "grad_norm", *(["loss_limit"] if spike else [])]
        found = {n: float(jax.device_get(metrics[n])[index]) for n in names}
        _tell(attempt, "loss spike" if spike else "bad step", step, found)
        if count >= train.max_bad_steps:
            _stop(attempt, step, count, found)


def _tell(attempt: Attempt, event: str, step: int, found: dict[str, float]) -> None:
    """Write one line on the step after `step` steps, if there are not too many."""
    progress = attempt.progress
    progress.bad_steps_told += 1
    if progress.bad_steps_told > MAX_TOLD:
        return
    details: dict[str, Any] = {
        name: value if math.isfinite(value) else str(value)
        for name, value in found.items()
    }
    if progress.bad_steps_told == MAX_TOLD:
        details["note"] = "the last that is told, others are counted"
    # Numbers of the examples in the training split.
    examples = attempt.job.programs.order.indices(step).tolist()
    attempt.log.write("event", step + 1, event=event, **details, examples=examples)


def _stop(attempt: Attempt, step: int, count: int, found: dict[str, float]) -> NoReturn:
    kind, why = "non-finite", ""
    if attempt.job.setup.config.train.spike_sigma is not None:
        kind = "bad (non-finite or loss spike)"
    if "loss_limit" in found:
        why = f", a spike above {found['loss_limit']}"
    elif all(map(math.isfinite, found.values())):
        why = ", but the update is not finite"
    message = (
        f"step {step + 1}: {count} {kind} steps in a row (train.max_bad_steps): "
        f"loss {found['loss']}, gradient norm {found['grad_norm']}{why}. They changed "
        f"nothing; the last good checkpoint is {attempt.job.saved.newest()}. Try, in "
        "another --workdir or with --fresh, a lower optimizer.learning_rate, "
        "optimizer.clip_norm or a longer warm-up"
    )
    attempt.log.record("event", step + 1, event=f"stopped at {message}")
    raise BadNumbersError(message)
