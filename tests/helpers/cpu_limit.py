"""Default tests that take too long fail: `make test` shall stay a matter of minutes.

What counts is CPU time, of this process and of its children that ended, and not the
time on the clock: other programs of a busy machine do not make a test fail. On a
machine that is slower than `REFERENCE` the limit is higher in proportion.
"""

import os
import time
from collections.abc import Generator

import numpy as np
import pytest

VARIABLE, SECONDS = "JAXTRAIN_TEST_CPU_SECONDS", 2.0
LONGER_TIERS = ("slow", "exhaustive", "gpu_compiler")
# CPU seconds of `workload` on the machine that the limit of 2 s is meant for.
REFERENCE = 0.05


def cpu_seconds() -> float:
    """CPU time of this process and of its children that it has waited for."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def workload() -> None:
    """A fixed amount of work, in Python and in NumPy, on one core."""
    total = 0
    for i in range(200_000):
        total += i % 7
    numbers = np.random.default_rng(0).random(200_000)
    for _ in range(4):
        numbers = np.sqrt(np.sort(numbers[::-1]) + 1)


def slowness() -> float:
    """How many times as long as on the reference machine this one takes, at least 1."""
    seconds = []
    for _ in range(3):
        start = time.process_time()
        workload()
        seconds.append(time.process_time() - start)
    return max(1.0, min(seconds) / REFERENCE)


class CpuLimit:
    """Plug-in of pytest: fails a default test whose call takes too much CPU time.

    Args:
      seconds: Limit on the reference machine.
    """

    def __init__(self, seconds: float):
        self.seconds, self.slowness = seconds, slowness()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        start = cpu_seconds()
        result = yield
        message = self.refusal(cpu_seconds() - start)
        if message and not any(map(item.get_closest_marker, LONGER_TIERS)):
            pytest.fail(message, pytrace=False)
        return result

    def refusal(self, seconds: float) -> str:
        """Return what is wrong with a test of so many seconds, or an empty text."""
        if seconds <= self.seconds * self.slowness:
            return ""
        # The machine may have become slower since: two cores may share one.
        self.slowness = max(self.slowness, slowness())
        limit = self.seconds * self.slowness
        if seconds <= limit:
            return ""
        return (
            f"{seconds:.1f} s of CPU, of {limit:.1f} s for a default test: mark it "
            "slow, or share what is costly in a fixture of the module or the session "
            f"({VARIABLE} raises the limit)"
        )


def from_environment() -> CpuLimit:
    return CpuLimit(max(SECONDS, float(os.environ.get(VARIABLE, SECONDS))))
