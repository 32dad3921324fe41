"""The reliability diagram: is the model right as often as it says?"""

from typing import Any

from jaxtrain.evaluation import calibration
from jaxtrain.evaluation.calibration import expected_error
from jaxtrain.pages.page import section, text
from jaxtrain.report.examples import Predictions
from jaxtrain.report.numbers import share

NUM_BINS = 10
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 300, 240, 40, 8, 8, 34


def reliability(predictions: Predictions) -> str:
    """Return the diagram."""
    right, confidence = predictions.right, predictions.confidence
    # As `evaluate` counts it; fewer bars are drawn, with room for their numbers.
    error = expected_error(calibration.reliability(confidence, right))
    mean, hits = float(confidence.mean()), float(right.mean())
    word = "more" if mean > hits else "less"
    note = (
        "How often predictions of a confidence are right; on the dashed line, as often "
        f"as they say. On average the model is {share(abs(mean - hits))} {word} "
        f"confident than right; expected calibration error {error:.3f}. "
        "The numbers below the bars count images."
    )
    return section(
        "Reliability",
        _draw(calibration.reliability(confidence, right, NUM_BINS)),
        note=note,
    )


def _draw(bins: list[dict[str, Any]]) -> str:
    width = (WIDTH - LEFT - RIGHT) / NUM_BINS
    height = HEIGHT - TOP - BOTTOM
    lines, parts = [], []
    for tick in (0, 0.25, 0.5, 0.75, 1):
        y = TOP + height * (1 - tick)
        lines.append(f"M{LEFT} {y:.1f}H{WIDTH - RIGHT}")
        parts.append(_word(LEFT - 5, y + 3.5, f"{tick:g}", "end"))
        parts.append(_word(LEFT + tick * width * NUM_BINS, HEIGHT - 4, f"{tick:g}"))
    for i, one in enumerate(bins):
        num = one["num_examples"]
        if not num:
            continue
        x, tall = LEFT + i * width, height * one["accuracy"]
        told = f"{num} images: confidence {one['confidence']:.3f}"
        parts.append(
            f'<rect class="area k0" fill-opacity=".75" x="{x + 1:.1f}" '
            f'y="{TOP + height - tall:.1f}" width="{width - 2:.1f}" '
            f'height="{max(tall, 0.8):.1f}">'
            f"<title>{told}, accuracy {one['accuracy']:.3f}</title></rect>"
        )
        parts.append(_word(x + width / 2, TOP + height + 13, _count(num)))
    diagonal = f"M{LEFT} {TOP + height}L{WIDTH - RIGHT} {TOP}"
    return (
        f'<svg class="square" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="reliability diagram"><path class="grid" d="{"".join(lines)}"/>'
        f'{"".join(parts)}<path class="mark" d="{diagonal}"/></svg>'
    )


def _word(x: float, y: float, word: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text(word)}</text>'


def _count(num: int) -> str:
    return str(num) if num < 1000 else f"{num / 1000:.1f}k"
