"""Descriptions of the data, model and package versions of a run."""

import dataclasses
from importlib import metadata
from typing import Any

import jaxtrain
from jaxtrain.models.blueprint import plain_spec
from jaxtrain.trainer.run_data import RunData
from jaxtrain.trainer.setup import Setup
from jaxtrain.weights.description import Description

LIBRARIES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain")


def versions() -> dict[str, str]:
    """Versions of jaxtrain and its dependencies, by package name."""
    return {"jaxtrain": jaxtrain.__version__, **{n: _version(n) for n in LIBRARIES}}


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "unknown"


def describe_data(setup: Setup) -> dict[str, Any]:
    """Description of the data, for comparison when the run resumes."""
    facts = setup.splits.train.facts
    names, digest = facts.get("class_names"), facts.get("digest")
    return {
        "source": setup.config.data.source,
        "num_examples": {n: len(source) for n, source in setup.splits.named().items()},
        "num_classes": facts.get("num_classes"),
        "class_names": None if names is None else [str(name) for name in names],
        "digest": None if digest is None else str(digest),
    }


def describe_model(setup: Setup, run_data: RunData) -> Description:
    """Description of the model, sufficient to load the model without a data set."""
    config = setup.config
    crop_pct, interpolation, crop_mode = config.data.fit
    return Description(
        task=config.task.name,
        task_options=config.task.as_text(),
        model=dataclasses.replace(
            config.model, pretrained=None, pretrained_digest=None
        ),
        precision=config.precision,
        image_shape=setup.splits.input_shape,
        num_outputs=setup.task.num_outputs,
        output_spec=plain_spec(setup.task.output_spec),
        class_names=setup.task.class_names,
        column_names=setup.task.column_names,
        num_centres=setup.task.num_centres,
        projection=setup.task.projection,
        input=setup.splits.train.input,
        mean=run_data.mean,
        std=run_data.std,
        crop_pct=crop_pct,
        interpolation=interpolation,
        crop_mode=crop_mode,
        white_level=config.data.white_level,
        sliding_size=config.data.sliding_size,
    )
