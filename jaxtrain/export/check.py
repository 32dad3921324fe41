"""Whether a file computes what the model does, on images, by the file's own runtime."""

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

# Images of a batch, and how often it is timed.
BATCH = 16
TIMES = 5


class Tolerance(NamedTuple):
    """What outputs may differ by, over the largest; images that keep their class."""

    difference: float
    agreement: float


# Of a precision, e its relative rounding error (2^-24, 2^-11, 2^-8). Sums in another
# order differ by some e times the root of how many numbers are summed up, and layers
# add to it: 50 of a thousand each measure 10 e. Ten times that is allowed, as what is
# wrong (an epsilon, a padding, a transposed kernel) changes outputs by a tenth.
#
# One image of 64 may lie between two classes, where the last bit decides.
#
# int8 rounds to 1/256 of the widest range a layer has met, so that its error depends on
# the model: what counts is that the classes stay. A logit may be 0.4 off then, but an
# error as large as the largest logit is that of another model, whose classes may agree
# as one of them is the most frequent. Kernels alone are rounded to 1/254 of the largest
# weight of an output in 8 bits, to 1/16 of each weight in fp8 and to 1/14 of the
# largest in 4 bits.
TOLERANCES: dict[Precision, Tolerance] = {
    "fp32": Tolerance(1e-5, 0.98),
    "fp16": Tolerance(1e-2, 0.98),
    "bf16": Tolerance(5e-2, 0.95),
    "int8": Tolerance(2e-1, 0.9),
    "int8_weights": Tolerance(1e-1, 0.95),
    "fp8_weights": Tolerance(2e-1, 0.9),
    "int4_weights": Tolerance(3e-1, 0.8),
}
ROUGH: tuple[Precision, ...] = ("int8", "fp8_weights", "int4_weights")
DIFFERENCE_OF_ROUGH_WITH_CLASSES = 1.0
# Of a model that was trained to round: where sums in another order, or a bias of 32
# bits, differ in the last bit, some activations are rounded to the next integer, and
# each changes others: 7e-3 of a small net, more the deeper it is.
ROUNDED = Tolerance(1e-1, 0.95)


@dataclass(frozen=True)
class Check:
    """What a check has found.

    Attributes:
      num_images: that both have seen.
      difference: the largest of an output, over the largest output of the model; of
        numbers, over the spread of their column.
      agreement: the share of images, or pixels, that get the same class, or of boxes
        that are found; None: the outputs are neither.
      batch: images of the calls that are timed.
      seconds: of such a call of the file, the median; None: not timed.
      model_seconds: of the model in JAX.
      measure: what the difference is over, in words.
      agrees: what the share is of, in words with a place for it.
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
        """Whether the file may be used in the place of the model."""
        same = self.agreement is None or self.agreement >= tolerance.agreement
        # NaN is not within.
        return bool(self.difference <= tolerance.difference) and same

    def describe(self) -> str:
        """Say in words what was found."""
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
    """Compare a file with the model in float32, and raise if they differ.

    Args:
      request: that the file was written for.
      run: runs the file.
      images: as the file takes them.
      timed: whether what runs it is what a user would run it by.

    Raises:
      ExportError: they differ by more than the precision allows.
      UserError: likewise, of a precision that rounds so far that it depends on the
        model whether it will do.
    """
    wide = replace(request, precision="fp32")
    jitted, weights = jax.jit(wide.apply), wide.weights()
    size = request.batch or min(BATCH, len(images))

    def of_model(batch: np.ndarray) -> np.ndarray:
        return np.asarray(jitted(weights, batch))

    ours = _in_batches(run, images, size, fixed=request.batch is not None)
    if request.batch is None:
        # Of any number of images: what was traced for one number may not take another.
        ours[:1] = run(images[:1])
    theirs = _in_batches(of_model, images, size, fixed=True)
    batch, agreement = padded(images, size), None
    exported, decoder = request.exported, request.model.decoder
    agrees, pairing = Check.agrees, exported.pairing
    scale, measure = exported.scale(theirs)
    if pairing is not None:
        (ours, agreement), agrees = pairing.pair(ours, theirs, scale), pairing.agrees
    elif exported.has_classes and _is_rough(request):
        agreement, agrees = decoder.agreement(ours, theirs), decoder.agrees
    elif exported.has_classes:
        agreement = class_agreement(ours, theirs)
    found = Check(
        num_images=len(images),
        difference=float((np.abs(ours - theirs) / scale).max()),
        agreement=agreement,
        batch=size,
        seconds=_seconds(run, batch) if timed else None,
        model_seconds=_seconds(of_model, batch),
        measure=measure,
        agrees=agrees,
    )
    tolerance = _tolerance(request)
    if not found.is_within(tolerance):
        allowed = f"{tolerance.difference:g}"
        if agreement is not None:
            allowed += f" and {tolerance.agreement:.0%}"
        # To round so far was the user's choice.
        kind = UserError if _is_rough(request) else ExportError
        raise kind(
            f"the file was not written, as it is not the model: {found.describe()}; "
            f"{request.precision} is allowed {allowed}; choose another --precision"
        )
    return found


def _is_rough(request: Request) -> bool:
    """Whether the file rounds what the model has not learnt to round."""
    return request.precision in ROUGH and not request.was_rounded


def _tolerance(request: Request) -> Tolerance:
    if request.was_rounded:
        return ROUNDED
    tolerance = TOLERANCES[request.precision]
    difference = tolerance.difference
    if _is_rough(request) and request.exported.has_classes:
        difference = DIFFERENCE_OF_ROUGH_WITH_CLASSES
    if request.model.description.model.transform is not None:
        # Where a transform rounds, as a quantiser does, the last bit of an activation
        # may decide over a step of 1/127: as rough as fp16 (a convnet in 8 bits: 4e-4).
        difference = max(difference, TOLERANCES["fp16"].difference)
    return tolerance._replace(difference=difference)


def _in_batches(
    run: Callable[[np.ndarray], np.ndarray], images: np.ndarray, size: int, fixed: bool
) -> np.ndarray:
    """Return the outputs of all images; `fixed`: the last batch is filled up."""
    outputs = []
    for start in range(0, len(images), size):
        part = images[start : start + size]
        given = padded(part, size) if fixed else part
        outputs.append(run(given)[: len(part)])
    return np.concatenate(outputs)


def padded(images: np.ndarray, size: int) -> np.ndarray:
    """Return the first `size` images, the last again and again if there are less."""
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
