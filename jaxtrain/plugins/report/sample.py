"""Predictions for a random sample of a split, computed on a single device."""

import contextlib
import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxtrain.config import ParallelConfig
from jaxtrain.data import ahead
from jaxtrain.data.batch import Batch
from jaxtrain.data.datasets import Dataset
from jaxtrain.data.defects import Defects, Unreadable
from jaxtrain.data.files import StoredFile
from jaxtrain.data.image_files import ImageFileStore, shown
from jaxtrain.data.preprocess import restored
from jaxtrain.data.sources import Source
from jaxtrain.evaluation.evaluate import ModelView, Weights, compiler, evaluate
from jaxtrain.evaluation.reducers import KeepExamples, Kept
from jaxtrain.inference.load import load_model
from jaxtrain.inference.model import TrainedModel
from jaxtrain.parallel.data_sharding import replicated
from jaxtrain.parallel.mesh import make_mesh
from jaxtrain.plugins.report.examples import Predictions, Sample
from jaxtrain.tasks.prediction import Prediction
from jaxtrain.tasks.training_losses import checked_loss
from jaxtrain.trainer.programs import unaugmented
from jaxtrain.trainer.setup import Setup
from jaxtrain.training.eval_step import prepare_plain

# Maximum number of examples in the sample, and in a batch.
MAX_EXAMPLES = 2000
BATCH = 64
# Number of examples to show: those with the largest losses.
NUM_WORST = 12

# Traced function (outputs, batch) -> pytree of arrays (B, ...) to collect.
Keep = Callable[[Any, Batch], Any]


@dataclass(kw_only=True)
class SampleLimits:
    """Limits on collecting examples for a report.

    Attributes:
      seconds: Time limit of the predictions in seconds, excluding compilation.
      should_stop: Function that returns whether to stop early.
    """

    seconds: float = 60.0
    should_stop: Callable[[], bool] = field(default=lambda: False)


NO_LIMITS = SampleLimits(seconds=math.inf)


@dataclass(frozen=True, eq=False)
class WorstExamples:
    """Examples with the largest losses in a sample, largest first.

    Attributes:
      sample: Random sample from which the examples were chosen.
      index: Indices into the split, (n,).
      loss: Loss of each example, float64 (n,).
      image: Input images of the model, uint8 (n, H, W, C).
      target: Targets of the task, pytree of arrays (n, ...).
      outputs: Outputs of the model, pytree of arrays (n, ...).
      chosen: Values from `Task.choose` on the validation split, such as thresholds.
      drawable: Tuple (stored target, prediction) per example; empty if the decoder
        cannot draw predictions.
    """

    sample: Sample
    index: np.ndarray
    loss: np.ndarray
    image: np.ndarray
    target: Any
    outputs: Any
    chosen: Mapping[str, Any]
    drawable: Sequence[tuple[Any, Prediction]]


def predict_some(
    setup: Setup, workdir: Path, split: str, step: int, limits: SampleLimits
) -> Predictions:
    """Predict the classes of a random sample with the checkpoint of step `step`.

    Raises:
      UserError: This version of jaxtrain cannot read the model.
      CheckpointError: The checkpoint is damaged.
      BadNumbersError: Outputs of the model are not finite.
    """
    source, model = setup.splits.named()[split], load_model(workdir, step)

    def keep(outputs: Any, batch: Batch) -> Any:
        return batch["target"], model.decoder.probabilities(outputs)

    kept = over_sample(setup, model, source, limits, keep)
    kept.check(split)
    index, (label, probabilities) = kept.numbers, kept.values
    probabilities = probabilities.astype(np.float64)
    predicted, rows = probabilities.argmax(axis=1), np.arange(len(index))
    return Predictions(
        split=split,
        step=step,
        num_split=len(source),
        index=index,
        label=label,
        predicted=predicted,
        confidence=probabilities[rows, predicted],
        true_probability=probabilities[rows, label],
    )


def find_worst(
    setup: Setup, workdir: Path, split: str, step: int, limits: SampleLimits
) -> WorstExamples:
    """Find the examples with the largest losses in a random sample of a split.

    Raises:
      UserError: This version of jaxtrain cannot read the model.
      CheckpointError: The checkpoint is damaged.
    """
    source, model = setup.splits.named()[split], load_model(workdir, step)
    about, task, decoder = model.description, setup.task, model.decoder

    def losses(outputs: Any, batch: Batch) -> Any:
        target = task.target(batch)
        return checked_loss(task, outputs, target, training=False)

    def seen(outputs: Any, batch: Batch) -> Any:
        own = (batch["target"], decoder.decode(outputs)) if decoder.draws else ()
        return batch["image"], task.target(batch), outputs, own

    size = min(model.in_windows(BATCH), len(source))
    found = over_sample(setup, model, source, limits, losses, size)
    index, loss = found.numbers, found.values.astype(np.float64)
    # A loss of NaN is treated as infinite.
    order = np.argsort(-np.nan_to_num(loss, nan=np.inf), kind="stable")[:NUM_WORST]
    # The outputs of the entire sample may be too large to collect, so the model is
    # applied again to the worst examples.
    worst = index[order]
    again = over_examples(setup, model, source, worst, seen, size)
    image, target, outputs, own = again.values
    drawable = []
    for i in range(len(worst)) if decoder.draws else ():
        stored = jax.tree.map(lambda x, i=i: x[i], own[0])
        drawable.append((stored, decoder.prediction(own[1], i)))
    sample = Sample(split=split, step=step, num_split=len(source), index=index)
    return WorstExamples(
        sample=sample,
        index=worst,
        loss=loss[order],
        image=restored(image, about.mean, about.std),
        target=target,
        outputs=outputs,
        chosen=about.chosen,
        drawable=drawable,
    )


def example_names(source: Source, index: np.ndarray) -> list[str]:
    """File names of examples, or "no. 3" for index 3 if they have no files."""
    if isinstance(source.store, ImageFileStore):
        # Paths relative to the directory of the data set.
        return [shown(source.store.names[i]) for i in source.indices[index]]
    stored, _ = source.store.read(source.indices[index])
    files = [one for one in stored if isinstance(one, StoredFile)]
    if len(files) == len(index):
        return [shown(one.name) for one in files]
    return [f"no. {i}" for i in index.tolist()]


def over_sample(
    setup: Setup,
    model: TrainedModel,
    source: Source,
    limits: SampleLimits,
    keep: Keep,
    batch_size: int | None = None,
) -> Kept:
    """Call `over_examples` for a random sample of up to `MAX_EXAMPLES` examples.

    The sample is the same in each call.
    """
    draws = np.random.Philox(key=0).random_raw(len(source))
    chosen = np.argsort(draws, kind="stable")[:MAX_EXAMPLES]
    size = batch_size or BATCH
    return over_examples(setup, model, source, chosen, keep, size, limits)


def over_examples(
    setup: Setup,
    model: TrainedModel,
    source: Source,
    chosen: np.ndarray,
    keep: Keep,
    batch_size: int,
    limits: SampleLimits = NO_LIMITS,
) -> Kept:
    """Apply a model to examples on one device, and collect the outputs of `keep`.

    Results are in the order of the examples; unreadable examples are skipped.

    Args:
      setup: Setup of the run.
      model: Model with loaded weights.
      source: Split that contains the examples.
      chosen: Indices into the split, (n,).
      keep: Function of model outputs and batch, traced; returns the arrays to collect,
        (B, ...).
      batch_size: Maximum number of examples per batch.
      limits: Limits that stop the collection early.
    """
    about, device = model.description, jax.local_devices()[0]
    mesh, size = make_mesh(ParallelConfig(), [device]), min(batch_size, len(source))
    plain = unaugmented(setup, about.mean, about.std, setup.policy.compute_dtype)

    def apply(weights: Weights, data: Any, batches: Batch) -> tuple[Any, Batch]:
        batch = prepare_plain(plain, data, batches)
        return model.forward(*weights, batch["image"]), batch

    def read(start: int) -> dict[str, Any]:
        some, unreadable = chosen[start : start + size], list[Unreadable]()
        padded = np.resize(some, size)
        batch = source.read(padded, unreadable=unreadable)
        mask = ~np.isin(padded, [bad.index for bad in unreadable])
        mask[len(some) :] = False
        index = padded.astype(np.int32)
        return {**batch, "index": index, "mask": mask.astype(np.int32)}

    def batches() -> Generator[dict[str, Any], None, None]:
        starts, until = range(0, max(1, len(chosen)), size), None
        reading = ahead.by_threads(read, starts, ahead.READ_THREADS)
        with contextlib.closing(reading) as found:
            for batch in found:
                yield batch
                # The first batch was compiled, so the time limit starts now.
                now = time.monotonic()
                until = until or now + limits.seconds
                if now > until or limits.should_stop():
                    return

    weights = jax.device_put((model.params, model.model_state), replicated(mesh))
    program = compiler(apply, mesh, "a sample for the report", together=False)
    (kept,) = evaluate(
        ModelView(weights=weights, mesh=mesh, program=program),
        Dataset(source, {}, Defects("sample", len(source), 1.0)),
        [KeepExamples(keep)],
        setup.config.data,
        batch_size=size,
        batches=batches(),
    )
    return kept
