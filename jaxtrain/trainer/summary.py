"""What is recorded of a run: its data, its model, its versions and its summary."""

import dataclasses
from importlib import metadata
from typing import Any

import jax

import jaxtrain
from jaxtrain.models.blueprint import plain_spec
from jaxtrain.tasks.base import Values
from jaxtrain.trainer.attempt import Attempt
from jaxtrain.trainer.programs import Programs
from jaxtrain.trainer.setup import Setup
from jaxtrain.trainer.telemetry import flop_utilization
from jaxtrain.training.state import num_params
from jaxtrain.weights.description import Description

LIBRARIES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain")


def versions() -> dict[str, str]:
    """Return the versions of jaxtrain and of what it is built on."""
    return {"jaxtrain": jaxtrain.__version__, **{n: _version(n) for n in LIBRARIES}}


def _version(library: str) -> str:
    """Return what its metadata say: a library may be there without them."""
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "unknown"


def describe_data(setup: Setup) -> dict[str, Any]:
    """Return what is remembered of the data: is it the same when the run goes on?"""
    facts = setup.splits.train.facts
    names, digest = facts.get("class_names"), facts.get("digest")
    return {
        "source": setup.config.data.source,
        "num_examples": {n: len(source) for n, source in setup.splits.named().items()},
        "num_classes": facts.get("num_classes"),
        "class_names": None if names is None else [str(name) for name in names],
        "digest": None if digest is None else str(digest),
    }


def describe_model(setup: Setup, programs: Programs) -> Description:
    """Return what there is to know of the model, to use it without its data."""
    config = setup.config
    crop_pct, interpolation, crop_mode = config.data.fit
    return Description(
        task=config.task,
        task_options=config.task_options,
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
        mean=programs.mean,
        std=programs.std,
        crop_pct=crop_pct,
        interpolation=interpolation,
        crop_mode=crop_mode,
        white_level=config.data.white_level,
        sliding_size=config.data.sliding_size,
    )


def summarize(
    attempt: Attempt,
    tested_step: int,
    validation: dict[str, Any] | None,
    test: Values,
    skipped_steps: int,
) -> dict[str, Any]:
    """Return the contents of summary.json.

    Args:
      tested_step: Step of the checkpoint that was tested.
      validation: Its metrics of the validation split; None if it was not evaluated.
      skipped_steps: Number of bad steps of the whole run.
    """
    setup, step, progress = attempt.job.setup, attempt.step, attempt.progress
    epoch, told = setup.timetable.epoch, {}
    for transform in setup.create.transforms:
        told |= transform.summarize(attempt.state)

    def weights(step: int, validation: dict[str, Any] | None) -> dict[str, Any]:
        return {"step": step, "epoch": epoch(step), "validation": validation}

    evaluated = progress.evaluated_step == step
    speed = step * setup.timetable.batch_size / progress.step_seconds
    mfu = flop_utilization(attempt.job, step - 1, speed)
    return {
        "step": step,
        "epoch": epoch(step),
        "eval": test,
        "model": weights(tested_step, validation),
        "last": weights(step, progress.eval_metrics if evaluated else None),
        "best": progress.best,
        "stopped_early": progress.stopped_early,
        "evals_without_improvement": progress.evals_without_improvement,
        "skipped_steps": skipped_steps,
        "train_seconds": progress.train_seconds,
        "wall_seconds": sum(progress.seconds.values()),
        "seconds": progress.seconds,
        "goodput": progress.seconds["step"] / sum(progress.seconds.values()),
        "compile_seconds": attempt.job.programs.compile_seconds(),
        "examples_per_second": speed,
        **({} if mfu is None else {"mfu": mfu}),
        "num_params": num_params(setup.abstract_state.params),
        "device_kind": jax.devices()[0].device_kind,
        "num_devices": setup.num_devices,
        "num_processes": jax.process_count(),
        "precision": setup.config.precision,
        "class_names": describe_data(setup)["class_names"],
        **setup.execution.summary(),
        **told,
        "versions": attempt.job.versions,
    }
