"""Reliability diagram: accuracy as a function of confidence."""

from typing import Any, NamedTuple

from markupsafe import Markup

from jaxtrain.evaluation import calibration
from jaxtrain.evaluation.calibration import expected_error
from jaxtrain.plugins.report.examples import Predictions
from jaxtrain.plugins.report.pages.charts import word

NUM_BINS = 10
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 300, 240, 40, 8, 8, 34


class Reliability(NamedTuple):
    """Calibration of a model.

    Attributes:
      gap: Mean confidence minus accuracy.
      error: Expected calibration error.
      diagram: Reliability diagram, as SVG.
    """

    gap: float
    error: float
    diagram: Markup


def reliability(predictions: Predictions) -> Reliability:
    """Reliability diagram with the gap and the expected calibration error."""
    right, confidence = predictions.right, predictions.confidence
    return Reliability(
        gap=float(confidence.mean()) - float(right.mean()),
        # The calibration error uses the bins of `evaluate`. The diagram has fewer bins,
        # so that the counts fit below the bars.
        error=expected_error(calibration.reliability(confidence, right)),
        diagram=_draw(calibration.reliability(confidence, right, NUM_BINS)),
    )


def _draw(bins: list[dict[str, Any]]) -> Markup:
    width = (WIDTH - LEFT - RIGHT) / NUM_BINS
    height = HEIGHT - TOP - BOTTOM
    lines, parts = [], []
    for tick in (0, 0.25, 0.5, 0.75, 1):
        y = TOP + height * (1 - tick)
        lines.append(f"M{LEFT} {y:.1f}H{WIDTH - RIGHT}")
        parts.append(word(LEFT - 5, y + 3.5, f"{tick:g}", "end"))
        parts.append(word(LEFT + tick * width * NUM_BINS, HEIGHT - 4, f"{tick:g}"))
    for i, one in enumerate(bins):
        num = one["num_examples"]
        if not num:
            continue
        x, tall = LEFT + i * width, height * one["accuracy"]
        tooltip = f"{num} images: confidence {one['confidence']:.3f}"
        parts.append(
            f'<rect class="area k0" fill-opacity=".75" x="{x + 1:.1f}" '
            f'y="{TOP + height - tall:.1f}" width="{width - 2:.1f}" '
            f'height="{max(tall, 0.8):.1f}">'
            f"<title>{tooltip}, accuracy {one['accuracy']:.3f}</title></rect>"
        )
        parts.append(word(x + width / 2, TOP + height + 13, _count(num)))
    diagonal = f"M{LEFT} {TOP + height}L{WIDTH - RIGHT} {TOP}"
    return Markup(
        f'<svg class="square" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="reliability diagram"><path class="grid" d="{"".join(lines)}"/>'
        f'{"".join(parts)}<path class="mark" d="{diagonal}"/></svg>'
    )


def _count(num: int) -> str:
    return str(num) if num < 1000 else f"{num / 1000:.1f}k"
