"""How the training step of a config scales: planned for several numbers of devices."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from jaxtrain.config import Config
from jaxtrain.data.placeholder import stand_in
from jaxtrain.errors import UserError, counted, nearest
from jaxtrain.performance import gpu_compiler
from jaxtrain.performance.facts import Facts
from jaxtrain.performance.measure import run_steps
from jaxtrain.performance.plan import make_planner
from jaxtrain.performance.plot import plot
from jaxtrain.performance.targets import CPU, GPUS, HERE, Target
from jaxtrain.records.workdir import write_json

RESULT, PLOT = "scaling.json", "scaling.png"
SIMULATED = (
    "devices simulated on the CPU: times mean nothing, and its compiler's memory and "
    "collectives are not those of a GPU, which --compile-only --target h100 tells"
)

Mode = Literal["weak", "strong"]
Platform = Literal["auto", "cpu", "gpu"]


@dataclass(frozen=True)
class ScaledStep:
    """A step on some number of devices.

    Attributes:
      facts: Those of the compiled step.
      seconds: Of one step; None if it was not timed.
    """

    facts: Facts
    seconds: float | None = None

    @property
    def images_per_second(self) -> float | None:
        return self.seconds and self.facts.batch_size / self.seconds


def scale(
    config: Config,
    counts: Sequence[int],
    mode: Mode,
    platform: Platform,
    *,
    timed: bool,
    target: str | None = None,
) -> tuple[dict[str, Any], list[ScaledStep]]:
    """Plan, and maybe time, the training step on each number of devices.

    Without GPUs the devices are simulated on the CPU: its compiler's memory and
    collectives are not those of a GPU, and times mean nothing.

    Args:
      config: Config of the run. Its batch is that of one device (weak) or of all
        (strong).
      counts: Numbers of devices.
      mode: Whether the batch grows with the devices (weak) or stays (strong).
      platform: Platform of the devices; cpu simulates them on a machine with GPUs, too.
      timed: Whether to run the step, and not only compile it.
      target: GPU to compile for, which need not be here. None compiles for `platform`.

    Returns:
      What scaling.json holds, but for the name of the config; and all steps.

    Raises:
      UserError: config and devices do not fit, there are too few devices, or nothing
        can be measured of the target.
    """
    if target is not None:
        _check_target(target, platform, timed=timed)
    gpus = [] if platform == "cpu" or target else gpu_compiler.visible_gpus()
    if (gpus or platform == "gpu") and max(counts) > len(gpus):
        raise UserError(
            f"--devices {max(counts)}: this machine has {counted(len(gpus), 'GPU')}; "
            "--platform cpu simulates any number of devices"
        )
    simulated = not (gpus or target)
    data = stand_in(config.data)
    if data != config.data:
        print(f"{config.data.source} is not prepared: {data.source} stands for it")
    config = replace(config, data=data)
    if simulated:
        print(SIMULATED)
    name = target or (CPU if simulated else HERE)
    steps = []
    for count in counts:
        on = Target(name=name, num_devices=count)
        planner, settled = make_planner(at_devices(config, count, mode), on)
        facts, seconds = planner.plan(settled).facts, None
        if timed:
            seconds = gpu_compiler.call(run_steps, settled, on)["step_seconds"]
        steps.append(ScaledStep(facts, seconds))
        print(describe(steps[-1]), flush=True)
    return {
        "mode": mode,
        "preset": config.parallel.preset,
        "simulated": simulated,
        "target": target,
        "runs": rows(steps),
    }, steps


def _check_target(target: str, platform: str, *, timed: bool) -> None:
    """Raise UserError if the step cannot be compiled for a target, and no more."""
    if target not in GPUS:
        meant = nearest(target, GPUS, "; did you mean {!r}?")
        raise UserError(
            f"--target {target}: expected {', '.join(GPUS)}; --devices gives their "
            f"numbers{meant}"
        )
    if platform != "auto":
        raise UserError(
            f"--target {target} --platform {platform}: a step is compiled for one or "
            "the other; leave one out"
        )
    if timed:
        raise UserError(
            f"--target {target}: a GPU that need not be here cannot be timed; add "
            "--compile-only"
        )


def parse_counts(text: str) -> list[int]:
    """Read the numbers of devices, such as 1,2,4,8; return them in rising order.

    Raises:
      UserError: this is no such list.
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise UserError(
            f"--devices {text}: expected numbers above 0 and commas, such as 1,2,4,8"
        )
    return sorted({int(word) for word in words})


def at_devices(config: Config, count: int, mode: Mode) -> Config:
    """Return the config to measure on `count` devices."""
    factor = count if mode == "weak" else 1
    data = replace(
        config.data,
        batch_size=factor * config.data.batch_size,
        eval_batch_size=None,  # Nothing is evaluated: its size need not fit.
    )
    # One step a call is measured, and the epochs of a large batch may hold no more.
    train = replace(config.train, steps_per_call=1)
    return replace(config, data=data, train=train)


def rows(steps: Sequence[ScaledStep]) -> list[dict[str, Any]]:
    """Return the `runs` of scaling.json.

    `efficiency` is the speed of a device, relative to that in the first run:
    images_per_second of n devices / (n x that of one), if the first has one.
    """
    speeds = [step.images_per_second for step in steps]
    first = speeds[0] and speeds[0] / steps[0].facts.num_devices
    return [
        {
            "devices": (facts := step.facts).num_devices,
            "step_seconds": step.seconds,
            "images_per_second": speed,
            "efficiency": speed and first and speed / (facts.num_devices * first),
            "state_bytes_per_device": facts.state_bytes,
            "peak_bytes_per_device": facts.peak_bytes,
            "collectives": facts.collectives,
            "minimum_collective_bytes": facts.minimum_bytes,
        }
        for step, speed in zip(steps, speeds, strict=True)
    ]


def describe(step: ScaledStep) -> str:
    """Return a line on one step."""
    facts, speed = step.facts, ""
    if step.images_per_second is not None:
        speed = f"{step.images_per_second:,.0f} images/s, "
    found = ", ".join(f"{c['count']} {kind}" for kind, c in facts.collectives.items())
    return (
        f"{counted(facts.num_devices, 'device')}: {speed}state "
        f"{_mb(facts.state_bytes)}, peak {_mb(facts.peak_bytes)}, "
        f"{found or 'no collectives'}, {_mb(facts.wire_bytes)} sent "
        f"(minimum {_mb(facts.minimum_bytes)}) a device"
    )


def write(out: Path, result: dict[str, Any], steps: Sequence[ScaledStep]) -> None:
    """Write scaling.json and scaling.png."""
    write_json(out / RESULT, result)
    plot(out / PLOT, result, [step.facts.wire_bytes for step in steps])
    print(f"wrote {out / RESULT} and {out / PLOT}")


def _mb(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.2f} MB"
