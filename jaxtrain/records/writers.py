"""Metric writers: JSON lines, writers of plug-ins, and custom writers.

To add a writer, subclass `ConfiguredWriter` in a plug-in, list the class in the
plug-in's `writers`, and add a field to `LoggingConfig` that enables it.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from jaxtrain import own
from jaxtrain.config import LoggingConfig
from jaxtrain.console import print_stderr
from jaxtrain.errors import UserError
from jaxtrain.plugin import Table
from jaxtrain.records.writer import ConfiguredWriter, LoggedRun, MetricWriter
from jaxtrain.registry import call_own, check_call
from jaxtrain.tasks.base import Values

OWN = "logging.writers"


WRITERS: Table[type[ConfiguredWriter]] = Table(
    "writers", {"json_lines": "jaxtrain.records.metrics_file:JsonLinesWriter"}
)


def check(config: LoggingConfig) -> None:
    """Check the enabled writers before the run starts.

    Raises:
      UserError: A library is missing, or a custom writer is missing or does not accept
        its options.
    """
    for writer in _enabled(config):
        writer.check(config)
    for name in config.writers:
        if not own.is_own(name):
            raise UserError(f"{OWN} = {name!r}: expected {own.FORMS}")
        check_call(OWN, name, own.load(OWN, name), None, **config.options)


def build(run: LoggedRun) -> list[MetricWriter]:
    """Create the enabled writers.

    Raises:
      UserError: The creation of a writer failed; the other writers are closed.
    """
    config = run.config.logging
    own_parts = [functools.partial(_build_own, name=name) for name in config.writers]
    enabled = [functools.partial(_build_row, row=row) for row in _enabled(config)]
    with contextlib.ExitStack() as started:
        writers = [
            started.enter_context(contextlib.closing(make(run)))
            for make in (*own_parts, *enabled)
        ]
        started.pop_all()
    return writers


def _enabled(config: LoggingConfig) -> list[type[ConfiguredWriter]]:
    enabled = [row for row in WRITERS.values() if row.enabled(config)]
    # Create writers that may fail, such as W&B, before other writers open files.
    return sorted(enabled, key=lambda row: row.may_fail is None)


def _build_row(run: LoggedRun, row: type[ConfiguredWriter]) -> MetricWriter:
    writer = row(run)
    return writer if row.may_fail is None else Guarded(row.may_fail, writer)


def _build_own(run: LoggedRun, name: str) -> MetricWriter:
    options = run.config.logging.options
    part = own.load(OWN, name)
    try:
        writer = call_own(OWN, name, part, run, **options)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"{OWN} = {name!r} does not start ({type(error).__name__}: {error}): fix "
            "the writer, or leave the writer out"
        ) from error
    if not isinstance(writer, MetricWriter):
        raise UserError(
            f"{OWN} = {name!r} returned {writer!r}: return a "
            "jaxtrain.records.writer.MetricWriter"
        )
    return Guarded(f"{OWN} = {name!r}", writer)


class Guarded(MetricWriter):
    """Wrapper of a writer; warns about the first exception, and ignores later ones."""

    def __init__(self, field: str, writer: MetricWriter):
        self._field, self._writer, self._warned = field, writer, False

    def write(self, kind: str, step: int, values: Values) -> None:
        self._attempt(self._writer.write, kind, step, values)

    def finish(self, summary: dict[str, Any]) -> None:
        self._attempt(self._writer.finish, summary)

    def close(self) -> None:
        self._attempt(self._writer.close)

    def _attempt(self, method: Callable[..., None], *args: Any) -> None:
        try:
            method(*args)
        except Exception as error:
            if not self._warned:
                reason = f"{type(error).__name__}: {error}"
                print_stderr(
                    f"warning: {self._field}: a record was not written ({reason}); the "
                    "run continues and writes later records if possible"
                )
            self._warned = True
