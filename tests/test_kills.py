"""Killed at random moments, a run ends as one that was left alone."""

import pytest

from benchmarks.kills import kill_again_and_again
from tests.helpers.processes import Cli


@pytest.mark.slow
def test_twenty_kills_change_nothing(cli: Cli):
    result = kill_again_and_again(
        cli.directory, 20, seed=1, start=lambda words, env: cli.start(*words, **env)
    )
    # Of twenty, some were killed after 20 steps: ten of them were saved.
    assert result["steps"] > 50
    assert result["arrays_equal"] > 20
