"""Which checkpoint of a run is its model."""

from collections.abc import Mapping, Sequence
from typing import Any


def best_step(manifest: Mapping[str, Any], steps: Sequence[int]) -> int:
    """Return the step with the best validation, or the newest if there is none.

    The one rule for the final test of a run and for all commands that use its model.
    Without a validation split no step is the best; the checkpoint of the best step is
    gone if `checkpoint.keep_best` is 0, or after damage.

    Args:
      manifest: JSON that was saved with the newest step.
      steps: Committed steps, rising; at least one.
    """
    best = manifest["progress"]["best"]
    if best is not None and best["step"] in steps:
        return best["step"]
    return steps[-1]
