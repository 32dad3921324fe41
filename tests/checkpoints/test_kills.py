"""Killed at random moments, a run ends as one that was left alone."""

import pytest

from benchmarks.kills import kill_again_and_again
from tests.helpers.processes import Cli


@pytest.mark.exhaustive
def test_three_kills_change_nothing(cli: Cli):
    result = kill_again_and_again(
        cli.directory, 3, seed=1, start=lambda words, env: cli.start(*words, **env)
    )
    # One was killed after 20 steps: ten of them were saved.
    assert result["steps"] >= 30
    assert result["arrays_equal"] > 20
