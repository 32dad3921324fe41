"""How messages are worded."""

import re
from pathlib import Path

import pytest

from jaxtrain.errors import counted
from tests.helpers.processes import ROOT

OPEN_PLURAL = r"\b[a-z]+\((?:s|es)\)(?=[ ,;:.\"'{])"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((1, "step"), "1 step"),
        ((0, "step"), "0 steps"),
        ((1200, "device"), "1,200 devices"),
        ((1, "process", "processes"), "1 process"),
        ((2, "process", "processes"), "2 processes"),
    ],
)
def test_numbers_with_their_nouns(words: tuple, expected: str):
    assert counted(*words) == expected


def test_no_message_leaves_the_plural_open():
    """As in `1 process(es)`: see `counted`."""
    sources: list[Path] = sorted((ROOT / "jaxtrain").rglob("*.py"))
    assert len(sources) > 300
    found = [
        f"{path.relative_to(ROOT)}: {match}"
        for path in sources
        for match in re.findall(OPEN_PLURAL, path.read_text())
        if match not in ("len(s)", "str(s)", "set(s)")
    ]
    assert found == []
