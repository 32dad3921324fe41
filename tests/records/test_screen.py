"""What a run shows while it trains: the bar, the time left, and the lines that stay."""

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
import rich.console

from jaxtrain import starting
from jaxtrain.records import progress_bar
from jaxtrain.records.metrics_file import read_evaluations
from jaxtrain.records.progress_bar import Remaining, duration
from jaxtrain.records.run_log import Interval
from jaxtrain.records.screen import FIRST_STEP, QUIET_SECONDS, Screen
from tests.helpers.rows import each_row
from tests.helpers.waiting import wait_until


class Shown:
    """A screen of 100 steps in 10 epochs, its output, and its clock."""

    def __init__(
        self, *, terminal: bool, step: int = 0, width: int = 110, **options: Any
    ):
        self.now, self.output = 0.0, io.StringIO()
        console = rich.console.Console(
            file=self.output, force_terminal=terminal, width=width, color_system=None
        )
        self.screen = Screen(
            step,
            100,
            lambda step: step / 10,
            ("loss", "accuracy"),
            console=console,
            seconds=lambda: self.now,
            **options,
        )

    def steps(self, start: int, stop: int, seconds: float) -> None:
        for step in range(start + 1, stop + 1):
            self.now += seconds
            self.screen.done(step)

    @property
    def lines(self) -> list[str]:
        """What is printed after the line of the beginning."""
        first, *lines = self.output.getvalue().splitlines()
        assert first == FIRST_STEP or self.screen.wants_loss
        return lines


@pytest.fixture(autouse=True)
def refreshed_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_bar, "EVERY_SECONDS", 0.05)


@pytest.fixture
def bar() -> Iterator[Shown]:
    shown = Shown(terminal=True)
    yield shown
    shown.screen.close()


def test_the_bar_moves_while_the_loop_waits(bar: Shown):
    wait_until(lambda: "compiling, first step 0:00:00" in bar.output.getvalue())
    bar.now = 83.0
    wait_until(lambda: "compiling, first step 0:01:23" in bar.output.getvalue())


def test_the_bar_shows_each_step_and_the_time_left(bar: Shown):
    """Though no line of metrics came, and each step takes longer than half a minute."""
    bar.steps(0, 3, seconds=40.0)
    wait_until(lambda: " 3/100 " in bar.output.getvalue())
    wait_until(lambda: "1:04:40 left" in bar.output.getvalue())
    bar.now += 30.0
    wait_until(lambda: "1:04:10 left" in bar.output.getvalue())


@pytest.mark.parametrize("start", [0, 60])
def test_train_and_validation_loss_stay_side_by_side(start: int):
    """Of a run that was resumed, too."""
    shown = Shown(terminal=False, step=start)
    shown.now += 30.0  # To compile is no part of an epoch.
    shown.steps(start, start + 10, seconds=2.0)
    shown.screen.trained(0.51234)
    values = {"split": "validation", "loss": 0.7, "accuracy": 0.75, "confusion": [[1]]}
    shown.screen.write("eval", start + 10, values)
    step = start + 10
    assert shown.lines == [
        f"epoch {step / 10:.2f}  step {step}/100  train: loss 0.5123  "
        "validation: loss 0.7000 accuracy 0.7500  20.0 s an epoch"
    ]


def test_lines_fit_the_columns():
    shown = Shown(terminal=False, width=80)
    shown.steps(0, 10, seconds=2.0)
    shown.screen.trained(0.51234)
    values = {"split": "validation", "loss": 0.7, "accuracy": 0.75}
    shown.screen.write("eval", 10, values)
    assert shown.lines == [
        "epoch 1.00  step 10/100  train: loss 0.5123",
        "  validation: loss 0.7000 accuracy 0.7500  20.0 s an epoch",
    ]


def test_the_bar_has_a_loss_before_the_first_line_of_metrics(bar: Shown):
    bar.steps(0, 1, seconds=1.0)
    assert bar.screen.wants_loss
    bar.screen.first_loss(2.30259)
    wait_until(lambda: "epoch 0.1  loss 2.3026" in bar.output.getvalue())
    values = {"loss": 1.5, "examples_per_second": 8.0}
    bar.screen.write("train", 1, values)
    wait_until(lambda: "epoch 0.1  loss 1.5000  8 images/s" in bar.output.getvalue())
    assert not bar.screen.wants_loss


def test_the_time_so_far_is_that_of_all_starts():
    shown = Shown(terminal=True, step=20, earlier_seconds=3600.0)
    shown.now += 5.0
    wait_until(lambda: "1:00:05 so far" in shown.output.getvalue())
    shown.screen.close()


def test_time_left_counts_evaluations():
    """Of three batches each after steps 50 and 100, and a test of six."""
    now = 0.0
    after = {True: 12.0, False: 9.0}
    remaining = Remaining(0, 100, lambda: now, lambda step: after[step < 50])
    for step in range(1, 41):
        now += 1.0
        remaining.done(step)
    assert remaining.left() == pytest.approx(60 + 12 / 3)  # By a forward pass.
    for step in range(41, 51):
        now += 1.0
        remaining.done(step)
    now += 36.0  # 30 s to compile, and 2 s a batch.
    remaining.evaluated(3.0, 6.0, 36.0)
    assert remaining.step_seconds() == pytest.approx(1.0)
    assert remaining.left() == pytest.approx(50 + 9 * 2)
    now += 1.0
    remaining.done(51)
    assert remaining.step_seconds() == pytest.approx(1.0)


def write_run(path: Path, num_epochs: int) -> None:
    """Write the metrics of a run of 10 steps an epoch, with two lines of each."""
    lines = []
    for step in range(10, 10 * num_epochs + 1, 10):
        lines += [{"kind": "train", "step": step - 5, "loss": 2.0 + 2 / step}]
        lines += [{"kind": "train", "step": step, "loss": 2.0}]
        evaluation = {"split": "validation", "loss": 3.0 + step, "accuracy": 0.5}
        lines += [{"kind": "eval", "step": step, **evaluation}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_resumed_run_shows_the_evaluations_of_before(tmp_path: Path, bar: Shown):
    path = tmp_path / "metrics.jsonl"
    write_run(path, 2)
    bar.screen.earlier(lambda: read_evaluations(path))
    bar.screen.write("event", 20, {"event": "resumed"})
    lines = [line for line in bar.lines if "so far (" in line or "  step " in line]
    assert [line.rpartition("\x1b")[2].partition("K")[2] or line for line in lines] == [
        "2 evaluations so far (metrics.jsonl):",
        "epoch 1.00  step 10/100  train: loss 2.1000  "
        "validation: loss 13.0000 accuracy 0.5000",
        "epoch 2.00  step 20/100  train: loss 2.0500  "
        "validation: loss 23.0000 accuracy 0.5000",
        "epoch 2.00  step 20/100  resumed",
    ]


def test_of_many_evaluations_the_last_are_shown(tmp_path: Path, bar: Shown):
    path = tmp_path / "metrics.jsonl"
    write_run(path, 13)
    bar.screen.earlier(lambda: read_evaluations(path))
    text = bar.output.getvalue()
    assert "13 evaluations so far (metrics.jsonl); the last 10:" in text
    assert text.count("validation:") == 10
    assert "step 30/100" not in text and "step 40/100" in text


def test_without_a_terminal_nothing_of_before_is_shown_again():
    shown = Shown(terminal=False, step=20)
    shown.screen.earlier(lambda: pytest.fail("it was read"))
    assert shown.lines == []


def test_odd_lines_of_before_are_left_out(tmp_path: Path, bar: Shown):
    path = tmp_path / "metrics.jsonl"
    bar.screen.earlier(lambda: read_evaluations(path))
    odd = [{"split": 3}, {}, {"split": "validation", "loss": None, "accuracy": []}]
    lines = [json.dumps({"kind": "eval", "step": 10, **values}) for values in odd]
    path.write_text("\n".join(["{", *lines]))
    bar.screen.earlier(lambda: read_evaluations(path))
    assert "1 evaluation so far" in bar.output.getvalue()
    assert "step 10/100  validation:" in bar.output.getvalue()


def test_without_a_terminal_a_slow_run_tells_how_far_it_is():
    shown = Shown(terminal=False)
    shown.steps(0, 5, seconds=1.0)
    assert shown.lines == []
    shown.steps(5, 8, seconds=QUIET_SECONDS / 2)
    assert [line.split("  ")[:2] for line in shown.lines] == [
        ["epoch 0.70", "step 7/100"]
    ]
    assert shown.lines[0].endswith(" left")


def test_events_are_told_without_the_word():
    shown = Shown(terminal=False)
    shown.screen.write("event", 20, {"event": "resumed"})
    shown.screen.write(
        "event", 30, {"event": "bad step", "loss": "nan", "examples": []}
    )
    assert shown.lines == [
        "epoch 2.00  step 20/100  resumed",
        "epoch 3.00  step 30/100  bad step  loss nan",
    ]


def test_time_left_follows_the_steps():
    now = 0.0
    remaining = Remaining(20, 1000, lambda: now)
    assert (remaining.left(), remaining.started) == (None, False)
    now = 300.0  # Compilation.
    remaining.done(21)
    assert (remaining.left(), remaining.started) == (None, True)
    for step in range(22, 501):
        now += 1.0
        remaining.done(step)
    assert remaining.left() == pytest.approx(500)
    for step in range(501, 801):  # Four times slower from here on.
        now += 4.0
        remaining.done(step)
    assert remaining.left() == pytest.approx(800, rel=0.1)
    now += 1.0
    assert remaining.left() == pytest.approx(799, rel=0.1)
    before = remaining.left()
    now += 1000.0  # A step that hangs is no progress.
    assert before is not None
    assert remaining.left() == pytest.approx(before - 3, abs=0.5)


def test_durations():
    assert duration(None) == "-:--:--"
    assert [duration(s) for s in (0.4, 59.6, 3723)] == ["0:00:00", "0:01:00", "1:02:03"]


def test_losses_of_an_interval_leave_out_the_skipped():
    values = {"loss": [1.0, 2.0, float("nan"), 9.0], "skipped": [0.0, 0.0, 0.0, 1.0]}
    assert Interval(values).losses() == (3.0, 2)
    interval = Interval()
    assert interval.losses() == (0.0, 0)
    interval.add({"loss": jnp.float32([0.5]), "skipped": jnp.float32([0])})
    assert interval.losses() == (0.5, 1)


@each_row("terminal", [False, True])
def test_a_start_shows_its_parts(terminal: bool, monkeypatch: pytest.MonkeyPatch):
    output = io.StringIO()
    console = rich.console.Console(
        file=output, force_terminal=terminal, width=80, color_system=None
    )
    monkeypatch.setattr("rich.console.Console", lambda: console)
    starting.begin("not shown")
    with contextlib.redirect_stdout(output), starting.showing("loading JAX"):
        wait_until(lambda: "loading JAX" in output.getvalue())
        for _ in range(2):
            starting.begin("opening the data: folder:x\x1b")
        wait_until(lambda: "opening the data: folder:x\\x1b" in output.getvalue())
    starting.begin("not shown")
    if not terminal:
        assert output.getvalue() == "loading JAX\nopening the data: folder:x\\x1b\n"
    assert "not shown" not in output.getvalue()
