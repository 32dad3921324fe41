"""Comparison of an exported file's outputs with the model's outputs."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import numpy as np

from jaxtrain.errors import ExportError, UserError
from jaxtrain.export import Precision
from jaxtrain.export.request import Request, Runner
from jaxtrain.tasks.decoder import class_agreement

# Batch size of the check, and number of timed calls.
BATCH = 16
TIMES = 5


class Tolerance(NamedTuple):
    """Maximum relative difference of outputs, and minimum agreement of predictions."""

    difference: float
    agreement: float


# Differences: with a relative rounding error e (2^-24, 2^-11, 2^-8), sums in another
# order differ by about e * sqrt(number of terms), and the errors of layers accumulate:
# an error of 10 e was measured for 50 layers of a thousand terms. The limits are larger
# than 10 e by a factor of 1.3 (bf16) to 17 (fp32). Bugs (a wrong epsilon or padding, a
# transposed kernel) change outputs by a tenth.
#
# Agreement: one image of 64 may be so close to a decision boundary that the last bit
# decides.
#
# int8 rounds to 1/256 of the widest range of a layer, so the error depends on the
# model, and the agreement of classes is the criterion. Logits may then differ by 0.4 of
# the largest logit. A difference as large as the largest logit means a different model,
# whose classes may agree only because one class is very frequent. Weight-only formats
# round kernels to 1/254 of the largest weight of an output channel in 8 bits, to 1/16
# of each weight in fp8, and to 1/14 of the largest weight in 4 bits.
TOLERANCES: dict[Precision, Tolerance] = {
    "fp32": Tolerance(1e-5, 0.98),
    "fp16": Tolerance(1e-2, 0.98),
    "bf16": Tolerance(5e-2, 0.95),
    "int8": Tolerance(2e-1, 0.9),
    "int8_weights": Tolerance(1e-1, 0.95),
    "fp8_weights": Tolerance(2e-1, 0.9),
    "int4_weights": Tolerance(3e-1, 0.8),
}
# Low precisions, whose rounding error depends on the model.
LOW_PRECISIONS: tuple[Precision, ...] = ("int8", "fp8_weights", "int4_weights")
# Maximum relative difference of logits at a low precision (see `TOLERANCES`).
LOW_PRECISION_LOGITS = 1.0
# Tolerance after quantization-aware training. Another order of summation, or a 32-bit
# bias, may change the last bit of a sum, so that an activation is rounded to the next
# integer, which changes the following layers: a difference of 7e-3 was measured for a
# small network, more for deeper networks.
ROUNDED = Tolerance(1e-1, 0.95)


@dataclass(frozen=True)
class Check:
    """Result of a check.

    Attributes:
      num_images: Number of compared images.
      difference: Largest difference of outputs, divided by the largest output of the
        model. For regression, the divisor is the range (max - min) of the column.
      agreement: Fraction of images or pixels with the same class, or of boxes that are
        matched; None for other outputs.
      batch: Number of images of a timed call.
      seconds: Median time of a call of the file, in seconds; None if not timed.
      model_seconds: Median time of a call of the model in JAX, in seconds.
      measure: Noun phrase for the divisor of `difference`, for messages.
      agrees: Format string of `agreement`, for messages.
    """

    num_images: int
    difference: float
    agreement: float | None
    batch: int
    seconds: float | None
    model_seconds: float
    measure: str = "the largest"
    agrees: str = "the same class for {:.1%}"

    def is_within(self, tolerance: Tolerance) -> bool:
        """Whether the difference and the agreement are within a tolerance."""
        same = self.agreement is None or self.agreement >= tolerance.agreement
        # NaN is not within any tolerance.
        return bool(self.difference <= tolerance.difference) and same

    def describe(self) -> str:
        """Return the result as a sentence."""
        same = ""
        if self.agreement is not None:
            same = f", {self.agrees.format(self.agreement)}"
        return (
            f"on {self.num_images} images outputs differ by {self.difference:.1e} of "
            f"{self.measure}{same}"
        )


def check(
    request: Request, run: Runner, images: np.ndarray, *, timed: bool = True
) -> Check:
    """Compare the outputs of an exported file with the float32 outputs of the model.

    Args:
      request: Request for which the file was written.
      run: Function that runs the file.
      images: Images in the file's input format.
      timed: Whether to time the file. False if users run it in another runtime.

    Raises:
      ExportError: The outputs differ by more than `request.precision` allows.
      UserError: The outputs differ too much at int8, fp8_weights or int4_weights. The
        rounding error depends on the model, so this is not a bug of the export.
    """
    wide = replace(request, precision="fp32")
    jitted, weights = jax.jit(wide.apply), wide.weights()
    size = request.batch or min(BATCH, len(images))

    def model_outputs(batch: np.ndarray) -> np.ndarray:
        return np.asarray(jitted(weights, batch))

    actual = _in_batches(run, images, size, fixed=request.batch is not None)
    if request.batch is None:
        # If the file should accept any batch size, a second batch size is tested.
        actual[:1] = run(images[:1])
    expected = _in_batches(model_outputs, images, size, fixed=True)
    batch, agreement = padded(images, size), None
    exported, decoder = request.exported, request.model.decoder
    agrees, pairing = Check.agrees, exported.pairing
    scale, measure = exported.scale(expected)
    if pairing is not None:
        (actual, agreement), agrees = (
            pairing.pair(actual, expected, scale),
            pairing.agrees,
        )
    elif exported.has_classes and _has_low_precision(request):
        agreement, agrees = decoder.agreement(actual, expected), decoder.agrees
    elif exported.has_classes:
        agreement = class_agreement(actual, expected)
    result = Check(
        num_images=len(images),
        difference=float((np.abs(actual - expected) / scale).max()),
        agreement=agreement,
        batch=size,
        seconds=_seconds(run, batch) if timed else None,
        model_seconds=_seconds(model_outputs, batch),
        measure=measure,
        agrees=agrees,
    )
    tolerance = _tolerance(request)
    if not result.is_within(tolerance):
        allowed = f"{tolerance.difference:g}"
        if agreement is not None:
            allowed += f" and {tolerance.agreement:.0%}"
        # The user chose a low precision, so this is not a bug of the export.
        kind = UserError if _has_low_precision(request) else ExportError
        raise kind(
            "the exported file computes other outputs than the model and was not "
            f"written: {result.describe()}; the limits of --precision "
            f"{request.precision} are {allowed}; choose another --precision"
        )
    return result


def _has_low_precision(request: Request) -> bool:
    """Whether the precision is low, and quantization-aware training was not used."""
    return request.precision in LOW_PRECISIONS and not request.was_rounded


def _tolerance(request: Request) -> Tolerance:
    if request.was_rounded:
        return ROUNDED
    tolerance = TOLERANCES[request.precision]
    difference = tolerance.difference
    if _has_low_precision(request) and request.exported.has_classes:
        difference = LOW_PRECISION_LOGITS
    if request.model.description.model.transform is not None:
        # A transform that rounds, such as a quantizer, may turn a difference in the
        # last bit of an activation into a step of 1/127. The limit is therefore at
        # least the limit of fp16 (4e-4 was measured for an 8-bit convnet).
        difference = max(difference, TOLERANCES["fp16"].difference)
    return tolerance._replace(difference=difference)


def _in_batches(
    run: Callable[[np.ndarray], np.ndarray], images: np.ndarray, size: int, fixed: bool
) -> np.ndarray:
    """Run a model on batches of `size` images, and concatenate the outputs.

    If `fixed`, the last batch is padded to `size` images.
    """
    outputs = []
    for start in range(0, len(images), size):
        part = images[start : start + size]
        batch = padded(part, size) if fixed else part
        outputs.append(run(batch)[: len(part)])
    return np.concatenate(outputs)


def padded(images: np.ndarray, size: int) -> np.ndarray:
    """Return the first `size` images; repeat the last image if there are fewer."""
    missing = max(0, size - len(images))
    return np.concatenate([images[:size], images[-1:].repeat(missing, axis=0)])


def _seconds(run: Callable[[np.ndarray], np.ndarray], batch: np.ndarray) -> float:
    times = []
    run(batch)
    for _ in range(TIMES):
        start = time.perf_counter()
        run(batch)
        times.append(time.perf_counter() - start)
    return statistics.median(times)
