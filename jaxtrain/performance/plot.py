"""The picture of scaling.json."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def plot(path: Path, result: Mapping[str, Any]) -> None:
    """Draw speed (where it was measured on real devices), memory and traffic.

    Args:
      path: Path of the PNG.
      result: What scaling.json holds.
    """

    def values(key: str, unit: float = 1) -> list[Any]:
        return [run[key] and run[key] / unit for run in result["runs"]]

    devices = [run["devices"] for run in result["runs"]]
    speeds = values("images_per_second")
    timed = not result["simulated"] and speeds[0] is not None
    figure = Figure(figsize=(5 * (2 + timed), 4), layout="constrained")
    FigureCanvasAgg(figure)
    *first, memory, traffic = figure.subplots(1, 2 + timed)
    if timed:
        per_device = speeds[0] / devices[0]
        _lines(first[0], "images/s", devices, measured=speeds)
        ideal = [per_device * n for n in devices]
        first[0].plot(devices, ideal, "k:", label="ideal")
    state = values("state_bytes_per_device", 1e6)
    peak = values("peak_bytes_per_device", 1e6)
    _lines(memory, "MB a device", devices, state=state, peak=peak)
    memory.set_yscale("log")
    minimum = values("minimum_collective_bytes", 1e6)
    sent = values("wire_bytes_per_device", 1e6)
    _lines(traffic, "MB sent a device and step", devices, sent=sent)
    traffic.plot(devices, minimum, "k:", label="minimum")
    for axes in (*first, traffic):
        axes.set_ylim(bottom=0)
    for axes in (*first, memory, traffic):
        axes.legend()
    kind = "simulated devices" if result["simulated"] else result["target"] or "devices"
    figure.suptitle(
        f"{result['config']}: {result['mode']} scaling, {result['preset']}, {kind}"
    )
    figure.savefig(path, dpi=120)


def _lines(axes: Axes, label: str, devices: list[int], **values: list[float]) -> None:
    for name, line in values.items():
        axes.plot(devices, line, "o-", label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks(devices, [str(n) for n in devices])
    axes.set_xlabel("devices")
    axes.set_ylabel(label)
