"""The picture of a range test."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from jaxtrain.tools.find_lr import RangeTest


def plot(path: Path, test: RangeTest, suggested: Mapping[str, float]) -> None:
    """Draw the loss over the learning rate, and what the rules suggest."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot(test.rates, test.losses, color="0.8", label="loss of a batch")
    axes.plot(test.rates, test.smoothed, label="smoothed")
    for color, (rule, rate) in zip(("C1", "C2", "C3"), suggested.items(), strict=True):
        axes.axvline(rate, color=color, linestyle=":", label=f"{rule}: {rate:.1e}")
    axes.set_xscale("log")
    # The loss of batches that diverge would hide all else.
    axes.set_ylim(0, 1.5 * float(test.smoothed[:10].max()))
    axes.set_xlabel("learning rate")
    axes.set_ylabel("loss")
    axes.legend()
    figure.savefig(path, format="png", dpi=120)
