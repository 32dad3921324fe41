"""Messages between real processes, in threads beside the training."""

import pytest

from tests.helpers.processes import Cli, two
from tests.helpers.waiting import PATIENCE

# Process 1 sends one message late, and none of the other.
PROGRAM = """
import sys, threading, time
import jax
from jaxtrain.errors import StartAgainError
from jaxtrain.processes import distributed, messages

words = sys.argv[1:]
at = {words[i]: words[i + 1] for i in range(0, len(words), 2)}
index = int(at["--process-id"])
distributed.start(distributed.find(at["--coordinator"], 2, index), 60.0, 30.0)
if index == 1:
    time.sleep(2.5)
    messages.send("late", {"errno": None, "reason": "x" * 10_000})
else:
    print(len(messages.receive("late", lambda: False)["reason"]))
    begun = time.monotonic()
    try:
        messages.receive("never", lambda: time.monotonic() > begun + 1.5)
    except StartAgainError as error:
        print(error)
jax.distributed.shutdown()
"""


@pytest.mark.slow
def test_a_late_message_is_awaited_and_a_lost_one_given_up(cli: Cli):
    both = [cli.start(*words, program=PROGRAM) for words in two()]
    outputs = [process.communicate(timeout=PATIENCE) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    length, reason = outputs[0][0].splitlines()[-2:]
    assert length == "10000"
    assert reason.startswith("lost connection to another process during a save")
