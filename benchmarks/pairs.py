"""Two things run in turn, and what their times say of each other."""

import statistics
from typing import Any

# The seconds of a turn, by the clock and of the CPU.
Seconds = tuple[float, float]


def compare(ours: list[Seconds], peer: list[Seconds], images: int) -> dict[str, Any]:
    """Return our speed over the peer's: of each pair, as that of the machine drifts.

    Args:
      ours: of our turns.
      peer: of the peer's, each after one of ours.
      images: of a turn.
    """
    pairs = list(zip(ours, peer, strict=True))
    ratios = sorted(theirs[0] / our[0] for our, theirs in pairs)
    quarter = len(ratios) // 4
    return {
        "ratio": statistics.median(ratios),
        "ratio_quartiles": [ratios[quarter], ratios[-1 - quarter]],
        "ratio_of_cpu_time": statistics.median(p[1] / o[1] for o, p in pairs),
        "ours": images / statistics.median(wall for wall, _ in ours),
        "peer": images / statistics.median(wall for wall, _ in peer),
        "unit": "images/s",
        "pairs": len(pairs),
    }
