"""The table of metric writers, and writers of the user's own."""

import sys
from pathlib import Path
from typing import Any

import pytest

from jaxtrain import own
from jaxtrain.config import LoggingConfig
from jaxtrain.errors import UntrustedError, UserError
from jaxtrain.records import writers
from jaxtrain.records.run_log import RunLog
from jaxtrain.records.writer import ConfiguredWriter, LoggedRun, MetricWriter
from tests.helpers.logged import logged_run

CODE = """
from jaxtrain.records.writer import MetricWriter


class Faulty(MetricWriter):
    def __init__(self, run):
        self.records = run.config.logging.options

    def write(self, kind, step, values):
        raise ConnectionError(f"step {step}")


class Late(MetricWriter):
    def __init__(self, run):
        raise ConnectionError("refused")


def nothing(run):
    return None
"""


@pytest.fixture
def refer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return what refers to a writer of a file that the user has named."""
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.delitem(sys.modules, "my_writers", raising=False)
    file = tmp_path / "my_writers.py"
    file.write_text(CODE)

    def refer(name: str, *, allow: bool = True) -> LoggingConfig:
        reference = f"{file}:{name}"
        if allow:
            own.allow([reference])
        return LoggingConfig(writers=(reference,))

    with own.allowing_nothing():
        yield refer


class Recorder(MetricWriter):
    """Notes what is called."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def write(self, kind: str, step: int, values: dict[str, Any]) -> None:
        self.calls.append((kind, step, values))

    def close(self) -> None:
        self.calls.append("close")


def test_a_row_of_the_table_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    recorder = Recorder()

    class Row(ConfiguredWriter):
        def __new__(cls, run: LoggedRun) -> Any:
            return recorder

    rows = {**writers.WRITERS, "recorder": Row}
    monkeypatch.setattr(writers, "WRITERS", rows)
    log = RunLog(logged_run(tmp_path), lambda: 1.5)
    log.write("train", 2, loss=1.0, examples_per_second=1.0)
    log.finish({"step": 2})
    log.close()
    values = {
        "epoch": 0.5,
        "wall_seconds": 1.5,
        "loss": 1.0,
        "examples_per_second": 1.0,
    }
    assert recorder.calls == [("train", 2, values), "close"]


def test_failures_of_a_writer_are_one_warning(
    tmp_path: Path, refer, capsys: pytest.CaptureFixture[str]
):
    log = RunLog(logged_run(tmp_path, logging=refer("Faulty")), lambda: 1.5)
    for step in (1, 2):
        log.write("train", step, loss=1.0, examples_per_second=1.0)
    log.close()
    warning = capsys.readouterr().err
    assert "Faulty': a record was not written (ConnectionError: step 1)" in warning
    assert "step 2" not in warning
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Late", "does not start (ConnectionError: refused)"),
        (
            "nothing",
            "returned None: return a jaxtrain.records.writer.MetricWriter",
        ),
    ],
)
def test_a_writer_that_does_not_start_closes_the_others(
    name: str, message: str, tmp_path: Path, refer, monkeypatch: pytest.MonkeyPatch
):
    recorder = Recorder()
    monkeypatch.setattr(writers, "_build_own", _first(recorder, writers._build_own))
    config = refer(name)
    config = LoggingConfig(writers=("first.py:one", *config.writers))
    with pytest.raises(UserError) as error:
        writers.build(logged_run(tmp_path, logging=config))
    assert message in str(error.value)
    assert recorder.calls == ["close"]


def _first(recorder: Recorder, build: Any) -> Any:
    return lambda run, name: recorder if name == "first.py:one" else build(run, name)


def test_a_writer_that_only_a_saved_config_names_is_not_loaded(refer):
    with pytest.raises(UntrustedError, match="is custom code named only by"):
        writers.check(refer("Faulty", allow=False))
    assert "my_writers" not in sys.modules
