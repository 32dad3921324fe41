"""How the training step of a config scales: measured for several numbers of devices."""

import concurrent.futures
import contextlib
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from jaxtrain import own
from jaxtrain.config import Config
from jaxtrain.data.placeholder import stand_in
from jaxtrain.errors import UserError, counted
from jaxtrain.parallel.devices import nvidia_gpus
from jaxtrain.performance import gpu_scale
from jaxtrain.performance.measure import Measurement, measure
from jaxtrain.performance.plot import plot
from jaxtrain.records.workdir import write_json

RESULT, PLOT = "scaling.json", "scaling.png"
SIMULATED = (
    "devices simulated on the CPU: times mean nothing, and its compiler's memory and "
    "collectives are not those of a GPU, which --compile-only --target h100 tells"
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
) -> tuple[dict[str, Any], list[Measurement]]:
    """Measure the training step on each number of devices.

    Each number has a process of its own, as JAX cannot change its devices. Without
    GPUs the devices are simulated on the CPU: its compiler's memory and collectives are
    not those of a GPU, and times mean nothing.

    Args:
      config: Config of the run. Its batch is that of one device (weak) or of all
        (strong).
      counts: Numbers of devices.
      mode: Whether the batch grows with the devices (weak) or stays (strong).
      platform: Platform of the devices; cpu simulates them on a machine with GPUs, too.
      timed: Whether to run the step, and not only compile it.
      target: GPU to compile for, which need not be here. None compiles for `platform`.

    Returns:
      What scaling.json holds, but for the name of the config; and all measurements.

    Raises:
      UserError: config and devices do not fit, there are too few devices, or nothing
        can be measured of the target.
    """
    if target is not None:
        gpu_scale.check_target(target, platform, timed=timed)
    gpus = [] if platform == "cpu" or target else _visible_gpus()
    if gpus and max(counts) > len(gpus):
        raise UserError(
            f"--devices {max(counts)}: this machine has {counted(len(gpus), 'GPU')}; "
            "--platform cpu simulates any number of devices"
        )
    simulated = not (gpus or target) and platform != "gpu"
    data = stand_in(config.data)
    if data != config.data:
        print(f"{config.data.source} is not prepared: {data.source} stands for it")
    config = replace(config, data=data)
    if simulated:
        print(SIMULATED)
    measured = []
    for count in counts:
        settled = at_devices(config, count, mode)
        if target is not None:
            measured.append(gpu_scale.compile_for(target, settled, count))
        else:
            on = "cpu" if simulated else platform
            shown = None if simulated else gpus[:count]
            measured.append(_measure(settled, count, shown, on, timed=timed))
        print(describe(measured[-1]), flush=True)
    return {
        "mode": mode,
        "preset": config.parallel.preset,
        "simulated": simulated,
        "target": target,
        "runs": rows(measured),
    }, measured


def _measure(
    config: Config,
    count: int,
    gpus: Sequence[str] | None,
    platform: Platform,
    *,
    timed: bool,
) -> Measurement:
    """Measure a step on these GPUs, or so many simulated devices."""
    env = {"JAX_NUM_CPU_DEVICES": str(count)}
    if gpus is not None:
        env = {"CUDA_VISIBLE_DEVICES": ",".join(gpus)}
    with _new_process(env) as pool:
        try:
            return pool.submit(measure, config, platform, timed=timed).result()
        except BrokenProcessPool:
            raise UserError(
                f"the process for {counted(count, 'device')} was killed, perhaps "
                "for want of memory: try a smaller data.batch_size"
            ) from None


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


def rows(measured: Sequence[Measurement]) -> list[dict[str, Any]]:
    """Return the `runs` of scaling.json.

    `efficiency` is the speed of a device, relative to that in the first run:
    images_per_second of n devices / (n x that of one), if the first has one.
    """
    speeds = [m.images_per_second for m in measured]
    first = speeds[0] and speeds[0] / measured[0].devices
    return [
        {
            "devices": m.devices,
            "step_seconds": m.step_seconds,
            "images_per_second": speed,
            "efficiency": speed and first and speed / (m.devices * first),
            "state_bytes_per_device": m.state_bytes,
            "peak_bytes_per_device": m.peak_bytes,
            "collectives": m.collectives,
            "minimum_collective_bytes": m.minimum_bytes,
        }
        for m, speed in zip(measured, speeds, strict=True)
    ]


def describe(m: Measurement) -> str:
    """Return a line on one measurement."""
    speed = ""
    if m.images_per_second is not None:
        speed = f"{m.images_per_second:,.0f} images/s, "
    found = ", ".join(f"{c['count']} {kind}" for kind, c in m.collectives.items())
    return (
        f"{counted(m.devices, 'device')}: {speed}state {_mb(m.state_bytes)}, peak "
        f"{_mb(m.peak_bytes)}, {found or 'no collectives'}, {_mb(m.wire_bytes)} sent "
        f"(minimum {_mb(m.minimum_bytes)}) a device"
    )


def write(out: Path, result: dict[str, Any], measured: Sequence[Measurement]) -> None:
    """Write scaling.json and scaling.png."""
    write_json(out / RESULT, result)
    plot(out / PLOT, result, [m.wire_bytes for m in measured])
    print(f"wrote {out / RESULT} and {out / PLOT}")


def _visible_gpus() -> list[str]:
    """List the GPUs that a process may use, as $CUDA_VISIBLE_DEVICES names them."""
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        return []
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name for name in chosen.split(",") if name]
    return [str(i) for i in range(len(nvidia_gpus()))]


@contextlib.contextmanager
def _new_process(
    env: dict[str, str],
) -> Iterator[concurrent.futures.ProcessPoolExecutor]:
    """Start a process with other environment variables, which JAX reads on import."""
    old = dict(os.environ)
    os.environ.update(env)
    context = multiprocessing.get_context("spawn")
    try:
        with concurrent.futures.ProcessPoolExecutor(
            1, context, initializer=own.hand_over, initargs=(own.decided(),)
        ) as pool:
            yield pool
    finally:
        os.environ.clear()
        os.environ.update(old)


def _mb(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.2f} MB"
