"""Callback that logs skipped steps and loss spikes; too many skips end the run."""

import math
from typing import Any, NoReturn

import jax

from jaxtrain.errors import BadNumbersError
from jaxtrain.trainer.callback import Callback
from jaxtrain.trainer.calls import Call
from jaxtrain.trainer.run_state import RunState

# Maximum number of logged steps, each with the indices of its examples. Later steps are
# only counted.
MAX_TOLD = 20


class BadSteps(Callback):
    """Callback that logs skipped steps and loss spikes.

    `train.max_bad_steps` skipped steps in a row end the run.
    """

    def on_metrics(self, run: RunState, call: Call) -> None:
        _check(run, call.start, call.metrics)


def _check(run: RunState, start: int, metrics: dict[str, jax.Array]) -> None:
    in_a_row = jax.device_get(metrics["bad_steps"]).tolist()
    spikes = [0] * len(in_a_row)
    if "spike" in metrics:
        spikes = jax.device_get(metrics["spike"]).tolist()
    train = run.trainer.config.train
    for index, (count, spike) in enumerate(zip(in_a_row, spikes, strict=True)):
        if not (count or spike):
            continue
        step = start + index
        names = ["loss", "grad_norm", *(["loss_limit"] if spike else [])]
        found = {n: float(jax.device_get(metrics[n])[index]) for n in names}
        _log(run, "loss spike" if spike else "bad step", step, found)
        if count >= train.max_bad_steps:
            _stop(run, step, count, found)


def _log(run: RunState, event: str, step: int, found: dict[str, float]) -> None:
    """Log a skipped step or a loss spike, unless `MAX_TOLD` are already logged."""
    progress = run.progress
    progress.bad_steps_told += 1
    if progress.bad_steps_told > MAX_TOLD:
        return
    details: dict[str, Any] = {
        name: value if math.isfinite(value) else str(value)
        for name, value in found.items()
    }
    if progress.bad_steps_told == MAX_TOLD:
        details["note"] = "last logged step; later steps are only counted"
    # Indices of the examples in the training split.
    examples = run.trainer.data.order.indices(step).tolist()
    run.log.write("event", step + 1, event=event, **details, examples=examples)


def _stop(run: RunState, step: int, count: int, found: dict[str, float]) -> NoReturn:
    kind, why = "non-finite", ""
    if run.trainer.config.train.spike_sigma is not None:
        kind = "bad (non-finite or loss spike)"
    if "loss_limit" in found:
        why = f", a spike above {found['loss_limit']}"
    elif all(map(math.isfinite, found.values())):
        why = ", but the update is not finite"
    message = (
        f"step {step + 1}: {count} {kind} steps in a row (train.max_bad_steps): loss "
        f"{found['loss']}, gradient norm {found['grad_norm']}{why}. These steps were "
        f"skipped; the last good checkpoint is {run.saved.newest()}. Use a lower "
        "optimizer.learning_rate, optimizer.clip_norm or a longer warm-up, in another "
        "--workdir or with --fresh"
    )
    run.log.record("event", step + 1, event=f"stopped at {message}")
    raise BadNumbersError(message)
