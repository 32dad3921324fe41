"""The table at the start of a run and the summary at its end."""

import dataclasses
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import jaxtrain
from jaxtrain.errors import counted
from jaxtrain.inference.description import Description
from jaxtrain.parallel import sharding
from jaxtrain.records.progress_bar import short_duration
from jaxtrain.run.attempt import Attempt
from jaxtrain.run.features import plan
from jaxtrain.run.phases import schedule_name
from jaxtrain.run.programs import Programs
from jaxtrain.run.setup import Setup
from jaxtrain.run.tested import Tested
from jaxtrain.tasks.base import Values
from jaxtrain.tasks.metrics import formatted
from jaxtrain.training.state import num_params

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
    splits = setup.splits.named()
    facts = setup.splits.train.facts
    names, digest = facts.get("class_names"), facts.get("digest")
    return {
        "source": setup.config.data.source,
        "num_examples": {name: len(source) for name, source in splits.items()},
        "num_classes": facts.get("num_classes"),
        "class_names": None if names is None else [str(name) for name in names],
        "digest": None if digest is None else str(digest),
    }


def describe_model(setup: Setup, programs: Programs) -> Description:
    """Return what there is to know of the model, to use it without its data."""
    config, splits = setup.config, setup.splits
    crop_pct, interpolation = config.data.fit
    return Description(
        task=config.task,
        task_options=config.task_options,
        model=dataclasses.replace(
            config.model, pretrained=None, pretrained_digest=None
        ),
        precision=config.precision,
        image_shape=splits.input_shape,
        num_outputs=setup.task.num_outputs,
        class_names=setup.task.class_names,
        mean=programs.mean,
        std=programs.std,
        crop_pct=crop_pct,
        interpolation=interpolation,
    )


def describe(setup: Setup, workdir: Path) -> dict[str, Any]:
    """Return what a person wants to see before a run starts."""
    config, timetable, splits = setup.config, setup.timetable, setup.splits
    height, width, channels = splits.input_shape
    num_validation = len(splits.validation) if splits.validation else 0
    steps, device = timetable.total_steps, jax.devices()[0]
    return {
        "model": f"{config.model.name}, {num_params(setup.abstract_state.params):,} "
        "parameters",
        "data": f"{config.data.source}, {height}x{width}x{channels}, "
        + setup.task.describe(),
        "examples": f"{len(splits.train):,} train, {num_validation:,} validation, "
        f"{len(splits.test):,} test",
        **_describe_remarks(setup),
        "batch": f"{timetable.batch_size} a step",
        "steps": f"{steps:,} in {timetable.epoch(steps):g} epochs of "
        f"{timetable.steps_per_epoch:,}",
        "optimizer": f"{config.optimizer.name}, {schedule_name(config)}",
        **_describe_frozen(setup),
        "precision": f"{config.precision}: {setup.policy.describe()}",
        "devices": f"{jax.device_count()} x {device.device_kind}, "
        f"{counted(jax.process_count(), 'process', 'processes')}",
        **_describe_sums(setup),
        **_describe_split(setup),
        **_describe_stages(setup),
        "workdir": workdir,
    }


def _describe_remarks(setup: Setup) -> dict[str, str]:
    """Describe what was passed over when the data were opened."""
    remarks = getattr(setup.splits.train, "remarks", ())
    return {remark.title: remark.text for remark in remarks}


def _describe_frozen(setup: Setup) -> dict[str, str]:
    """Describe how many parameters are frozen, and for how long."""
    frozen, until = setup.phases[0].update.frozen, setup.timetable.unfreeze_step
    if not frozen.layers:
        return {}
    patterns = ", ".join(setup.config.train.first_frozen)
    number = num_params(frozen.part(setup.abstract_state.params)[1])
    end = "throughout" if until is None else f"for the first {until:,} steps"
    rows = {"frozen": f"{patterns}: {number:,} parameters, {end}"}
    return rows if until is not None else rows | {"features": plan(setup).describe()}


def _describe_sums(setup: Setup) -> dict[str, str]:
    """Name the dtypes that the gradients of several devices are summed in."""
    mesh, copies = setup.mesh, setup.layout.copies
    compute = jnp.dtype(setup.policy.compute_dtype)
    sums = []
    if sharding.num_batch_shards(mesh) > 1:
        dtype = compute if copies is None else copies.sum_dtype
        sums.append(f"{dtype} over the examples")
    if sharding.num_image_parts(mesh) > 1:
        sums.append(f"{compute} over the parts of an image")
    return {"gradient sums": ", ".join(sums)} if sums else {}


def _describe_split(setup: Setup) -> dict[str, str]:
    """Name the layers that `parallel.model` leaves whole, though it divides them."""
    size = setup.mesh.shape["model"]
    if size == 1:
        return {}
    names = sharding.whole_layers(setup.abstract_state.params)
    shown = f"parallel.model = {size} divides but does not split {', '.join(names)}"
    return {"left whole": shown} if names else {}


def _describe_stages(setup: Setup) -> dict[str, str]:
    if setup.stages is None:
        return {}
    stages, idle_share = setup.stages.stages, setup.stages.timeline.idle_share
    flops = sum(stage.flops for stage in stages)
    rows = {
        f"stage {i}": f"{counted(stage.layout.mesh.size, 'device')}, "
        f"{stage.flops / flops:.1%} of the FLOPs: {stage.names[0]} to {stage.names[-1]}"
        for i, stage in enumerate(stages, start=1)
    }
    micro = setup.config.train.accumulate_steps
    batches = counted(micro, "micro-batch", "micro-batches")
    shown = f"{len(stages)} stages, {batches}, {idle_share:.1%} idle"
    return {"pipeline": shown, **rows}


def describe_result(
    setup: Setup, summary: dict[str, Any], workdir: Path
) -> dict[str, Any]:
    """Return what a person wants to see once a run has ended."""
    test = summary["eval"]
    shown = formatted(test, (*setup.task.shown, "loss"))
    return {
        **{f"test {name}": text for name, text in shown.items()},
        "examples": test["num_examples"],
        **_describe_weights(setup.best.metric, summary),
        "time": f"{short_duration(summary['train_seconds'])}, and "
        f"{short_duration(summary['compile_seconds'])} to compile",
        "workdir": workdir,
    }


def _describe_weights(metric: str, summary: dict[str, Any]) -> dict[str, str]:
    """Name the weights that were tested, and the last and the best if others."""
    model, last, best = summary["model"], summary["last"], summary["best"]

    def told(weights: dict[str, Any]) -> str:
        value = formatted(weights["validation"] or {}, (metric,)).get(metric)
        shown = "not validated" if value is None else f"validation {metric} {value}"
        return f"step {weights['step']:,}, {shown}"

    rows = {"tested weights": told(model)}
    if last["step"] != model["step"]:
        rows["last weights"] = told(last)
    if best is not None and best["step"] != model["step"]:
        gone = {**best, "validation": {metric: best["value"]}}
        rows["best weights"] = f"{told(gone)}, not kept"
    return rows


def summarize(
    attempt: Attempt, tested: Tested, test: Values, skipped_steps: int
) -> dict[str, Any]:
    """Return the contents of summary.json.

    Args:
      attempt: At its end.
      tested: The checkpoint that was tested.
      test: Its metrics of the test split.
      skipped_steps: Number of bad steps of the whole run.
    """
    setup, step, progress = attempt.job.setup, attempt.step, attempt.progress
    evaluated = progress.evaluated_step == step
    pipeline = {}
    if setup.stages is not None:
        pipeline["pipeline_idle_share"] = setup.stages.timeline.idle_share
    examples = step * setup.timetable.batch_size
    return {
        "step": step,
        "epoch": setup.timetable.epoch(step),
        "eval": test,
        "model": _weights(setup, tested.step, tested.validation),
        "last": _weights(setup, step, progress.eval_metrics if evaluated else None),
        "best": progress.best,
        "stopped_early": progress.stopped_early,
        "evals_without_improvement": progress.evals_without_improvement,
        "skipped_steps": skipped_steps,
        "data_offset": progress.data_offset,
        "train_seconds": progress.train_seconds,
        "compile_seconds": attempt.job.programs.compile_seconds(),
        "examples_per_second": examples / progress.step_seconds,
        "num_params": num_params(setup.abstract_state.params),
        "device_kind": jax.devices()[0].device_kind,
        "num_devices": jax.device_count(),
        "num_processes": jax.process_count(),
        "precision": setup.config.precision,
        "class_names": describe_data(setup)["class_names"],
        **pipeline,
        "versions": attempt.job.versions,
    }


def _weights(
    setup: Setup, step: int, validation: dict[str, Any] | None
) -> dict[str, Any]:
    epoch = setup.timetable.epoch(step)
    return {"step": step, "epoch": epoch, "validation": validation}
