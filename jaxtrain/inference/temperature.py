"""Temperature scaling of classifiers (Guo et al. 2017, arXiv:1706.04599).

Logits are divided by a fitted scalar, the temperature. Scaling calibrates confidences,
but changes neither the ranking of classes nor the accuracy.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from jaxtrain.config.recipe import is_run
from jaxtrain.errors import UserError
from jaxtrain.invocation import command
from jaxtrain.json_files.run_id import CONFIG, RunId, read_of_run

if TYPE_CHECKING:
    from jaxtrain.inference.model import TrainedModel

# Name of the file with the fitted temperature, in the directory of a run.
TEMPERATURE = "temperature.json"
# Bounds of 1 / temperature, as it would diverge on a split without errors.
BOUNDS = (1e-3, 1e3)
MAX_STEPS = 100
# Relative tolerance of 1 / temperature.
TOLERANCE = 1e-9
# Number of logits to convert to float64 at a time.
CHUNK = 2**22


class FittedTemperature(TypedDict):
    """Fields of `temperature.json` that `predict` reads.

    Attributes:
      temperature: Divisor of the logits.
      step: Step of the checkpoint for which the temperature was fitted.
      tta: Test-time augmentation of the logits used in the fit. None means no
        augmentation.
    """

    temperature: float
    step: int | None
    tta: str | None


def fit(logits: np.ndarray, labels: np.ndarray) -> tuple[float, float, float]:
    """Fit the temperature that minimizes the negative log-likelihood (NLL).

    The equivalent of one example with a uniform target is added, as by Platt (1999) for
    two classes. Otherwise, on a small split without errors, the temperature would tend
    to 0, and the NLL of a later error would be unbounded.

    The NLL is convex in 1 / temperature, and is minimized by Newton's method; bisection
    replaces steps that leave the bracket.

    Args:
      logits: Logits, (N, classes).
      labels: True classes, (N,); examples with a negative class are ignored.

    Returns:
      Fitted temperature, mean NLL at temperature 1, and mean NLL at the fitted
      temperature.
    """
    logits, labels = logits[labels >= 0], labels[labels >= 0]
    low, high = BOUNDS
    beta = 1.0
    smoothing = 1 / (len(labels) + 1)
    before = _derivatives(logits, labels, beta)[0]
    for _ in range(MAX_STEPS):
        _, slope, curvature = _derivatives(logits, labels, beta, smoothing)
        low, high = (low, beta) if slope > 0 else (beta, high)
        step = beta - slope / curvature if curvature > 0 else math.inf
        new = step if low < step < high else math.sqrt(low * high)
        converged = abs(new - beta) <= TOLERANCE * beta
        beta = new
        if converged:
            break
    return 1 / beta, before, _derivatives(logits, labels, beta)[0]


def _derivatives(
    logits: np.ndarray, labels: np.ndarray, beta: float, smoothing: float = 0.0
) -> tuple[float, float, float]:
    """Return the mean NLL of `beta * logits`, and its first two derivatives in `beta`.

    Args:
      logits: Logits, (N, classes).
      labels: True classes, (N,).
      beta: 1 / temperature.
      smoothing: Label smoothing, the probability spread evenly over all classes.
    """
    total = np.zeros(3)
    step = max(1, CHUNK // logits.shape[1])
    for i in range(0, len(logits), step):
        chunk = logits[i : i + step].astype(np.float64)
        chunk -= chunk.max(-1, keepdims=True)
        exponentials = np.exp(beta * chunk)
        sums = exponentials.sum(-1)
        mean = (exponentials * chunk).sum(-1) / sums
        square = (exponentials * chunk**2).sum(-1) / sums
        true = chunk[np.arange(len(chunk)), labels[i : i + step]]
        true = (1 - smoothing) * true + smoothing * chunk.mean(-1)
        nll = np.log(sums) - beta * true
        total += [nll.sum(), (mean - true).sum(), (square - mean**2).sum()]
    nll, slope, curvature = (total / len(logits)).tolist()
    return nll, slope, curvature


def read_for(model: "TrainedModel", workdir: Path) -> float:
    """Read the fitted temperature of a model after checking that it is a classifier.

    Args:
      model: Model to calibrate.
      workdir: Directory of the model's run.

    Raises:
      UserError: The model is not a single-label classifier, no temperature was fitted
        to it, or the temperature file is damaged.
    """
    model.decoder.check_ranks("--calibrated")
    return read(workdir, model.origin)


def read(workdir: Path, origin: dict[str, Any]) -> float:
    """Read the fitted temperature of a model from the directory of its run.

    Args:
      workdir: Directory of the model's run.
      origin: Origin of the model (`TrainedModel.origin`).

    Raises:
      UserError: No temperature was fitted to this model, or the file is damaged.
    """
    path = workdir / TEMPERATURE
    fit = command("evaluate", "--workdir", workdir, "--calibrate")
    recreate = f"fit the temperature again with {fit}"
    if not workdir.is_dir():
        raise UserError(
            f"--calibrated: {workdir} is not the directory of a run: leave "
            "--calibrated out"
        )
    run = RunId(origin["run"] or "no run", str(workdir / CONFIG))
    try:
        values = read_of_run(path, FittedTemperature, run, advice=recreate)
    except UserError as error:
        raise UserError(f"--calibrated: {error}") from None
    if values is None:
        remedy = f"fit the temperature with {fit}"
        if not is_run(workdir):
            remedy = f"copy {TEMPERATURE} from the run that exported the model"
        raise UserError(f"--calibrated: {path} does not exist: {remedy}")
    temperature, step, views = values["temperature"], values["step"], values["tta"]
    if temperature <= 0:
        raise UserError(
            f"--calibrated: {path}: temperature = {temperature}: expected a number "
            f"above 0; {recreate}"
        )
    if step is not None and step != origin["step"]:
        raise UserError(
            f"--calibrated: {path} was fitted to the checkpoint of step {step}, but "
            f"the model is from step {origin['step']}: give --checkpoint {step}, or "
            f"fit the temperature again with {fit} --checkpoint {origin['step']}"
        )
    if views is not None:
        raise UserError(
            f"--calibrated: {path} was fitted with test-time augmentation ({views}), "
            f"but predictions use plain images: fit the temperature again with {fit} "
            "--tta plain"
        )
    return temperature
