"""What `main.py plan` does: one plan, or several side by side, shown and written."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from jaxtrain.config import Config, Preset
from jaxtrain.console import tell
from jaxtrain.errors import UserError, nearest
from jaxtrain.parallel.devices import nvidia_gpus
from jaxtrain.performance import gpu_compiler, plan_table
from jaxtrain.performance.fitting import changes, largest_batch, with_batch
from jaxtrain.performance.measure import run_steps
from jaxtrain.performance.plan import Plan, Planner, make_planner
from jaxtrain.performance.targets import HERE, Target, target_of
from jaxtrain.records.workdir import make_folder, write_json


def parse_presets(text: str | None) -> list[Preset]:
    """Read presets such as data_parallel,fsdp.

    Raises:
      UserError: there is no such preset.
    """
    names = [word.strip() for word in text.split(",")] if text is not None else []
    known = get_args(Preset)
    for name in names:
        if name not in known:
            meant = nearest(name, known, "; did you mean {!r}?")
            raise UserError(
                f"--compare {text}: {name!r} is no preset: there is "
                f"{', '.join(known)}{meant}"
            )
    return list(dict.fromkeys(names))  # pyright: ignore[reportReturnType]


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
    """Plan a config, and write the plan; `presets` are planned beside it.

    Raises:
      UserError: the config is wrong, cannot be compiled for the target, or does not fit
        on it with any of the presets or changes.
    """
    if check:
        _check_is_here(target)
    make_folder(path.parent)
    planner, settled = make_planner(config, target)
    plan = _plan(planner, settled, batch)
    plan_table.show(plan, price)
    result = plan.to_json(price)
    others: dict[str, Plan | str] = {}

    def compare(key: str, changes: Mapping[str, tuple[str, Any]]) -> None:
        found = planner.alternatives(plan.config, changes)
        plan_table.show_side_by_side(found)
        result[key] = {name: _to_json(other) for name, other in found.items()}
        others.update(found)

    if presets:
        compare("compare", {name: ("parallel.preset", name) for name in presets})
    if check:
        result["check"] = _check(plan)
    if not plan.fits:
        print("It does not fit. With one change each:")
        compare("changes", changes(plan.config, plan.facts.num_devices))
    write_json(path, result)
    print(f"wrote {path}")
    if not any(isinstance(p, Plan) and p.fits for p in (plan, *others.values())):
        raise UserError(
            f"data.batch_size = {plan.facts.batch_size} needs "
            f"{plan.facts.peak_bytes / 2**30:,.2f} GiB a device, {target} has "
            f"{plan.usable_bytes / 2**30:,.2f}, and no single change makes it fit: "
            "--batch max finds the largest batch that does"
        )


def _plan(planner: Planner, config: Config, batch: Literal["max"] | int | None) -> Plan:
    if batch == "max":
        return largest_batch(planner, config)
    return planner.plan(config if batch is None else with_batch(config, batch))


def _to_json(plan: Plan | str) -> dict[str, Any]:
    return {"error": plan} if isinstance(plan, str) else plan.to_json()


def _check_is_here(target: Target) -> None:
    """Raise UserError if this machine does not have what a plan is for."""
    here = [target_of(name) for name in nvidia_gpus()]
    if target.gpu is None or here == [target.name] * (target.num_devices or 0):
        return
    found = ", ".join(nvidia_gpus()) or "no NVIDIA GPU"
    raise UserError(
        f"--check: this machine has {found}, and the plan is for {target}: leave "
        "--check out, or take --target here"
    )


def _check(plan: Plan) -> dict[str, float]:
    """Run a few steps here, and show what they took beside the plan."""
    target = plan.planner.target
    if target.gpu is not None:
        target = Target(name=HERE, num_devices=None)
    found = gpu_compiler.call(target, run_steps, plan.config)
    ratio = found["peak_bytes"] / found["planned_bytes"]
    tell(
        f"measured: {found['peak_bytes'] / 2**30:,.3f} GiB a device, {ratio:.3f} of "
        f"the plan; {1e3 * found['step_seconds']:,.2f} ms a step"
    )
    return {**found, "memory_ratio": ratio}
