"""Console tables of plans."""

import math
from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from jaxtrain.data.loader import PUT_AHEAD
from jaxtrain.parallel.mesh import BATCH_AXES
from jaxtrain.plugins.plan.plan import Plan

# Measured input throughput of decoded image files and of packed images, in images per
# second and core (docs/imagenet.md, docs/data.md).
DECODED, PACKED = 1_100, 41_000
IMAGE_FILES = ("folder", "csv", "tfds", "hf")
# Numeric columns of the comparison; all except the last are per device and step.
FIGURES = ("memory GiB", "HBM GB", "kernels", "GFLOP", "sent MB", "images/s bound")


def show(plan: Plan, price: float | None = None) -> None:
    """Print a plan; `price` is per device-hour."""
    rows = {
        **_describe_run(plan),
        **_describe_program(plan),
        **_describe_bound(plan, price),
        **_describe_host(plan),
    }
    table = Table(title=f"Plan for {plan.planner.target}", show_header=False)
    for name, value in rows.items():
        table.add_row(name, value)
    Console().print(table)


def show_side_by_side(plans: Mapping[str, Plan | str]) -> None:
    """Print a table with one row per plan, followed by the error messages.

    Names of config fields are printed without their section, to fit 80 columns.
    """
    table = Table(box=None, collapse_padding=True, pad_edge=False)
    table.add_column(no_wrap=True)
    for title in (*FIGURES, "fits", "bound by"):
        table.add_column(title, justify="right" if title in FIGURES else "left")
    for name, plan in plans.items():
        figures = ["refused"] if isinstance(plan, str) else _figures(plan)
        table.add_row(name.rpartition(".")[2], *figures)
    Console().print(table)
    for name, plan in plans.items():
        if isinstance(plan, str):
            print(f"{name}: {plan}")


def _figures(plan: Plan) -> list[str]:
    """Return the cells of a plan's row, in the order of the columns."""
    facts, roof, speed = plan.facts, plan.bound, plan.images_per_second
    return [
        f"{facts.peak_bytes / 2**30:,.2f}",
        f"{facts.hbm_bytes / 1e9:,.2f}",
        f"{facts.num_kernels:,}",
        f"{facts.flops / 1e9:,.0f}",
        f"{facts.wire_bytes / 1e6:,.1f}",
        "" if speed is None else f"{speed:,.0f}",
        "yes" if plan.fits else "no",
        "" if roof is None else roof.bound_by,
    ]


def _describe_run(plan: Plan) -> dict[str, str]:
    config, facts, source = plan.config, plan.facts, plan.planner.source
    mesh = " x ".join(f"{axis} {n}" for axis, n in facts.mesh.items()) or "one device"
    rest = facts.peak_bytes - facts.state_bytes - facts.input_bytes
    shares = math.prod(facts.mesh.get(axis, 1) for axis in BATCH_AXES)
    return {
        "model": f"{config.model.name}, {facts.num_params:,} parameters, "
        f"{config.precision}",
        "devices": f"{facts.num_devices} x {facts.device_kind}: {mesh}",
        "data": source
        if source == config.data.source
        else f"{source} is not prepared: planned for the images and the number of "
        f"examples of {config.data.source}",
        "batch": f"{facts.batch_size:,} per step, {facts.batch_size / shares:g} per "
        "device",
        "memory per device": f"{binary(facts.peak_bytes)} of "
        f"{binary(plan.usable_bytes)} that JAX uses: "
        f"{'fits' if plan.fits else 'DOES NOT FIT'}",
        "  state": binary(facts.state_bytes),
        "  input": binary(facts.input_bytes),
        "  activations": f"{binary(rest)} (without the workspace of convolutions)",
    }


def _describe_program(plan: Plan) -> dict[str, str]:
    facts = plan.facts
    an_image = facts.hbm_bytes * facts.num_devices / facts.batch_size
    rows = {
        "step": f"{facts.num_kernels:,} kernels, {_decimal(facts.hbm_bytes)} read and "
        f"written ({_decimal(an_image)} per image), "
        f"{_decimal(facts.flops, 'FLOP', 1)}, per device",
    }
    if facts.collectives:
        rows["sent"] = (
            f"{_decimal(facts.wire_bytes)} per device and step, as rings; parameters "
            f"and gradients need at least {_decimal(facts.minimum_bytes)}"
        )
    for kind, found in facts.collectives.items():
        rows[f"  {kind}"] = (
            f"{found['count']}, in total {_decimal(found['bytes'])} of "
            f"{'+'.join(found['dtypes'])}, {found['overlapped']:.0%} may overlap"
        )
    return rows


def _describe_bound(plan: Plan, price: float | None) -> dict[str, str]:
    roof = plan.bound
    if roof is None or plan.hours is None:
        kind = plan.facts.device_kind
        return {"bound": f"none: peak rates of {kind} are unknown, see docs/plan.md"}
    times = plan.timetable
    # Early steps may have smaller images, or fewer trainable layers.
    varied = len(times.image_sizes) > 1 or times.unfreeze_step is not None
    least = "if all steps are full steps" if varied else "at least"
    rows = {
        "bound": f"{plan.images_per_second:,.0f} images/s, "
        f"{1e3 * roof.step_seconds:,.2f} ms per step, limited by {roof.bound_by}",
        **{
            f"  {name}": f"{1e3 * seconds:,.2f} ms: {roof.rates[name]}"
            for name, seconds in roof.alone.items()
            if seconds
        },
        "run": f"{times.total_steps:,} steps, {times.num_examples:,} examples per "
        f"epoch: {plan.hours:,.2f} hours {least}",
    }
    if price is not None:
        rows["cost"] = f"{plan.cost(price):,.2f} {least}, at {price:g} per device-hour"
    return rows


def _describe_host(plan: Plan) -> dict[str, str]:
    save = plan.config.checkpoint
    rows = {
        "disk": f"{_decimal(plan.disk_bytes)}: {save.keep} newest checkpoints, "
        f"{save.keep_best} best, one read back, one being written, "
        f"{_decimal(plan.facts.checkpoint_bytes)} each"
    }
    speed = plan.images_per_second
    if plan.facts.cached or speed is None:
        return rows
    # Input throughput of one core, in images per second.
    files = plan.planner.source.partition(":")[0] in IMAGE_FILES
    rate, nodes = DECODED if files else PACKED, plan.planner.target.num_nodes
    image_bytes = math.prod(plan.planner.splits.input_shape)
    waiting = (PUT_AHEAD + 1) * plan.facts.batch_size * image_bytes
    rows["host"] = (
        f"{speed / nodes / rate:,.1f} cores per node keep up with the bound, at "
        f"{rate:,} images/s per core; {_decimal(waiting / nodes)} for prefetched "
        "batches"
    )
    return rows


def binary(num_bytes: float) -> str:
    """Format bytes of memory in binary units."""
    if num_bytes < 2**30:
        return f"{num_bytes / 2**20:,.1f} MiB"
    return f"{num_bytes / 2**30:,.2f} GiB"


def _decimal(number: float, unit: str = "B", digits: int = 2) -> str:
    """Format FLOPs or transferred bytes in decimal units."""
    if number < 1e9:
        return f"{number / 1e6:,.1f} M{unit}"
    return f"{number / 1e9:,.{digits}f} G{unit}"
