"""Temperature scaling: one number that makes a classifier as sure as it is right.

Guo et al. 2017, arXiv:1706.04599. Logits are divided by it: the class ranked first
stays, and so does the accuracy.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxtrain.inference.temperature import TEMPERATURE
from jaxtrain.records.workdir import write_digested

# Of 1 / temperature. A split without a mistake would have it infinite.
BOUNDS = (1e-3, 1e3)
MAX_STEPS = 100
# Relative, of 1 / temperature.
TOLERANCE = 1e-9
# Logits that are in float64 at a time.
CHUNK = 2**22


@dataclass(frozen=True, kw_only=True)
class Temperature:
    """A temperature, and what it was fitted on.

    Attributes:
      temperature: that logits are divided by.
      step: of the checkpoint whose logits they are.
      run: digest of the run's config, as in `TrainedModel.origin`.
      split: of the run's own data.
      num_examples: of the split.
      tta: the views that were averaged; None: plain images.
      nll_before: mean negative log-likelihood of the split, undivided.
      nll_after: with the temperature.
    """

    temperature: float
    step: int
    run: str
    split: str
    num_examples: int
    tta: str | None
    nll_before: float
    nll_after: float


def fit(logits: np.ndarray, labels: np.ndarray) -> tuple[float, float, float]:
    """Return the temperature of the least mean NLL, and the NLL before and after.

    The NLL is convex in 1 / temperature: Newton's steps, and halves of what is left
    where these lead out of it.

    Args:
      logits: Logits, (N, classes).
      labels: True classes, (N,).
    """
    low, high = BOUNDS
    beta = 1.0
    before = _derivatives(logits, labels, beta)[0]
    for _ in range(MAX_STEPS):
        _, slope, curvature = _derivatives(logits, labels, beta)
        low, high = (low, beta) if slope > 0 else (beta, high)
        step = beta - slope / curvature if curvature > 0 else math.inf
        new = step if low < step < high else math.sqrt(low * high)
        done = abs(new - beta) <= TOLERANCE * beta
        beta = new
        if done:
            break
    return 1 / beta, before, _derivatives(logits, labels, beta)[0]


def _derivatives(
    logits: np.ndarray, labels: np.ndarray, beta: float
) -> tuple[float, float, float]:
    """Return the mean NLL of `beta * logits`, and its two derivatives by `beta`."""
    total = np.zeros(3)
    step = max(1, CHUNK // logits.shape[1])
    for i in range(0, len(logits), step):
        some = logits[i : i + step].astype(np.float64)
        some -= some.max(-1, keepdims=True)
        exponentials = np.exp(beta * some)
        sums = exponentials.sum(-1)
        mean = (exponentials * some).sum(-1) / sums
        square = (exponentials * some**2).sum(-1) / sums
        true = some[np.arange(len(some)), labels[i : i + step]]
        nll = np.log(sums) - beta * true
        total += [nll.sum(), (mean - true).sum(), (square - mean**2).sum()]
    nll, slope, curvature = (total / len(logits)).tolist()
    return nll, slope, curvature


def write(workdir: Path, found: Mapping[str, Any]) -> None:
    """Remember a temperature in the folder of its run.

    Args:
      workdir: of the run.
      found: the fields of `Temperature`, and possibly others.
    """
    names = [field.name for field in dataclasses.fields(Temperature)]
    write_digested(workdir / TEMPERATURE, {name: found[name] for name in names})
