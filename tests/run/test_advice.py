"""What stands out among the figures of a run, and what is told of it."""

import pytest

from jaxtrain.run.advice import RULES, advise
from jaxtrain.run.clock import ACCOUNTS

QUIET = {**dict.fromkeys(ACCOUNTS, 1.0), "step": 1000.0}


def test_nothing_is_told_where_nothing_stands_out():
    assert advise(QUIET, None, "fp32") == advise(QUIET, 0.4, "fp32") == []
    assert advise({}, None, "fp32") == []
    # A run of seconds is over before anything helps.
    assert advise({**QUIET, "step": 1.0}, None, "fp32") == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.account)
def test_each_account_stands_out_above_its_share(rule):
    assert rule.account in ACCOUNTS
    for share, stands_out in ((rule.above - 0.01, False), (rule.above + 0.01, True)):
        seconds = {rule.account: 1000 * share, "step": 1000 * (1 - share)}
        told = advise(seconds, None, "fp32")
        assert bool(told) is stands_out
        assert all(rule.text in line and f"{share:.0%}" in line for line in told)


def test_the_largest_comes_first():
    told = advise({**QUIET, "data_wait": 500.0, "checkpoint": 800.0}, None, "fp32")
    assert [line.partition(",")[0] for line in told] == [
        "checkpoints",
        "waiting for data",
    ]


def test_slow_steps_are_told_where_they_are_the_run():
    (told,) = advise(QUIET, 0.1, "fp32")
    assert "10% of the device's peak" in told and "bf16" in told
    (told,) = advise(QUIET, 0.1, "bf16")
    assert "bf16" not in told
    (told,) = advise({**QUIET, "data_wait": 5000.0}, 0.1, "bf16")
    assert told.startswith("waiting for data")
