"""Weak and strong scaling of a config's training step."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from matplotlib.figure import Figure

from jaxtrain.config import Config
from jaxtrain.errors import UserError, counted, nearest
from jaxtrain.parallel.gpus import GPUS
from jaxtrain.plugins.plan import gpu_compiler
from jaxtrain.plugins.plan.batch_search import with_batch
from jaxtrain.plugins.plan.facts import Facts
from jaxtrain.plugins.plan.measure import run_steps
from jaxtrain.plugins.plan.plan import make_planner
from jaxtrain.plugins.plan.stand_in import stand_in
from jaxtrain.plugins.plan.targets import CPU, HERE, Target

SIMULATED = (
    "devices are simulated on the CPU: times are meaningless, and memory and "
    "collectives differ from a GPU's; for memory and collectives of a GPU, use "
    "--compile-only --target h100"
)

Mode = Literal["weak", "strong"]
Platform = Literal["auto", "cpu", "gpu"]


def scale(
    config: Config,
    counts: Sequence[int],
    mode: Mode,
    platform: Platform,
    *,
    timed: bool,
    target: str | None = None,
) -> dict[str, Any]:
    """Plan the training step on several numbers of devices, and optionally time it.

    Without GPUs the devices are simulated on the CPU (see `SIMULATED`).

    Args:
      config: Config of the run; `data.batch_size` is per device (weak scaling) or for
        all devices (strong scaling).
      counts: Numbers of devices.
      mode: Scaling mode: the batch grows with the devices (weak) or is fixed (strong).
      platform: Platform of the devices; cpu simulates devices even if there are GPUs.
      timed: Whether to run and time the step, rather than only compile it.
      target: GPU to compile for, which need not be present. None compiles for
        `platform`.

    Returns:
      The contents of scaling.json, without the name of the config.

    Raises:
      UserError: The config is incompatible with the devices, there are too few devices,
        or the target cannot be timed.
    """
    if target is not None:
        _check_target(target, platform, timed=timed)
    gpus = [] if platform == "cpu" or target else gpu_compiler.visible_gpus()
    if (gpus or platform == "gpu") and max(counts) > len(gpus):
        fewer = f"give at most {len(gpus)}, or " if gpus else ""
        raise UserError(
            f"--devices {max(counts)}: this machine has {counted(len(gpus), 'GPU')}; "
            f"{fewer}simulate devices with --platform cpu"
        )
    simulated = not (gpus or target)
    data = stand_in(config.data)
    if data != config.data:
        print(f"{config.data.source} is not prepared: using {data.source} instead")
    config = replace(config, data=data)
    if simulated:
        print(SIMULATED)
    name = target or (CPU if simulated else HERE)
    runs: list[dict[str, Any]] = []
    for count in counts:
        on = Target(name=name, num_devices=count)
        planner, resolved = make_planner(at_devices(config, count, mode), on)
        facts, seconds = planner.plan(resolved).facts, None
        if timed:
            seconds = gpu_compiler.call(on, run_steps, resolved)["step_seconds"]
        runs.append(describe_run(facts, seconds, *runs[:1]))
        print(_line(runs[-1]), flush=True)
    return {
        "mode": mode,
        "preset": config.parallel.preset,
        "simulated": simulated,
        "target": target,
        "runs": runs,
    }


def _check_target(target: str, platform: str, *, timed: bool) -> None:
    """Raise UserError if a target is unknown or incompatible with other options."""
    if target not in GPUS:
        meant = nearest(target, GPUS, "; did you mean {!r}?")
        raise UserError(
            f"--target {target}: expected {', '.join(GPUS)}; give the numbers of GPUs "
            f"with --devices{meant}"
        )
    if platform != "auto":
        raise UserError(
            f"--target {target} --platform {platform}: steps are compiled either for "
            "another GPU (--target) or for this machine (--platform); leave one of the "
            "two options out"
        )
    if timed:
        raise UserError(
            f"--target {target} requires --compile-only, as steps for another GPU "
            "cannot be timed: add --compile-only"
        )


def parse_counts(text: str) -> list[int]:
    """Parse numbers of devices, such as 1,2,4,8; return them in ascending order.

    Raises:
      UserError: The list is invalid.
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise UserError(f"--devices {text}: expected numbers above 0, such as 1,2,4,8")
    return sorted({int(word) for word in words})


def at_devices(config: Config, count: int, mode: Mode) -> Config:
    """Return the config for `count` devices; weak scaling multiplies the batch size."""
    factor = count if mode == "weak" else 1
    return with_batch(config, factor * config.data.batch_size)


def describe_run(
    facts: Facts, seconds: float | None, first: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return an entry of `runs` in scaling.json.

    `efficiency` is images_per_second / devices, relative to the first run.

    Args:
      facts: Memory, kernels and collectives of the compiled step.
      seconds: Seconds of one step; None if not timed.
      first: Entry of the first run; None for the first run itself.
    """
    num, efficiency = facts.num_devices, None
    speed = seconds and facts.batch_size / seconds
    if speed is not None:
        start = first or {"images_per_second": speed, "devices": num}
        efficiency = speed / num * start["devices"] / start["images_per_second"]
    return {
        "devices": num,
        "step_seconds": seconds,
        "images_per_second": speed,
        "efficiency": efficiency,
        "state_bytes_per_device": facts.state_bytes,
        "peak_bytes_per_device": facts.peak_bytes,
        "collectives": facts.collectives,
        "wire_bytes_per_device": facts.wire_bytes,
        "minimum_collective_bytes": facts.minimum_bytes,
    }


def _line(run: Mapping[str, Any]) -> str:
    def mb(key: str) -> str:
        return f"{run[key] / 1e6:,.2f} MB"

    speed = run["images_per_second"]
    found = ", ".join(f"{c['count']} {kind}" for kind, c in run["collectives"].items())
    return (
        f"{counted(run['devices'], 'device')}: "
        f"{'' if speed is None else f'{speed:,.0f} images/s, '}"
        f"state {mb('state_bytes_per_device')}, peak {mb('peak_bytes_per_device')}, "
        f"{found or 'no collectives'}, {mb('wire_bytes_per_device')} sent "
        f"(minimum {mb('minimum_collective_bytes')}) per device"
    )


def plot(path: Path, result: Mapping[str, Any]) -> None:
    """Plot throughput (if measured on real devices), memory, and bytes sent.

    Args:
      path: Path of the PNG.
      result: Contents of scaling.json.
    """

    def mb(key: str) -> list[float]:
        return [run[key] / 1e6 for run in result["runs"]]

    devices = [run["devices"] for run in result["runs"]]
    speeds = [run["images_per_second"] for run in result["runs"]]
    # (label, measured values, reference values) of each subplot.
    state, peak = mb("state_bytes_per_device"), mb("peak_bytes_per_device")
    sent, minimum = mb("wire_bytes_per_device"), mb("minimum_collective_bytes")
    panels: list[tuple[str, dict[str, list[float]], dict[str, list[float]]]] = [
        ("MB per device", {"state": state, "peak": peak}, {}),
        ("MB sent per device and step", {"sent": sent}, {"minimum": minimum}),
    ]
    if not result["simulated"] and speeds[0] is not None:
        ideal = [speeds[0] / devices[0] * n for n in devices]
        panels.insert(0, ("images/s", {"measured": speeds}, {"ideal": ideal}))
    figure = Figure(figsize=(5 * len(panels), 4), layout="constrained")
    subplots = figure.subplots(1, len(panels))
    for axes, (label, found, compared) in zip(subplots, panels, strict=True):
        for name, line in found.items():
            axes.plot(devices, line, "o-", label=name)
        for name, line in compared.items():
            axes.plot(devices, line, "k:", label=name)
        axes.set_xscale("log", base=2)
        axes.set_xticks(devices, [str(n) for n in devices])
        axes.set_xlabel("devices")
        axes.set_ylabel(label)
        if compared:
            axes.set_ylim(bottom=0)
        else:
            axes.set_yscale("log")
        axes.legend()
    kind = "simulated devices" if result["simulated"] else result["target"] or "devices"
    figure.suptitle(
        f"{result['config']}: {result['mode']} scaling, {result['preset']}, {kind}"
    )
    figure.savefig(path, dpi=120)
