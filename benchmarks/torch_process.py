"""The process of the peer, which takes its turns when it is told to.

A process of its own: the threads of one library then sleep while the other works, and
PyTorch may live in another environment. It reads a line of JSON for each request and
answers with one.
"""

import json
import os
import sys
import time
from typing import Any


def main() -> None:
    # What libraries print goes beside the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(value: Any) -> None:
        print(json.dumps(value), file=answers, flush=True)

    try:
        import numpy  # noqa: F401
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        answer({"missing": str(error)})
        return
    import plain_torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    answer({"torch": torch.__version__})
    trainings: dict[str, plain_torch.Training] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "turn" in request:
            answer(turn(trainings[request["turn"]], request["steps"]))
        else:
            answer(begin(trainings, **request))


def begin(
    trainings: dict[str, Any], *, arrays: str, check_steps: int, **options: Any
) -> dict[str, Any]:
    """Add a training; return its first losses, and the norms of the gradients."""
    import numpy as np
    import plain_torch

    variant = options["variant"]
    if variant == "eager":
        trainings.clear()
    try:
        with np.load(arrays) as stored:
            training = plain_torch.Training(arrays=dict(stored), **options)
        found = [
            (training.step().item(), training.grad_norm()) for _ in range(check_steps)
        ]
    # What a compiler raises is of many kinds; the other variants go on.
    except Exception as error:
        if variant == "eager":
            raise
        lines = str(error).strip().splitlines()
        return {"failed": f"{type(error).__name__}: {lines[0] if lines else ''}"}
    trainings[variant] = training
    return {"found": found}


def turn(training: Any, steps: int) -> tuple[float, float]:
    """Take some steps; return their seconds, and those of the CPU."""
    wall, cpu, loss = time.perf_counter(), time.process_time(), None
    for _ in range(steps):
        loss = training.step()
    assert loss is not None
    loss.item()  # Waits for the device.
    return time.perf_counter() - wall, time.process_time() - cpu


if __name__ == "__main__":
    main()
