"""Examples for the report of a run: bounded work, whatever the size of its data."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtrain import keys
from jaxtrain.config import ParallelConfig
from jaxtrain.data import ahead
from jaxtrain.data.files import StoredFile
from jaxtrain.data.image_files import shown as shown_name
from jaxtrain.data.order import DataOrder
from jaxtrain.data.sources import Source
from jaxtrain.errors import CheckpointError, UserError
from jaxtrain.inference.load import load_step
from jaxtrain.inference.model import TrainedModel
from jaxtrain.pages.pictures import TINY, to_address
from jaxtrain.report.examples import Examples, Pair, Predictions, Shown
from jaxtrain.report.history import History
from jaxtrain.run.preview import first_images
from jaxtrain.run.programs import make_preprocesses
from jaxtrain.run.setup import Setup, build_setup
from jaxtrain.tasks.classification import Classification

# Examples of a split that the model looks at, drawn at random, and how many at once.
MAX_EXAMPLES = 2000
BATCH = 64
# A stop is heeded, and the time looked at, between batches; they may be behind by two.
IN_FLIGHT = 2
# Training images that are shown.
NUM_PAIRS = 8


@dataclass(kw_only=True)
class Limits:
    """What collecting may take.

    Attributes:
      seconds: for the predictions, once they are compiled.
      should_stop: tells that nobody waits for it any more.
    """

    seconds: float = 60.0
    should_stop: Callable[[], bool] = field(default=lambda: False)


def examples_of(history: History) -> Examples:
    """Open the data of a run again, and collect examples of them.

    What cannot be had, such as data that are no longer there, is told on the page.
    """
    config = history.config
    if config is None:
        return Examples(notes=["Examples: the config cannot be read."])
    try:
        # What shares the work changes no image.
        setup = build_setup(replace(config, parallel=ParallelConfig()))
    except UserError as error:
        return Examples(notes=[f"Examples and their images: {error}"])
    return collect_examples(setup, history, Limits())


def collect_examples(
    setup: Setup, history: History, limits: Limits, order: DataOrder | None = None
) -> Examples:
    """Collect predictions, and augmented images; this process alone does so.

    Args:
      setup: of the run, or of one of its config on other devices.
      history: its records.
      limits: what that may take.
      order: of the training split; None: it is made anew.
    """
    notes: list[str] = []

    def attempt(what: str, function: Callable[..., Any], *args: Any) -> Any:
        # No part of a report is worth the others.
        try:
            return None if limits.should_stop() else function(*args)
        except (UserError, CheckpointError) as error:
            notes.append(f"{what}: {error}")
        except Exception as error:
            notes.append(f"{what}: {type(error).__name__}: {error}")
        return None

    predictions, shown = None, {}
    found = _choose_split(setup, history, notes)
    if found is not None:
        predictions = attempt("Predictions", _predict, setup, history, *found, limits)
    if predictions is not None and not len(predictions.label):
        notes.append(f"Predictions: no image of the {predictions.split} could be read.")
        predictions = None
    if predictions is not None:
        shown = attempt("Images", _show, setup, predictions) or {}
    pairs = attempt("Training images", _pairs, setup, history, order) or ()
    return Examples(predictions=predictions, shown=shown, pairs=pairs, notes=notes)


def _choose_split(
    setup: Setup, history: History, notes: list[str]
) -> tuple[str, int] | None:
    """Return a split and the step of the model that is to predict it.

    The test split is for the end of a run; before, it is looked at by nobody.
    """
    if not isinstance(setup.task, Classification):
        notes.append(
            f"task = {setup.config.task!r} has no classes: there are no predictions of "
            "them, and no confusion matrix."
        )
        return None
    step = history.checkpoint.get("step")
    if step is None:
        notes.append("Predictions: there is no checkpoint that can be read.")
        return None
    if history.finished and step == history.step:
        return "test", step
    if setup.splits.validation is not None:
        return "validation", step
    notes.append(
        "Predictions: the run is not finished, and there is no validation split; the "
        "test split is not looked at before the end."
    )
    return None


def _predict(
    setup: Setup, history: History, split: str, step: int, limits: Limits
) -> Predictions:
    source = setup.splits.named()[split]
    model = load_step(history.workdir, step)
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
    _, plain = make_preprocesses(setup, about.mean, about.std, dtype)

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
) -> Any:
    """Yield numbers, classes and probabilities of the examples that can be read."""
    size = min(BATCH, len(chosen))

    def read(start: int) -> tuple[np.ndarray, np.ndarray, Any]:
        index = chosen[start : start + size]
        padded = np.resize(index, size)
        unreadable: list[Any] = []
        batch = source.read(padded, unreadable=unreadable)
        good = ~np.isin(index, [bad.index for bad in unreadable])
        return index, good, {**batch, "index": padded.astype(np.int32)}

    waiting = []
    starts = range(0, len(chosen), size)
    for index, good, batch in ahead.by_threads(read, starts, ahead.READ_THREADS):
        label = np.asarray(batch["target"])[: len(index)]
        waiting.append((index, label, good, function(batch)))
        if len(waiting) > IN_FLIGHT:
            yield _take(*waiting.pop(0))
    for one in waiting:
        yield _take(*one)


def _take(
    index: np.ndarray, label: np.ndarray, good: np.ndarray, result: jax.Array
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    probabilities = np.asarray(result, np.float64)[: len(index)]
    return index[good], label[good], probabilities[good]


def _show(setup: Setup, found: Predictions) -> dict[str, list[Shown]]:
    """Read the chosen examples again, for their pictures."""
    source, task = setup.splits.named()[found.split], setup.task
    groups = found.choose()
    places = sorted({place for chosen in groups.values() for place in chosen})
    unreadable: list[Any] = []
    index = found.index[places]
    images = source.read(index, unreadable=unreadable)["image"]
    bad = {one.index for one in unreadable}
    names = _names(source, index)
    shown = {
        place: Shown(
            picture=None if int(index[n]) in bad else to_address(images[n]),
            name=names[n],
            true=task.label(found.label[place]),
            predicted=task.label(found.predicted[place]),
            confidence=float(found.confidence[place]),
            true_probability=float(found.true_probability[place]),
            tiny=max(images.shape[1:3]) <= TINY,
        )
        for n, place in enumerate(places)
    }
    return {group: [shown[place] for place in some] for group, some in groups.items()}


def _names(source: Source, index: np.ndarray) -> list[str]:
    """Return the names of files, or the numbers of examples where there are none."""
    store, indices = getattr(source, "store", None), getattr(source, "indices", None)
    if store is not None and indices is not None:
        stored, _ = store.read(indices[index])
        if len(stored) and isinstance(stored[0], StoredFile):
            return [shown_name(one.name) for one in stored]
    return [f"no. {i}" for i in index.tolist()]


def _pairs(setup: Setup, history: History, order: DataOrder | None) -> list[Pair]:
    model, batch_size = history.model, setup.config.data.batch_size
    known = model.get("mean") and model.get("std")
    statistics = (tuple(model["mean"]), tuple(model["std"])) if known else None
    # Those that are mixed lie beside each other.
    group = 2 * setup.config.data.repeats
    num = min(batch_size, -(-NUM_PAIRS // group) * group)
    (first,) = first_images(
        setup,
        1,
        min(num, NUM_PAIRS),
        order=order,
        statistics=statistics,
        rows=slice(0, num),
    )
    before, after, labels = first
    return [
        Pair(
            before=to_address(one),
            after=to_address(other),
            label=label,
            tiny=max(one.shape[:2]) <= TINY,
        )
        for one, other, label in zip(before, after, labels, strict=True)
    ]
