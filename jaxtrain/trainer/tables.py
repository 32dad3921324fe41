"""Console tables at the start and the end of a run."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxtrain.config import Config
from jaxtrain.data import hold_out
from jaxtrain.data.conversions import conversion_remarks
from jaxtrain.data.stores import describe_remarks, remarks_of
from jaxtrain.errors import counted
from jaxtrain.parallel import data_sharding
from jaxtrain.records.progress_bar import short_duration
from jaxtrain.tasks.metrics import formatted
from jaxtrain.trainer import advice
from jaxtrain.trainer.features import plan
from jaxtrain.trainer.learning_rate import schedule_name
from jaxtrain.trainer.setup import Setup
from jaxtrain.trainer.state_sharding import whole_layers
from jaxtrain.trainer.task_decoder import decoder_of
from jaxtrain.training.state import num_params

# The result table omits activities (`clock.ACTIVITIES`) that take less than this
# fraction of the time.
SMALL_SHARE = 0.01


def describe(setup: Setup, workdir: Path) -> dict[str, Any]:
    """Rows of the start-up table, by label."""
    config, timetable, splits = setup.config, setup.timetable, setup.splits
    height, width, channels = splits.input_shape
    num_validation = len(splits.validation) if splits.validation else 0
    steps, device = timetable.total_steps, jax.devices()[0]
    # Remarks on skipped files and on conversions of the data.
    remarks = (
        *remarks_of(splits.train.store),
        *conversion_remarks(splits.train, config.data),
    )
    return {
        "model": f"{config.model.name}, {num_params(setup.abstract_state.params):,} "
        "parameters",
        "data": f"{config.data.source}, {height}x{width}x{channels}, "
        + decoder_of(config, setup.task).describe(),
        "examples": f"{len(splits.train):,} train, {num_validation:,} validation, "
        f"{len(splits.test):,} test",
        **describe_absent(setup),
        **describe_remarks(remarks),
        **_describe_windows(setup),
        "batch": f"{timetable.batch_size} examples per step",
        "steps": f"{steps:,} in {timetable.epoch(steps):g} epochs of "
        f"{timetable.steps_per_epoch:,}",
        "optimizer": f"{config.optimizer.name}, {schedule_name(config)}",
        **_describe_frozen(setup),
        **_describe_transforms(setup),
        **_describe_quantization(setup),
        "precision": f"{config.precision}: {setup.policy.describe()}",
        "devices": f"{setup.num_devices} x {device.device_kind}, "
        f"{counted(jax.process_count(), 'process', 'processes')}",
        **_describe_mesh(setup),
        **setup.execution.describe(),
        "workdir": workdir,
    }


def describe_absent(setup: Setup) -> dict[str, str]:
    """Describe classes that are absent from evaluation splits."""
    if setup.config.data.hold_out == "classes":
        return {}
    splits = setup.splits
    parts = {"validation": splits.validation, "test": splits.test}
    found = {
        n: hold_out.absent_classes(part)
        for n, part in parts.items()
        if part is not None
    }
    return {
        f"no {name} images": hold_out.describe_absent(names)
        for name, names in found.items()
        if names
    }


def _describe_windows(setup: Setup) -> dict[str, str]:
    whole = setup.config.data.sliding_size
    if whole is None:
        return {}
    return {"evaluated": f"{whole}x{whole}, in {len(setup.grid)} windows"}


def _describe_quantization(setup: Setup) -> dict[str, str]:
    step = setup.timetable.fix_step
    if setup.config.model.quantize is None:
        return {}
    until = "" if step is None else f", with fixed ranges from step {step} on"
    return {"quantized": f"weights and activations to 8 bits{until}"}


def _describe_frozen(setup: Setup) -> dict[str, str]:
    frozen, until = setup.phases[0].frozen, setup.timetable.unfreeze_step
    if not frozen.layers:
        return {}
    patterns = ", ".join(setup.config.train.first_frozen)
    number = num_params(frozen.partition(setup.abstract_state.params)[1])
    end = "throughout" if until is None else f"for the first {until:,} steps"
    rows = {"frozen": f"{patterns}: {number:,} parameters, {end}"}
    return rows if until is not None else rows | {"features": plan(setup).describe()}


def _describe_transforms(setup: Setup) -> dict[str, str]:
    rows = [t.describe(setup.abstract_state) for t in setup.create.transforms]
    return {name: row for one in rows for name, row in one.items()}


def _describe_mesh(setup: Setup) -> dict[str, str]:
    """Describe gradient-sum dtypes, and layers that could be sharded but are not."""
    mesh, copies, rows = setup.mesh, setup.layout.copies, dict[str, str]()
    compute, size = jnp.dtype(setup.policy.compute_dtype), mesh.shape["model"]
    sums = []
    if data_sharding.num_batch_shards(mesh) > 1:
        dtype = compute if copies is None else copies.sum_dtype
        sums.append(f"{dtype} over the examples")
    if data_sharding.num_image_parts(mesh) > 1:
        sums.append(f"{compute} over the shards of an image")
    if sums:
        rows["gradient sums"] = ", ".join(sums)
    names = whole_layers(setup.abstract_state.params) if size > 1 else []
    if names:
        shown = ", ".join(names)
        rows["not split"] = f"parallel.model = {size} could shard {shown}, but does not"
    return rows


def describe_result(
    setup: Setup, summary: dict[str, Any], workdir: Path
) -> dict[str, Any]:
    """Rows of the result table, by label."""
    test = summary["eval"]
    shown = formatted(test, (*setup.task.shown, "loss"))
    return {
        **{f"test {name}": text for name, text in shown.items()},
        "examples": test["num_examples"],
        **_describe_weights(setup, summary),
        **_describe_sparsity(summary),
        # Both durations are totals over all starts of the run, as in `_describe_time`.
        "time": f"{short_duration(summary['train_seconds'])}, and "
        f"{short_duration(summary['seconds']['compile'])} to compile",
        **_describe_time(setup.config, summary),
        "workdir": workdir,
    }


def _describe_sparsity(summary: dict[str, Any]) -> dict[str, str]:
    found = summary.get("sparsity")
    if found is None:
        return {}
    nonzero = f"{found['nonzero']:,} of {found['weights']:,}"
    told = f"{found['sparsity']:.2%}: {nonzero} weights of kernels are not 0"
    return {"sparsity": told}


def _describe_time(config: Config, summary: dict[str, Any]) -> dict[str, str]:
    """Describe the time breakdown, with advice on a bottleneck."""
    seconds, mfu = summary["seconds"], summary.get("mfu")
    found = advice.shares(seconds).items()
    large = [f"{name} {share:.0%}" for name, share in found if share >= SMALL_SHARE]
    rows = {"seconds": f"{', '.join(large)} of {short_duration(sum(seconds.values()))}"}
    told = advice.advise(seconds, mfu, config)
    return rows | ({"bound by": "\n".join(told)} if told else {})


def _describe_weights(setup: Setup, summary: dict[str, Any]) -> dict[str, str]:
    """Describe the tested weights, and the last and best weights if different."""
    model, last, best = summary["model"], summary["last"], summary["best"]
    metric = setup.best.metric

    def told(weights: dict[str, Any]) -> str:
        value = formatted(weights["validation"] or {}, (metric,)).get(metric)
        shown = "not validated" if value is None else f"validation {metric} {value}"
        return f"step {weights['step']:,}, {shown}"

    rows = {"tested weights": told(model)}
    if last["step"] != model["step"]:
        rows["last weights"] = told(last)
    if best is not None and best["step"] != model["step"]:
        found = told({**best, "validation": {metric: best["value"]}})
        if setup.config.checkpoint.keep_best:
            rows["best weights"] = f"{found}, but the checkpoint was removed"
        else:
            rows["best evaluation"] = f"{found}; the last weights were tested"
            rows["best evaluation"] += " (checkpoint.keep_best = 0)"
    return rows
