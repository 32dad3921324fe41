"""What the model of a run says of some examples: bounded work, by one process alone."""

import contextlib
import functools
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain import keys
from jaxtrain.data import ahead
from jaxtrain.data.batch import Batch
from jaxtrain.data.files import StoredFile
from jaxtrain.data.image_files import ImageFileStore, shown
from jaxtrain.data.preprocess import restored
from jaxtrain.data.sources import Source
from jaxtrain.evaluation.evaluate import results
from jaxtrain.evaluation.finite import check_finite, finite_rows
from jaxtrain.inference.load import load_step
from jaxtrain.inference.model import TrainedModel
from jaxtrain.plugins.report.examples import Predictions, Sample
from jaxtrain.trainer.programs import unaugmented
from jaxtrain.trainer.setup import Setup

# Examples of a split that the model looks at, drawn at random, and how many at once.
MAX_EXAMPLES = 2000
BATCH = 64
# Examples that a task makes pictures of, those with the largest losses.
NUM_WORST = 12

# Of a prepared batch and the outputs of the model, traced: arrays (B, ...).
Found = Callable[[Batch, Any], Any]


@dataclass(kw_only=True)
class SampleLimits:
    """What collecting may take.

    Attributes:
      seconds: Seconds for the predictions, once they are compiled.
      should_stop: Whether nobody waits for it any more.
    """

    seconds: float = 60.0
    should_stop: Callable[[], bool] = field(default=lambda: False)


@dataclass(frozen=True, eq=False)
class WorstExamples:
    """The examples with the largest losses, the largest first; (n, ...) each.

    Attributes:
      sample: Examples that they are among.
      index: Numbers of the examples in the split.
      loss: Loss of each example.
      image: Images as the model saw them, uint8 (n, H, W, C).
      target: What the task makes of their stored targets, any tree.
      outputs: Outputs of the model, any tree.
      chosen: What validation chose for the model (`Task.choose`).
    """

    sample: Sample
    index: np.ndarray
    loss: np.ndarray
    image: np.ndarray
    target: Any
    outputs: Any
    chosen: Mapping[str, Any]


def predict_some(
    setup: Setup, workdir: Path, split: str, step: int, limits: SampleLimits
) -> Predictions:
    """Return the predictions of a checkpoint for examples of a split.

    Raises:
      UserError: The model is none that this version reads.
      CheckpointError: The checkpoint is damaged.
      BadNumbersError: Outputs of the model are not finite.
    """
    source, model = setup.splits.named()[split], load_step(workdir, step)

    def found(batch: Batch, outputs: Any) -> Any:
        chances = setup.task.probabilities(outputs)
        return batch["target"], chances, finite_rows(outputs)

    nothing = np.zeros(0, np.int64)
    parts = [(nothing, nothing, nothing, np.zeros(0), np.zeros(0))]
    program = make_program(setup, model, found)
    with contextlib.closing(batch_results(source, program, limits)) as results:
        for index, good, result in results:
            kept = (np.asarray(x)[: len(good)][good] for x in result)
            label, probabilities, finite = kept
            check_finite(finite, index, split)
            probabilities = probabilities.astype(np.float64)
            likeliest, rows = probabilities.argmax(axis=1), np.arange(len(index))
            sure, of_true = probabilities[rows, likeliest], probabilities[rows, label]
            parts.append((index, label, likeliest, sure, of_true))
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


def find_worst(
    setup: Setup, workdir: Path, split: str, step: int, limits: SampleLimits
) -> WorstExamples:
    """Return those of some examples of a split that have the largest losses.

    Raises:
      UserError: The model is none that this version reads.
      CheckpointError: The checkpoint is damaged.
    """
    source, model = setup.splits.named()[split], load_step(workdir, step)
    about, task = model.description, setup.task

    def found(batch: Batch, outputs: Any) -> Any:
        target = task.target(batch)
        loss = task.checked_loss(outputs, target, training=False)
        return loss, (batch["image"], target, outputs)

    numbers, losses = [np.zeros(0, np.int64)], [np.zeros(0)]
    program = make_program(setup, model, found)
    size = min(model.in_windows(BATCH), len(source))
    results = batch_results(source, program, limits, size)
    with contextlib.closing(results):
        for some, good, (loss, _) in results:
            numbers.append(some)
            losses.append(np.asarray(loss, np.float64)[: len(good)][good])
    index, loss = np.concatenate(numbers), np.concatenate(losses)
    # What is no number is as bad as can be.
    order = np.argsort(-np.nan_to_num(loss, nan=np.inf), kind="stable")[:NUM_WORST]
    # Whole batches of outputs may be large: those of a few examples are made again.
    worst = index[order]

    def seen_again(start: int) -> Any:
        some = worst[start : start + size]
        *_, batch = _read(source, some, size)
        return jax.tree.map(lambda x: np.asarray(x)[: len(some)], program(batch)[1])

    parts = [seen_again(start) for start in range(0, max(1, len(worst)), size)]
    seen = jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)
    sample = Sample(split=split, step=step, num_split=len(source), index=index)
    image, target, outputs = seen
    return WorstExamples(
        sample=sample,
        index=worst,
        loss=loss[order],
        image=restored(image, about.mean, about.std),
        target=target,
        outputs=outputs,
        chosen=about.chosen,
    )


def example_names(source: Source, index: np.ndarray) -> list[str]:
    """Return the names of files, or the numbers of examples where there are none."""
    if isinstance(source.store, ImageFileStore):
        # As seen from the folder of the set.
        return [shown(source.store.names[i]) for i in source.indices[index]]
    stored, _ = source.store.read(source.indices[index])
    files = [one for one in stored if isinstance(one, StoredFile)]
    if len(files) == len(index):
        return [shown(one.name) for one in files]
    return [f"no. {i}" for i in index.tolist()]


def make_program(
    setup: Setup, model: TrainedModel, found: Found
) -> Callable[[dict[str, Any]], Any]:
    """Return what is found of a batch, on one device."""
    about, device = model.description, jax.local_devices()[0]
    plain = unaugmented(setup, about.mean, about.std, setup.policy.compute_dtype)

    @jax.jit
    def predict(params: Any, model_state: Any, batch: Any) -> Any:
        batch = plain({}, batch, keys.root_key(0), jnp.zeros((), jnp.int32))
        return found(batch, model.forward(params, model_state, batch["image"]))

    weights = jax.device_put((model.params, model.model_state), device)
    return functools.partial(predict, *weights)


def _read(
    source: Source, index: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Return numbers that can be read, whether each can, and a batch of this size."""
    padded = np.resize(index, size)
    unreadable: list[Any] = []
    batch = source.read(padded, unreadable=unreadable)
    good = ~np.isin(index, [bad.index for bad in unreadable])
    return index[good], good, {**batch, "index": padded.astype(np.int32)}


def batch_results(
    source: Source,
    program: Callable[[dict[str, Any]], Any],
    limits: SampleLimits,
    batch_size: int | None = None,
) -> Generator[tuple[np.ndarray, np.ndarray, Any], None, None]:
    """Yield the numbers that can be read, whether each can, and what is found.

    The latter is on the device, with rows of padding.

    Args:
      source: Split of the examples.
      program: What `make_program` returned.
      limits: Limits of what that may take.
      batch_size: Number of examples in a batch. Defaults to `BATCH`.
    """
    draws = np.random.Philox(key=0).random_raw(len(source))
    chosen = np.argsort(draws, kind="stable")[:MAX_EXAMPLES]
    size, until = min(batch_size or BATCH, len(source)), None

    def read(start: int) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        return _read(source, chosen[start : start + size], size)

    starts = range(0, len(chosen), size)
    batches = ahead.by_threads(read, starts, ahead.READ_THREADS)
    found = results(batches, lambda read: program(read[-1]), in_flight=2)
    # A stop is heeded, and the time looked at, between batches.
    with contextlib.closing(found):
        for (index, good, _), result in found:
            yield index, good, result
            now = time.monotonic()
            until = until or now + limits.seconds
            if now > until or limits.should_stop():
                break
