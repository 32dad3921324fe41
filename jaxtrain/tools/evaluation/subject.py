"""Preparation of a trained model, its task and a split for an evaluation."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxtrain.config import Config, DataConfig
from jaxtrain.config.base import default_of
from jaxtrain.config.metadata import with_metadata
from jaxtrain.config.part import TASKS, make_part
from jaxtrain.data import opening, sources
from jaxtrain.data.fit import FIT, Fit
from jaxtrain.data.image_source import Source
from jaxtrain.errors import UserError
from jaxtrain.inference.model import TrainedModel
from jaxtrain.tasks.base import Task, with_chosen
from jaxtrain.tasks.build import build_task
from jaxtrain.tools.evaluation.class_mapping import are_by_number, map_classes
from jaxtrain.tools.evaluation.passes import Subject
from jaxtrain.trainer.task_decoder import decoder_of
from jaxtrain.training.views import CROPS

# Fields of `data` that may differ between an evaluation and the run.
FREE = with_metadata(DataConfig, "free_in_evaluation")
# Fields of `data` that select the held-out images of the run's data set.
HELD_OUT = with_metadata(DataConfig, "held_out")
ALL = "all"
# Fields of `data` that evaluations reset to their default, such as `augment`. The model
# itself cuts sliding windows, so `sliding_size` is also reset.
AS_EVALUATED: dict[str, Any] = {
    field.name: default_of(DataConfig(), field.name)
    for field in dataclasses.fields(DataConfig)
    if "reset_in_evaluation" in field.metadata
}


def as_evaluated(data: DataConfig) -> DataConfig:
    """Adapt a data config to evaluations that resize images on the host."""
    return dataclasses.replace(data, **AS_EVALUATED, image_size=data.seen_size)


def open_subject(
    model: TrainedModel,
    config: Config,
    data: DataConfig,
    split: str,
    *,
    tta: str | None = None,
    on_host: bool = False,
) -> tuple[Subject, Source]:
    """Open a split, and check that it fits the model.

    Args:
      model: Model to evaluate.
      config: Config of the model's run.
      data: Data config of the evaluation.
      split: Name of the split, or `all`.
      tta: Name of the test-time augmentation. None for plain images.
      on_host: Whether images are resized on the host instead of the device.

    Raises:
      UserError: The split is unknown, or its images or classes do not fit the model.
    """
    _check_fields(config.data, data)
    if data.source != config.data.source:
        data = dataclasses.replace(data, **{**AS_EVALUATED, **_of_images(model)})
    if tta in CROPS:
        data = _for_crops(data, str(tta))
    if on_host:
        data = as_evaluated(data)
    source, size, fit = _open_split(data, config.seed, split)
    if tta not in CROPS:
        _check_shape(source, size, model, data)
    source, classes = map_classes(source, model, data)
    task = task_of_model(config, model, source.facts, data)
    task.check_targets(source.targets_to_check(), f"--split {split} of {data.source}")
    subject = Subject(
        model=model, task=task, data=data, size=size, fit=fit, classes=classes
    )
    return subject, source


def config_of(model: TrainedModel, data: DataConfig) -> tuple[Config, DataConfig]:
    """Create a config for a model that has no run, and complete the data config.

    Args:
      model: Model, which defines the preprocessing.
      data: Data config of the evaluation, with only the fields that locate the images.

    Raises:
      UserError: `data` sets other fields.
    """
    about = model.description
    fixed = {**_of_images(model), "mean": about.mean, "std": about.std}
    if "image_size" in fixed:
        prepared = with_metadata(DataConfig, "from_weights")
        fixed |= {
            n: getattr(about, n) for n, of in prepared.items() if of == "resizing"
        }
    if about.white_level is not None:
        fixed["white_level"] = about.white_level
    blank = DataConfig()
    for name, value in fixed.items():
        if getattr(data, name) not in (getattr(blank, name), value):
            raise UserError(
                f"data.{name} = {getattr(data, name)!r} has no effect on an evaluation "
                f"of these weights, which require {value!r}: leave data.{name} out"
            )
    own = dataclasses.replace(DataConfig(), **fixed)
    task = make_part(TASKS, about.task, about.task_options)
    config = Config(task=task, data=own)
    return config, dataclasses.replace(data, **fixed)


def _of_images(model: TrainedModel) -> dict[str, Any]:
    """Return the fields of `data` that produce the model's image shape."""
    if not model.description.input.are_images:
        fields = {field.name for field in dataclasses.fields(DataConfig)}
        about = vars(model.description.input)
        return {name: value for name, value in about.items() if name in fields}
    height, width, channels = model.description.whole_shape
    size = {"image_size": height} if height == width else {}
    return size | ({"channels": channels} if channels in (1, 3) else {})


def _check_fields(run: DataConfig, given: DataConfig) -> None:
    """Raise UserError if `given` changes a field that evaluations take from the run."""
    for name in (field.name for field in dataclasses.fields(run)):
        value = getattr(given, name)
        if name not in FREE and value != getattr(run, name):
            raise UserError(
                f"data.{name} = {value!r} has no effect on an evaluation, which uses "
                f"the preprocessing of the run: leave data.{name} out"
            )
    for name in HELD_OUT:
        value = getattr(given, name)
        if given.source == run.source and value != getattr(run, name):
            raise UserError(
                f"data.{name} = {value!r} differs from the run, so that the "
                f"evaluated split of {run.source} would contain training images: leave "
                f"data.{name} out"
            )


def _for_crops(data: DataConfig, tta: str) -> DataConfig:
    """Return a data config with larger images, from which `tta` takes crops.

    Images have the size before the centre crop, `image_size / crop_pct`: for example
    256 pixels for crops of 224.
    """
    crop_pct, _, crop_mode = data.fit
    if data.image_size is None or crop_mode != "center" or crop_pct == 1:
        why = "images are not resized"
        if data.image_size:
            whole = f"data.crop_mode is {crop_mode}"
            why = "data.crop_pct is 1" if crop_mode == "center" else whole
        raise UserError(
            f"--tta {tta}: {why}, so the centre crop covers all pixels: give --tta flip"
        )
    larger = round(data.image_size / crop_pct)
    return dataclasses.replace(data, image_size=larger, crop_pct=1.0, **AS_EVALUATED)


def task_of_model(
    config: Config, model: TrainedModel, facts: Mapping[str, Any], data: DataConfig
) -> Task:
    """Create the task of a run, for the data set of an evaluation.

    Args:
      config: Config of the run.
      model: Model of the run.
      facts: Metadata of the data set (`Store.facts`).
      data: Data config of the evaluation.

    Raises:
      UserError: The data set has other classes than the model.
    """
    about = model.description
    task = with_chosen(build_task(config, about.image_shape, facts), about.chosen)
    describe = decoder_of(config, task).describe
    if task.num_outputs != about.num_outputs:
        raise UserError(
            f"data.source = {data.source!r} has {describe()}, but the model has "
            f"{about.num_outputs} outputs: use a data set with the classes of the "
            "training data"
        )
    if task.class_names is not None and about.class_names is not None:
        _check_names(task.class_names, about.class_names, data)
    if task.column_names != about.column_names:
        raise UserError(
            f"data.source = {data.source!r} has {describe()}, but the model was "
            f"trained on the columns {', '.join(about.column_names or ())}: set "
            "data.targets to these columns, in this order"
        )
    return task


def _check_names(
    names: tuple[str, ...], known: tuple[str, ...], data: DataConfig
) -> None:
    """Raise UserError if class names or their order differ.

    `map_classes` has already mapped the classes of data sets that it supports.
    """
    if are_by_number(names, known):
        return
    for i, (found, wanted) in enumerate(zip(names, known, strict=True)):
        if found != wanted:
            raise UserError(
                f"data.source = {data.source!r}: class {i} is {found!r}, but "
                f"{wanted!r} in the model: use the class names of the training data"
            )


def open_other(name: str, model: TrainedModel, own: DataConfig) -> Source:
    """Open out-of-distribution images: the test split, if any, or all splits.

    Args:
      name: Data set, as in `data.source`.
      model: Model to evaluate on the images.
      own: Data config of the in-distribution images.

    Raises:
      UserError: The data set cannot be opened, or has images of another shape.
    """
    same = with_metadata(DataConfig, "any_source")
    data = DataConfig(
        source=name,
        data_dir=own.data_dir if name.startswith("tfds:") else None,
        **_of_images(model),
        **{field: getattr(own, field) for field in same},
    )
    store, splits = opening.open_store(data, to_train=False)
    text = sources.TEST if sources.TEST in splits else ALL
    source = sources.open_split(data, store, splits, False, text)
    _check_shape(source, None, model, data)
    return dataclasses.replace(source, change=_without_labels)


def _without_labels(batch: dict[str, Any], indices: np.ndarray) -> dict[str, Any]:
    """Replace the labels of a batch by zeros, int32 (n,)."""
    return {**batch, "target": np.zeros(len(indices), np.int32)}


def _open_split(
    data: DataConfig, seed: int, split: str
) -> tuple[Source, int | None, Fit]:
    """Open a split; also return the size and `Fit` for resizing on the device."""
    if split == ALL:
        data = as_evaluated(data)
        store, named = opening.open_store(data, to_train=False)
        return sources.open_split(data, store, named, False, ALL), None, FIT
    opened = opening.open_store(data, to_train=False)
    splits = sources.load_splits(data, seed, *opened)
    named_splits = splits.named()
    if split not in named_splits:
        raise UserError(
            f"{data.source} has the splits {', '.join(named_splits)}, but no {split} "
            "split: choose another --split; --calibrate requires a validation split"
        )
    return named_splits[split], splits.seen_size, splits.fit


def _check_shape(
    source: Source, size: int | None, model: TrainedModel, data: DataConfig
) -> None:
    kind = model.description.input
    if source.input != kind:
        kinds = [
            f"{x.noun}s ({x.settings})" if x.settings else f"{x.noun}s"
            for x in (source.input, kind)
        ]
        raise UserError(
            f"{data.source} has {kinds[0]}, but the model takes {kinds[1]}: use a data "
            f"set of {kinds[1]}"
        )
    height, width, channels = source.model_input_shape
    found = size or height, size or width, channels
    wanted = model.image_shape
    if kind.are_images:
        wanted = model.description.whole_shape
    if found != wanted:
        raise UserError(
            f"{data.source} has images of {'x'.join(map(str, found))} (height, width, "
            f"channels), but the model takes {'x'.join(map(str, wanted))}: convert the "
            "images to this shape"
        )
