"""A default test that takes seconds of CPU time fails, with what to do."""

import pytest

from tests.helpers import cpu_limit
from tests.helpers.cpu_limit import CpuLimit


def test_the_limit_grows_with_the_slowness_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
):
    measured = [1.0, 1.0, 3.0]
    monkeypatch.setattr(cpu_limit, "slowness", lambda: measured.pop(0))
    limit = CpuLimit(2.0)
    assert limit.refusal(1.9) == ""
    told = limit.refusal(4.04)
    assert told.startswith("4.0 s of CPU, of 2.0 s for a default test: mark it slow, ")
    assert cpu_limit.VARIABLE in told and "\n" not in told
    # The machine has become slower meanwhile, and is measured only then.
    assert limit.refusal(4.04) == limit.refusal(5.9) == "" and not measured


def test_no_machine_is_faster_than_the_reference(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cpu_limit, "REFERENCE", 100.0)
    assert cpu_limit.slowness() == 1
    monkeypatch.setattr(cpu_limit, "REFERENCE", 1e-9)
    assert cpu_limit.slowness() > 1
