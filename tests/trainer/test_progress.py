"""The best evaluation and early stopping, on the host; and the speed that is told."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from jaxtrain.cli import main
from jaxtrain.processes.signals import Grace
from jaxtrain.tasks.metrics import Goal
from jaxtrain.trainer import train as train_lib, trainer as trainer_lib
from jaxtrain.trainer.best_checkpoint import BestCheckpoint
from jaxtrain.trainer.callback import Evaluation
from jaxtrain.trainer.calls import CallQueue
from jaxtrain.trainer.clock import Clock
from jaxtrain.trainer.early_stopping import EarlyStopping, reconsider
from jaxtrain.trainer.programs import Programs
from jaxtrain.trainer.progress import Progress
from jaxtrain.trainer.run_data import RunData
from jaxtrain.trainer.setup import Setup
from jaxtrain.training.calls_ahead import MAX_IN_FLIGHT
from tests.helpers.recipes import recipe
from tests.helpers.rows import each_row
from tests.helpers.runs import assert_same_run


def run(
    metric: str,
    values: list[float],
    patience: int | None,
    progress: Progress | None = None,
) -> Progress:
    """Show evaluations to the callbacks until the run would stop."""
    goal = Goal(metric, higher=metric != "loss")
    train = SimpleNamespace(early_stop_patience=patience)
    config = SimpleNamespace(train=train, checkpoint=SimpleNamespace(keep_best=0))
    timetable = SimpleNamespace(ranked_from=0, epoch=lambda step: step / 2)
    trainer = SimpleNamespace(
        best=goal, watched=goal, config=config, timetable=timetable
    )
    log = SimpleNamespace(write=lambda *args, **values: None)
    progress = progress or Progress()
    state: Any = SimpleNamespace(trainer=trainer, progress=progress, log=log)
    first = progress.evaluated_step + 1
    for i, value in enumerate(values, start=first):
        progress.evaluated_step = i
        for callback in (BestCheckpoint(), EarlyStopping()):
            callback.on_eval(state, Evaluation("validation", i, {metric: value}))
        if progress.stopped_early:
            break
    return progress


@each_row(
    ("metric", "values", "stop", "best"),
    [
        # An equal one is the best from then on, and no improvement.
        ("accuracy", [0.1, 0.3, 0.2, 0.3, 0.9], 4, 4),
        ("accuracy", [0.1, 0.3, 0.2, 0.4, 0.3, 0.35], 6, 4),
        ("loss", [2.0, 1.0, 1.5, 0.5, 0.7, 0.6], 6, 4),
        ("loss", [1.0, float("nan"), float("nan"), 0.1], 3, 1),
        ("loss", [float("nan"), 1.0, 1.0, 2.0, 0.1], 4, 3),
    ],
)
def test_stops_after_patience_evaluations_without_improvement(
    metric: str, values: list[float], stop: int, best: int
):
    progress = run(metric, values, patience=2)
    assert (progress.stopped_early, progress.evaluated_step) == (True, stop)
    assert progress.best is not None
    assert (progress.best["step"], progress.best["value"]) == (best, values[best - 1])


def test_patience_and_what_is_watched_may_change():
    progress = run("loss", [1.0, 2.0, 3.0], patience=2)
    assert progress.stopped_early
    for patience, goes_on in ((2, False), (1, False), (3, True), (None, True)):
        again = dataclasses.replace(progress)
        reconsider(again, patience)
        assert again.stopped_early is not goes_on
    reconsider(progress, 3)
    values = [0.5, 0.4, 0.4, 0.4, 0.9]
    assert run("accuracy", values, 3, progress).stopped_early
    assert progress.evaluated_step == 7  # Counted from the first of the new metric.


# --- speed ---------------------------------------------------------------------------


class FakeDevice:
    """Carries out one call after the other, each in some seconds of a clock of ours."""

    def __init__(self, seconds: float):
        self.seconds, self.now, self.free_at = seconds, 0.0, 0.0

    def call(self, num_steps: int) -> dict[str, Any]:
        self.free_at = max(self.now, self.free_at) + self.seconds * num_steps
        return {"bad_steps": FakeArray(self, self.free_at, (num_steps,))}


@dataclasses.dataclass
class FakeArray:
    device: FakeDevice
    ready_at: float
    shape: tuple[int, ...]

    def is_ready(self) -> bool:
        return self.device.now >= self.ready_at

    def block_until_ready(self) -> None:
        self.device.now = max(self.device.now, self.ready_at)


@each_row("stalled", [False, True])
@each_row("host_seconds", [0.1, 0.9, 1.1, 3.0])
def test_lines_tell_the_speed_of_the_steps(host_seconds: float, stalled: bool):
    """Lines every 5 steps, an evaluation every 20: whether host or device is slower."""
    device = FakeDevice(seconds=1.0)
    clock = Clock(now=lambda: device.now)
    clock.switch("step")
    calls = CallQueue(clock.step_seconds)
    speeds = []

    def drain(in_flight: int) -> None:
        calls.look()
        while len(calls) > in_flight:
            call = calls.pop()
            if call.stop % 5 == 0:
                speeds.append(clock.speed(5, call.finished))

    for step in range(100):
        if step % 20 == 0:
            drain(0)
            with clock.timing("evaluation"):
                device.now += 1000.0
        device.now += host_seconds
        calls.add(step, device.call(1))
        if stalled and step == 47:  # The host sees nothing for 6 steps.
            device.now += 6.0
        drain(MAX_IN_FLIGHT)
    drain(0)
    steady = 1 / max(host_seconds, device.seconds)
    assert len(speeds) == 20
    assert max(speeds) < 1.3 * steady
    assert sorted(speeds)[2 * stalled] > steady / 1.3
    assert 100 / sum(5 / speed for speed in speeds) == pytest.approx(
        100 / clock.step_seconds()
    )


@each_row(
    ("seconds", "num_steps", "most_calls", "most_seconds"),
    [
        (0.001, 1, 8, 0.1),
        (0.3, 1, 3, 1.0),
        (0.3, 8, 1, 2.5),
        (4.0, 1, 1, 4.0),
        (6.0, 1, 0, 0.0),
        (60.0, 1, 0, 0.0),
        (1.0, 8, 0, 0.0),
    ],
)
def test_slow_calls_are_few_in_flight(
    seconds: float, num_steps: int, most_calls: int, most_seconds: float
):
    """What the device still has to do when the loop looks for a signal."""
    device = FakeDevice(seconds)
    calls = CallQueue(lambda: device.now)
    for i in range(20):
        device.now += 0.0001
        calls.add(i * num_steps, device.call(num_steps))
        calls.look()
        calls.wait(calls.most())
        while len(calls) > calls.most():
            calls.pop()
        if i:  # The first is not measured before the second is sent.
            assert device.free_at - device.now <= most_seconds + 0.01
    assert len(calls) == most_calls


class CountedProgram:
    """A program that is done when its call returns, after one tick of the clock."""

    def __init__(self, program: Any):
        self.program, self.ticks = program, 0

    def __call__(self, *arguments: Any) -> Any:
        result = jax.block_until_ready(self.program(*arguments))
        self.ticks += 1
        return result

    seconds, compiling = 0.0, False


@pytest.mark.slow
def test_the_loop_tells_the_speed_of_the_steps(
    write_config: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    programs = []

    def make_programs(setup: Setup, run_data: RunData) -> Programs:
        made = original(setup, run_data)
        ((start, program),) = made.train
        programs.append(CountedProgram(program))
        return dataclasses.replace(made, train=((start, programs[0]),))

    def make_clock(began: float | None) -> Clock:
        def ticks() -> float:
            return programs[0].ticks if programs else 0.0

        return Clock(compile_seconds=lambda: 0.0, now=ticks)

    calls: list[float] = []

    def tell(grace: Grace, seconds: float) -> None:
        calls.append(seconds)
        # The thread that waits for signals may still read it once the patch is undone.
        vars(grace)["call_seconds"] = seconds

    told = property(lambda grace: 0.0, tell)
    monkeypatch.setattr(Grace, "call_seconds", told, raising=False)
    original = trainer_lib.make_programs
    monkeypatch.setattr(trainer_lib, "make_programs", make_programs)
    monkeypatch.setattr(train_lib, "Clock", make_clock)
    config = write_config(
        recipe(
            train="TrainConfig(steps=40, eval_every_steps=20)",
            checkpoint="CheckpointConfig(every_steps=30)",
            logging="LoggingConfig(every_steps=5)",
        )
    )
    assert main(["--config", str(config), "--workdir", str(tmp_path / "run")]) == 0
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    speeds = [r["examples_per_second"] for r in records if r["kind"] == "train"]
    np.testing.assert_allclose(speeds, [64.0] * 8)  # A batch a tick.
    assert calls[-1] == 1.0  # So long a stop must wait before it can save.


@pytest.mark.slow
def test_calls_in_flight_do_not_change_a_run(
    write_config: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = write_config(recipe(train="TrainConfig(steps=40, eval_every_steps=25)"))
    for most in (0, MAX_IN_FLIGHT):
        monkeypatch.setattr(CallQueue, "most", lambda self, most=most: most)
        workdir = tmp_path / str(most)
        assert main(["--config", str(config), "--workdir", str(workdir)]) == 0
    assert_same_run(tmp_path / "0", tmp_path / str(MAX_IN_FLIGHT), 40)
