"""Tests over whole tables: one test, which reports every row that fails."""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


def each_row(
    names: str | Sequence[str], rows: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test with each row of a table: `pytest.mark.parametrize` as a single test.

    For rows that take milliseconds: a test of its own takes ten more. Each row has a
    `tmp_path` and a `monkeypatch` of its own, and finds what is captured empty.

    Args:
      names: Arguments of the test that a row gives, one or several.
      rows: Their values; of several names, tuples of values.

    Returns:
      The decorator, whose test raises what all failing rows have raised as one group,
      and is skipped if a row is and none fails.
    """
    single = isinstance(names, str)
    arguments = [names] if isinstance(names, str) else [*names]
    table = [[row] if single else list(row) for row in rows]

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def test(**fixtures: Any) -> None:
            failures, skipped = [], []
            for number, row in enumerate(table):
                given = dict(zip(arguments, row, strict=True))
                try:
                    with _of_the_row(number, fixtures) as own:
                        function(**given, **own)
                except pytest.skip.Exception as error:
                    skipped.append(error)
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(f"row {number}: {given!r}"[:500])
                    failures.append(error)
            if failures:
                told = f"{len(failures)} of {len(table)} rows fail"
                raise BaseExceptionGroup(told, failures)
            if skipped:
                raise skipped[0]

        signature = inspect.signature(function)
        others = [p for p in signature.parameters.values() if p.name not in arguments]
        test.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return test

    assert table
    return decorate


@contextmanager
def _of_the_row(number: int, fixtures: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Make the fixtures of one row of those of the test."""
    own = dict(fixtures)
    with pytest.MonkeyPatch.context() as patch:
        if "monkeypatch" in own:
            own["monkeypatch"] = patch
        if "tmp_path" in own:
            folder: Path = own["tmp_path"]
            own["tmp_path"] = folder / f"row{number}"
            own["tmp_path"].mkdir()
        for name in {"capsys", "capfd"} & own.keys():
            own[name].readouterr()
        if "caplog" in own:
            own["caplog"].clear()
        yield own
