"""Callback that logs training and evaluation metrics."""

from typing import Any

import jax
import numpy as np

from jaxtrain.records.run_log import Interval
from jaxtrain.trainer.callback import Callback, Evaluation
from jaxtrain.trainer.calls import Call
from jaxtrain.trainer.run_state import RunState
from jaxtrain.trainer.telemetry import MachineSampler


class MetricLines(Callback):
    """Callback that logs metrics of steps and evaluations (see `RunLog`)."""

    def on_start(self, run: RunState) -> None:
        self._interval = Interval(run.progress.interval)
        self._machine = MachineSampler(run)
        # (sum of losses, number of losses) in all logged intervals, and in all steps
        # before the last call of `_mean_loss`.
        self._logged, self._counted = np.zeros(2), np.array(self._interval.losses())

    def on_metrics(self, run: RunState, call: Call) -> None:
        self._interval.add(call.metrics)
        if run.log.screen.wants_loss:
            losses = jax.device_get(call.metrics["loss"])
            run.log.screen.first_loss(float(losses[-1]))
        if call.stop % run.trainer.timetable.log_every_steps == 0:
            self._write(run, call.stop, call.finished)

    def on_eval_start(self, run: RunState, split: str) -> None:
        if split == "validation":
            run.log.screen.trained(self._mean_loss(run))

    def on_eval(self, run: RunState, evaluation: Evaluation) -> None:
        if evaluation.split == "test" and self._interval.values():
            # Log the last interval, which is incomplete.
            self._write(run, run.step, run.calls.finished)
        told: dict[str, Any] = {"split": evaluation.split, **evaluation.metrics}
        if evaluation.split == "test":
            told = {"split": "test", "model_step": evaluation.step, **told}
        run.log.write("eval", run.step, **told)

    def on_save(self, run: RunState) -> None:
        run.progress.interval = self._interval.values()

    def _mean_loss(self, run: RunState) -> float | None:
        """Mean loss of the steps since the last call; None without steps."""
        before, num_before = self._counted
        with run.clock.timing("other"):
            self._counted = total, num = np.add(self._logged, self._interval.losses())
        return (total - before) / (num - num_before) if num > num_before else None

    def _write(self, run: RunState, step: int, finished: float) -> None:
        interval, self._interval = self._interval, Interval()
        examples = interval.num_new * run.trainer.timetable.batch_size
        speed = run.clock.speed(examples, finished)
        run.log.write(
            "train",
            step,
            **interval.summary(),
            examples_per_second=speed,
            **self._machine.sample(step - 1, speed),
        )
        self._logged = self._logged + interval.losses()
