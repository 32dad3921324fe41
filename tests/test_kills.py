"""Killed at random moments, a run ends as one that was left alone."""

from pathlib import Path

import pytest

from benchmarks.kills import kill_again_and_again


@pytest.mark.slow
def test_twenty_kills_change_nothing(tmp_path: Path):
    result = kill_again_and_again(tmp_path, 20, seed=1)
    assert result["steps"] > 50  # Half of what a loaded machine comes to.
    assert result["arrays_equal"] > 20
    assert result["seconds_to_first_step"]["max"] <= 30
