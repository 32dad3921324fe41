"""Examples for the report of a run: predictions and augmented training images."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from jaxtrain.config import ParallelConfig, PlainConfig, check_own
from jaxtrain.data.order import DataOrder
from jaxtrain.errors import CheckpointError, UntrustedError, UserError
from jaxtrain.plugins.report.examples import (
    DrawnExample,
    Examples,
    Pair,
    Predictions,
    Shown,
)
from jaxtrain.plugins.report.history import History
from jaxtrain.plugins.report.nearest import (
    FindsNearest,
    NearestExamples,
    find_nearest,
    show_nearest,
)
from jaxtrain.plugins.report.pages.pictures import LARGE_SIDE, TINY, to_address
from jaxtrain.plugins.report.preview import first_images
from jaxtrain.plugins.report.sample import (
    SampleLimits,
    WorstExamples,
    example_names,
    find_worst,
    predict_some,
)
from jaxtrain.tasks.base import Task, with_chosen
from jaxtrain.tasks.prediction import Prediction
from jaxtrain.trainer.setup import Setup, build_setup

# Number of training images to show.
NUM_PAIRS = 8
# Maximum number of images and texts per example, and of characters per text.
MAX_PARTS, MAX_LETTERS = 4, 300


def examples_of(history: History) -> Examples:
    """Reopen the data set of a run, and collect examples for the report.

    Unavailable examples, such as images of a deleted data set, become notes on the
    page.
    """
    config = history.config
    if config is None:
        return Examples(notes=["Examples: the config cannot be read."])
    check_own(config, "data", "model", "optimizer", "task", "train")
    try:
        # Reset the fields that a report does not need: pretrained weights, the training
        # method, and parallelism, which one device may not support.
        model = replace(config.model, pretrained=None, pretrained_digest=None)
        plain = replace(
            config, model=model, method=PlainConfig(), parallel=ParallelConfig()
        )
        setup = build_setup(plain, devices=jax.devices()[:1])
    except Exception as error:
        return Examples(failed=[_told("Examples and their images", error)])
    return collect_examples(setup, history, SampleLimits())


def collect_examples(
    setup: Setup, history: History, limits: SampleLimits, order: DataOrder | None = None
) -> Examples:
    """Collect predictions and augmented images; only the calling process computes.

    Args:
      setup: Setup of the run, or of the same config on other devices.
      history: Records of the run.
      limits: Time limit and stop condition.
      order: Order of the training split. Computed by default.
    """
    notes: list[str] = []
    failed: list[str] = []

    def attempt(what: str, function: Callable[..., Any], *args: Any) -> Any:
        # An error in one section must not prevent the other sections.
        try:
            return None if limits.should_stop() else function(setup, *args)
        except UntrustedError:
            raise
        except Exception as error:
            failed.append(_told(what, error))
            return None

    predictions, shown, sample, drawn, nearest = None, {}, None, (), ()
    found = _choose_split(setup, history, notes)
    if found is not None:
        classes = setup.task.one_class_an_image
        look = predict_some if classes else find_worst
        if isinstance(setup.task, FindsNearest):
            look = find_nearest
        seen = attempt("Predictions", look, history.workdir, *found, limits)
        if seen is not None and not len(seen.index):
            failed.append(f"Predictions: no {found[0]} image can be read")
        elif seen is not None and classes:
            predictions, shown = seen, attempt("Images", _show, seen) or {}
        elif seen is not None:
            sample = seen.sample
            if isinstance(seen, NearestExamples):
                nearest = attempt("Images", show_nearest, seen) or ()
            else:
                drawn = attempt("Images", _draw, seen) or ()
    pairs = attempt("Training images", _pairs, history, order) or ()
    return Examples(
        predictions=predictions,
        shown=shown,
        sample=sample,
        drawn=drawn,
        nearest=nearest,
        pairs=pairs,
        notes=notes,
        failed=failed,
    )


def _told(what: str, error: Exception) -> str:
    known = isinstance(error, UserError | CheckpointError)
    return f"{what}: {error}" if known else f"{what}: {type(error).__name__}: {error}"


def _choose_split(
    setup: Setup, history: History, notes: list[str]
) -> tuple[str, int] | None:
    """Return the split and checkpoint step to predict, or None with a note in `notes`.

    The test split is only used after the end of a run.
    """
    step = history.checkpoint.get("step")
    if step is None:
        notes.append("Predictions: there is no readable checkpoint.")
        return None
    if history.finished and step == history.step:
        return "test", history.tested_step
    if setup.splits.validation is not None:
        return "validation", step
    notes.append(
        "Predictions: the run is not finished, and there is no validation split; the "
        "test split is only used after the end of the run."
    )
    return None


def _show(setup: Setup, found: Predictions) -> dict[str, list[Shown]]:
    """Reread the images of the chosen examples; return the examples by group."""
    source, task = setup.splits.named()[found.split], setup.task
    groups = found.choose()
    places = sorted({place for chosen in groups.values() for place in chosen})
    unreadable: list[Any] = []
    index = found.index[places]
    read = source.read(index, unreadable=unreadable)["image"]
    images = source.pictures(read)
    bad = {one.index for one in unreadable}
    names = example_names(source, index)
    shown = {
        place: Shown(
            picture=None if int(index[n]) in bad else to_address(images[n], LARGE_SIDE),
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


def _draw(setup: Setup, found: WorstExamples) -> list[DrawnExample]:
    """Draw the worst examples: up to `MAX_PARTS` images and texts per example.

    `Prediction.draw` draws the images if the decoder supports it, else
    `Task.draw_example`.
    """
    names = example_names(setup.splits.named()[found.sample.split], found.index)
    task, drawn = with_chosen(setup.task, found.chosen), []
    for n, image in enumerate(found.image):
        if found.drawable:
            shown = _drawn(task, image, *found.drawable[n])
        else:
            own = jax.tree.map(lambda x, n=n: x[n], (found.target, found.outputs))
            shown = task.draw_example(image, *own)
        parts = list(shown.items())[:MAX_PARTS]
        drawn.append(
            DrawnExample(
                picture=to_address(image, LARGE_SIDE),
                name=names[n],
                loss=float(found.loss[n]),
                pictures={k: _address(x) for k, x in parts if not isinstance(x, str)},
                texts={k: x[:MAX_LETTERS] for k, x in parts if isinstance(x, str)},
                tiny=max(image.shape[:2]) <= TINY,
            )
        )
    return drawn


def _drawn(
    task: Task, image: np.ndarray, target: Any, predicted: Prediction
) -> dict[str, np.ndarray | str]:
    """Draw target and prediction on the image; return title -> image or label."""
    label = task.label(target)
    pictures = {
        "true": task.draw_target(image, target),
        "predicted": predicted.draw(image),
    }
    return {**pictures, "target": label} if label else {**pictures}


def _address(picture: np.ndarray) -> str:
    """Encode an image drawn by a task as a `data:` URL.

    Raises:
      UserError: The value is not an image.
    """
    shape, dtype = np.shape(picture), getattr(picture, "dtype", type(picture))
    if dtype != np.uint8 or len(shape) != 3:
        raise UserError(
            f"draw_example of the task returned {dtype} {shape}: return strings or "
            "uint8 images (H, W, C)"
        )
    return to_address(picture, LARGE_SIDE)


def _pairs(setup: Setup, history: History, order: DataOrder | None) -> list[Pair]:
    model, group = history.model, setup.config.data.repeats
    group *= setup.config.data.augment.group
    known = model.get("mean") and model.get("std")
    # Load complete groups, as mixing augmentations combine the images of a group.
    num = min(setup.config.data.batch_size, -(-NUM_PAIRS // group) * group)
    (first,) = first_images(
        setup,
        1,
        min(num, NUM_PAIRS),
        order=order,
        statistics=(tuple(model["mean"]), tuple(model["std"])) if known else None,
        rows=slice(0, num),
    )
    return [
        Pair(
            before=to_address(before),
            after=to_address(after),
            label=label,
            tiny=max(before.shape[:2]) <= TINY,
        )
        for before, after, label in zip(*first, strict=True)
    ]
