"""What the model of a run says of some examples: bounded work, by one process alone."""

import contextlib
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain import keys
from jaxtrain.data import ahead
from jaxtrain.data.sources import Source
from jaxtrain.engine import passes
from jaxtrain.inference.load import load_step
from jaxtrain.inference.model import TrainedModel
from jaxtrain.report.examples import Predictions
from jaxtrain.run.programs import unaugmented
from jaxtrain.run.setup import Setup

# Examples of a split that the model looks at, drawn at random, and how many at once.
MAX_EXAMPLES = 2000
BATCH = 64

# Numbers of examples, their classes, and the probabilities of all classes.
Result = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(kw_only=True)
class SampleLimits:
    """What collecting may take.

    Attributes:
      seconds: for the predictions, once they are compiled.
      should_stop: tells that nobody waits for it any more.
    """

    seconds: float = 60.0
    should_stop: Callable[[], bool] = field(default=lambda: False)


def predict_some(
    setup: Setup, workdir: Path, split: str, step: int, limits: SampleLimits
) -> Predictions:
    """Return the predictions of a checkpoint for examples of a split.

    Raises:
      UserError: the model is none that this version reads.
      CheckpointError: the checkpoint is damaged.
    """
    source = setup.splits.named()[split]
    model = load_step(workdir, step)
    function, chosen = _make_function(setup, model), _draw(len(source))
    parts: list[tuple[np.ndarray, ...]] = []
    until = None
    results = _results(setup, source, chosen, function)
    for index, label, probabilities in results:
        likeliest = probabilities.argmax(axis=1)
        rows = np.arange(len(index))
        of_true = probabilities[rows, label]
        parts.append((index, label, likeliest, probabilities[rows, likeliest], of_true))
        now = time.monotonic()
        until = until or now + limits.seconds
        if now > until or limits.should_stop():
            break
    results.close()
    arrays = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
    if not arrays:
        arrays = [np.zeros(0, np.int64)] * 3 + [np.zeros(0)] * 2
    names = ("index", "label", "predicted", "confidence", "true_probability")
    return Predictions(
        split=split,
        step=step,
        num_split=len(source),
        **dict(zip(names, arrays, strict=True)),
    )


def _draw(num: int) -> np.ndarray:
    """Return the numbers of examples in the order in which they are looked at."""
    draws = np.random.Philox(key=0).random_raw(num)
    return np.argsort(draws, kind="stable")[:MAX_EXAMPLES]


def _make_function(setup: Setup, model: TrainedModel) -> Callable[[Any], jax.Array]:
    """Return `batch`, as a source reads it, -> probabilities, on one device."""
    about = model.description
    dtype = setup.policy.compute_dtype
    plain = unaugmented(setup, about.mean, about.std, dtype)

    def function(params: Any, model_state: Any, batch: Any) -> jax.Array:
        batch = plain({}, batch, keys.root_key(0), jnp.zeros((), jnp.int32))
        logits = model.forward(params, model_state, batch["image"])
        return jax.nn.softmax(logits, axis=-1)

    jitted, device = jax.jit(function), jax.local_devices()[0]
    weights = jax.device_put((model.params, model.model_state), device)
    return lambda batch: jitted(*weights, batch)


def _results(
    setup: Setup,
    source: Source,
    chosen: np.ndarray,
    function: Callable[[Any], jax.Array],
) -> Generator[Result, None, None]:
    """Yield numbers, classes and probabilities of the examples that can be read."""
    size = min(BATCH, len(chosen))

    def read(start: int) -> tuple[np.ndarray, np.ndarray, Any]:
        index = chosen[start : start + size]
        padded = np.resize(index, size)
        unreadable: list[Any] = []
        batch = source.read(padded, unreadable=unreadable)
        good = ~np.isin(index, [bad.index for bad in unreadable])
        return index, good, {**batch, "index": padded.astype(np.int32)}

    starts = range(0, len(chosen), size)
    batches = ahead.by_threads(read, starts, ahead.READ_THREADS)
    found = passes.results(batches, lambda read: function(read[-1]), in_flight=2)
    # A stop is heeded, and the time looked at, between batches.
    with contextlib.closing(found):
        for (index, good, batch), result in found:
            label = np.asarray(batch["target"])[: len(index)]
            probabilities = np.asarray(result, np.float64)[: len(index)]
            yield index[good], label[good], probabilities[good]
