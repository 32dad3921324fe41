"""What stands out among the figures of a run, and what is told of it."""

import pytest

from jaxtrain.config import Config, DataConfig
from jaxtrain.trainer.advice import RULES, advise
from jaxtrain.trainer.clock import ACTIVITIES

FP32, BF16 = Config(), Config(precision="bf16")
QUIET = {**dict.fromkeys(ACTIVITIES, 1.0), "step": 1000.0}


def test_nothing_is_told_where_nothing_stands_out():
    assert advise(QUIET, None, FP32) == advise(QUIET, 0.4, FP32) == []
    assert advise({}, None, FP32) == []
    # A run of seconds is over before anything helps.
    assert advise({**QUIET, "step": 1.0}, None, FP32) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.activity)
def test_each_activity_stands_out_above_its_share(rule):
    assert rule.activity in ACTIVITIES
    for share, stands_out in ((rule.above - 0.01, False), (rule.above + 0.01, True)):
        seconds = {rule.activity: 1000 * share, "step": 1000 * (1 - share)}
        told = advise(seconds, None, FP32)
        assert bool(told) is stands_out
        assert all(rule.text in line and f"{share:.0%}" in line for line in told)


def test_the_largest_comes_first():
    told = advise({**QUIET, "data_wait": 500.0, "checkpoint": 800.0}, None, FP32)
    assert [line.partition(",")[0] for line in told] == [
        "checkpoints",
        "waiting for data",
    ]


def test_slow_steps_are_told_where_they_are_the_run():
    (told,) = advise(QUIET, 0.05, FP32)
    assert "5% of the device's peak" in told and "bf16" in told
    (told,) = advise(QUIET, 0.05, BF16)
    assert "bf16" not in told
    (told,) = advise({**QUIET, "data_wait": 5000.0}, 0.05, BF16)
    assert told.startswith("waiting for data")
    # ResNet-50 in bfloat16 on an H100, whose memory bandwidth bounds it.
    assert not advise(QUIET, 0.138, BF16)


@pytest.mark.plugins
def test_advice_on_an_option_is_given_where_it_helps():
    seconds = {**dict.fromkeys(ACTIVITIES, 100.0), "compile": 600.0, "setup": 600.0}
    digits, folder = DataConfig(), DataConfig(source="folder:photos")
    growing = DataConfig(progressive_sizes=(16, 32), image_size=32)
    for data, words in (
        (digits, set()),
        (folder, {"data --pack"}),
        (growing, {"data.progressive_sizes"}),
    ):
        told = " ".join(advise(seconds, None, Config(data=data)))
        optional = ("data --pack", "data.progressive_sizes")
        assert {word for word in optional if word in told} == words
