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


@dataclass(kw_only=True)
class SampleLimits:
    """What collecting may take.

    Attributes:
      seconds: Seconds for the predictions, once they are compiled.
      should_stop: Whether nobody waits for it any more.
    """

    seconds: float = 60.0
    should_stop: Callable[[], bool] = field(default=lambda: False)


def predict_some(
    setup: Setup, workdir: Path, split: str, step: int, limits: SampleLimits
) -> Predictions:
    """Return the predictions of a checkpoint for examples of a split.

    Raises:
      UserError: The model is none that this version reads.
      CheckpointError: The checkpoint is damaged.
    """
    source, model = setup.splits.named()[split], load_step(workdir, step)
    nothing = np.zeros(0, np.int64)
    parts = [(nothing, nothing, nothing, np.zeros(0), np.zeros(0))]
    until = None
    # A stop is heeded, and the time looked at, between batches.
    with contextlib.closing(_results(setup, source, model)) as results:
        for index, label, probabilities in results:
            likeliest, rows = probabilities.argmax(axis=1), np.arange(len(index))
            sure, of_true = probabilities[rows, likeliest], probabilities[rows, label]
            parts.append((index, label, likeliest, sure, of_true))
            now = time.monotonic()
            until = until or now + limits.seconds
            if now > until or limits.should_stop():
                break
    index, label, predicted, confidence, of_true = map(
        np.concatenate, zip(*parts, strict=True)
    )
    return Predictions(
        split=split,
        step=step,
        num_split=len(source),
        index=index,
        label=label,
        predicted=predicted,
        confidence=confidence,
        true_probability=of_true,
    )


def _results(
    setup: Setup, source: Source, model: TrainedModel
) -> Generator[tuple[np.ndarray, np.ndarray, np.ndarray], None, None]:
    """Yield numbers, classes and probabilities of the examples that can be read."""
    about, device = model.description, jax.local_devices()[0]
    plain = unaugmented(setup, about.mean, about.std, setup.policy.compute_dtype)

    @jax.jit
    def predict(params: Any, model_state: Any, batch: Any) -> jax.Array:
        batch = plain({}, batch, keys.root_key(0), jnp.zeros((), jnp.int32))
        logits = model.forward(params, model_state, batch["image"])
        return setup.task.probabilities(logits)

    weights = jax.device_put((model.params, model.model_state), device)
    draws = np.random.Philox(key=0).random_raw(len(source))
    chosen = np.argsort(draws, kind="stable")[:MAX_EXAMPLES]
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
    found = passes.results(
        batches, lambda read: predict(*weights, read[-1]), in_flight=2
    )
    with contextlib.closing(found):
        for (index, good, batch), result in found:
            label = np.asarray(batch["target"])[: len(index)]
            probabilities = np.asarray(result, np.float64)[: len(index)]
            yield index[good], label[good], probabilities[good]
