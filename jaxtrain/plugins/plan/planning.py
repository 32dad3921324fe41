"""Implementation of `main.py plan`: one plan, the largest batch, or a comparison."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from jaxtrain import config as config_lib
from jaxtrain.config import Config, Preset
from jaxtrain.console import print_stderr
from jaxtrain.errors import UserError
from jaxtrain.json_files.write import write_json
from jaxtrain.parallel.devices import nvidia_gpus
from jaxtrain.parallel.gpus import gpu_name
from jaxtrain.plugins.plan import batch_search, gpu_compiler, plan_table
from jaxtrain.plugins.plan.batch_search import with_batch
from jaxtrain.plugins.plan.measure import run_steps
from jaxtrain.plugins.plan.plan import Plan, Planner, make_planner
from jaxtrain.plugins.plan.targets import HERE, Target


def carry_out(
    config: Config,
    target: Target,
    *,
    batch: Literal["max"] | int | None,
    presets: Sequence[Preset],
    price: float | None,
    check: bool,
    path: Path,
) -> None:
    """Plan a config, compare parallel presets, and write plan.json.

    Args:
      config: Config of the run.
      target: Target to plan for.
      batch: Batch size, or "max" for the largest that fits in memory. Defaults to
        `data.batch_size`.
      presets: Values of `parallel.preset` to compare.
      price: Price per device-hour, or None.
      check: Whether to run a few steps, and compare their memory with the plan.
      path: Path of plan.json.

    Raises:
      UserError: The config is invalid, compilation for the target fails, or the step
        does not fit in memory, even with one of `presets` or `memory_changes`.
    """
    if check:
        _check_is_here(target)
    planner, resolved = make_planner(config, target)
    if batch == "max":
        plan = largest_batch(planner, resolved)
    else:
        plan = planner.plan(resolved if batch is None else with_batch(resolved, batch))
    plan_table.show(plan, price)
    result, plans = plan.to_json(price), [plan]

    def compare(key: str, changes: Mapping[str, tuple[str, Any]]) -> None:
        found = alternatives(plan, changes)
        plan_table.show_side_by_side(found)
        result[key] = {
            name: {"error": other} if isinstance(other, str) else other.to_json()
            for name, other in found.items()
        }
        plans.extend(p for p in found.values() if isinstance(p, Plan))

    if presets:
        compare("compare", {name: ("parallel.preset", name) for name in presets})
    if check:
        result["check"] = _check(plan)
    if not plan.fits:
        print("The step does not fit in memory. Plans with one change each:")
        compare("changes", memory_changes(plan.config, plan.facts.num_devices))
    write_json(path, result)
    print(f"wrote {path}")
    if not any(plan.fits for plan in plans):
        raise UserError(
            f"data.batch_size = {plan.facts.batch_size} needs "
            f"{plan.facts.peak_bytes / 2**30:,.2f} GiB per device, but {target} has "
            f"{plan.usable_bytes / 2**30:,.2f} GiB, and no single change suffices: "
            "find the largest batch that fits with --batch max"
        )


def _check_is_here(target: Target) -> None:
    """Raise UserError if a target's GPUs are not the GPUs of this machine."""
    gpus = nvidia_gpus()
    here = list(map(gpu_name, gpus))
    if target.gpu is not None and here != [target.name] * (target.num_devices or 0):
        raise UserError(
            f"--check: this machine has {', '.join(gpus) or 'no NVIDIA GPU'}, but the "
            f"plan is for {target}: leave --check out, or give `--target here`"
        )


def _check(plan: Plan) -> dict[str, float]:
    """Run a few steps on this machine, and compare their peak memory with the plan."""
    target = plan.planner.target
    if target.gpu is not None:
        target = Target(name=HERE, num_devices=None)
    found = gpu_compiler.call(target, run_steps, plan.config)
    ratio = found["peak_bytes"] / found["planned_bytes"]
    print_stderr(
        f"measured: {found['peak_bytes'] / 2**30:,.3f} GiB per device, {ratio:.3f} "
        f"of the planned memory; {1e3 * found['step_seconds']:,.2f} ms per step"
    )
    return {**found, "memory_ratio": ratio}


def alternatives(
    plan: Plan, changes: Mapping[str, tuple[str, Any]]
) -> dict[str, Plan | str]:
    """Plan a config with each of several changes; return plans or error messages.

    Args:
      plan: Plan of the original config.
      changes: Name of each change -> (field path, new value).
    """
    found: dict[str, Plan | str] = dict.fromkeys(changes, "")
    changed: dict[str, Config] = {}
    for name, (path, value) in changes.items():
        try:
            changed[name] = config_lib.replace(plan.config, path, value)
        except UserError as error:
            found[name] = str(error)
    return found | plan.planner.plans(changed)


def memory_changes(config: Config, num_devices: int) -> dict[str, tuple[str, Any]]:
    """List changes that may lower device memory, smallest slowdown first.

    Returns:
      Name of each change -> (field path, new value).
    """
    found: list[tuple[str, Any]] = []
    if config.precision in ("fp32", "tf32"):
        found.append(("precision", "bf16"))
    if num_devices > 1 and config.parallel.preset == "data_parallel":
        found.append(("parallel.preset", "fsdp"))
    more = [factor * config.train.accumulate_steps for factor in (2, 4)]
    divisors = [micro for micro in more if config.data.batch_size % micro == 0]
    found += [("train.accumulate_steps", micro) for micro in divisors]
    if config.train.remat == "none":
        found += [("train.remat", name) for name in ("conv_outputs", "block", "full")]
    return {f"{name} {value}": (name, value) for name, value in found}


def largest_batch(planner: Planner, config: Config) -> Plan:
    """Plan the largest batch that fits in memory, to within 1/64 of its size.

    Raises:
      UserError: The smallest batch does not fit, or there are too few examples.
    """
    num_devices = planner.target.num_devices
    if num_devices is None:
        num_devices = planner.plan(config).facts.num_devices

    def attempt(config: Config) -> Plan | None:
        plan = planner.plan(config)
        return plan if plan.fits else None

    most = len(planner.splits.train)
    found = batch_search.largest_batch(
        attempt, config, num_devices=num_devices, most=most, option="--batch max"
    )
    if found is None:
        unit = batch_search.batch_unit(config, num_devices)
        raise UserError(
            f"data.batch_size = {unit}, the smallest possible, does not fit on "
            f"{planner.target}: use smaller images, a smaller model, or more devices "
            "with --parallel.preset fsdp"
        )
    return found
