"""Line charts as SVG.

The style sheet sets the colours of light and dark mode. A chart takes 8 KB and 1 ms;
matplotlib would take 34 KB and 36 ms, and its colours would be fixed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from jaxtrain.plugins.report.pages.text import text

WIDTH, HEIGHT = 360, 210
LEFT, RIGHT, TOP, BOTTOM = 52, 8, 8, 22
# Approximate maximum number of points per line. A longer line is reduced to the minimum
# and maximum of each interval.
MAX_POINTS = 400
# Lines with up to this number of points have dots with tooltips.
MAX_DOTS = 40
NUM_COLOURS = 8
# Positive values get a log scale if maximum / minimum exceeds this ratio.
LOG_RATIO = 100.0

Point = tuple[float, float | None]


@dataclass(frozen=True)
class Series:
    """Line of a chart.

    Attributes:
      name: Name of the line, as plain text.
      points: Points (x, y) in order of x; a None or non-finite y leaves a gap.
      colour: Index of the colour in the style sheet, modulo `NUM_COLOURS`.
      dashed: Whether the line is dashed.
    """

    name: str
    points: Sequence[Point]
    colour: int = 0
    dashed: bool = False

    @property
    def finite(self) -> list[tuple[float, float]]:
        """Points with a finite y."""
        return [(x, y) for x, y in self.points if y is not None and math.isfinite(y)]


@dataclass(frozen=True)
class Scale:
    """Axis scale that maps values `low`..`high` to pixels `start`..`stop`.

    Attributes:
      log: Whether the scale is logarithmic.
      ticks: Values of the tick marks.
    """

    low: float
    high: float
    start: float
    stop: float
    log: bool
    ticks: tuple[float, ...]

    def place(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return self.start + (self.stop - self.start) * (value - low) / (high - low)


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    span: tuple[float, float] | None = None,
    marks: Sequence[float] = (),
    log: bool = True,
) -> Markup:
    """Draw a line chart as SVG; return "" if no value is finite.

    Args:
      title: Title, as plain text.
      series: Lines of the chart.
      span: Range of the x axis. Defaults to the range of the points.
      marks: x values of dashed vertical lines.
      log: Whether to use a logarithmic y axis if `LOG_RATIO` is exceeded.
    """
    drawn = [one for one in series if one.finite]
    if not drawn:
        return Markup()
    points = [point for one in drawn for point in one.finite]
    places = [x for x, _ in points] if span is None else span
    across = _tight(make_scale(places, LEFT, WIDTH - RIGHT, num=5), places)
    up = make_scale([y for _, y in points], HEIGHT - BOTTOM, TOP, num=4, log=log)
    parts = [_grid(across, up)]
    parts += [
        f'<path class="mark" d="M{across.place(x):.1f} {TOP}V{HEIGHT - BOTTOM}"/>'
        for x in marks
        if across.low <= x <= across.high
    ]
    parts += [_line(one, across, up) for one in drawn]
    legend = "".join(
        f'<span class="k{one.colour % NUM_COLOURS}"><i></i>{text(one.name)} '
        f"{short(one.finite[-1][1])}</span>"
        for one in drawn
    )
    heading = f"{title}, logarithmic" if up.log else title
    return Markup(
        f'<div class="chart"><h3>{text(heading)}</h3><div class="legend">{legend}</div>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{text(title)}">'
        f"{''.join(parts)}</svg></div>"
    )


def word(x: float, y: float, label: str, anchor: str = "middle") -> str:
    """SVG text element at (x, y), in pixels, with a `text-anchor`."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text(label)}</text>'


def _tight(scale: Scale, values: Sequence[float]) -> Scale:
    """Narrow a scale to the range of the values, without rounding."""
    low, high = min(values), max(values)
    if high <= low:
        return scale
    ticks = tuple(tick for tick in scale.ticks if low <= tick <= high)
    return replace(scale, low=low, high=high, ticks=ticks)


def _grid(across: Scale, up: Scale) -> str:
    lines, words = [], []
    for tick in up.ticks:
        y = up.place(tick)
        lines.append(f"M{LEFT} {y:.1f}H{WIDTH - RIGHT}")
        words.append(word(LEFT - 5, y + 3.5, short(tick), "end"))
    for tick in across.ticks:
        x = across.place(tick)
        lines.append(f"M{x:.1f} {HEIGHT - BOTTOM}v3")
        anchor = "end" if x > WIDTH - RIGHT - 15 else "middle"
        words.append(word(x, HEIGHT - 6, short(tick), anchor))
    return f'<path class="grid" d="{"".join(lines)}"/>{"".join(words)}'


def _line(series: Series, across: Scale, up: Scale) -> str:
    path, letter = "", "M"
    for x, y in thin(series.points):
        if y is None or not math.isfinite(y):
            letter = "M"
            continue
        path += f"{letter}{across.place(x):.1f} {up.place(y):.1f}"
        letter = "L"
    dash = ' stroke-dasharray="5 3"' if series.dashed else ""
    dots, finite = "", series.finite
    if len(finite) <= MAX_DOTS:
        radius = 2.2 if len(finite) > 1 else 3.5
        dots = "".join(
            f'<circle cx="{across.place(x):.1f}" cy="{up.place(y):.1f}" r="{radius}">'
            f"<title>{text(series.name)}, {short(x)}: {y:.5g}</title></circle>"
            for x, y in finite
        )
    return (
        f'<g class="k{series.colour % NUM_COLOURS}"><path class="line" d="{path}"'
        f'{dash}/><g class="dots">{dots}</g></g>'
    )


def thin(points: Sequence[Point]) -> Sequence[Point]:
    """Downsample to about `MAX_POINTS` points, but preserve peaks and gaps."""
    if len(points) <= MAX_POINTS:
        return points
    size = math.ceil(2 * len(points) / MAX_POINTS)
    kept: list[Point] = []
    for start in range(0, len(points), size):
        some = points[start : start + size]
        known = [(y, x) for x, y in some if y is not None and math.isfinite(y)]
        if not known:
            kept.append(some[0])
            continue
        kept += sorted({(x, y) for y, x in (min(known), max(known))})
    # The curve must start and end at the first and the last point.
    return [points[0], *kept[1:-1], points[-1]]


def make_scale(
    values: Sequence[float], start: float, stop: float, *, num: int, log: bool = False
) -> Scale:
    """Create a scale that covers the values, with round numbers at its ends.

    Args:
      values: Finite values, at least one.
      start: Position of the lower end of the scale, in pixels.
      stop: Position of the upper end of the scale, in pixels.
      num: Approximate number of ticks.
      log: Whether to use a log scale if `LOG_RATIO` is exceeded.
    """
    low, high = min(values), max(values)
    if log and low > 0 and high / low > LOG_RATIO:
        return _log_scale(low, high, start, stop, num)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        margin = abs(low) * 0.05 or 1.0
        low, high = low - margin, high + margin
    step = _round_step(high / num - low / num)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    ticks = tuple(i * step for i in range(first, last + 1))
    return Scale(ticks[0], ticks[-1], start, stop, False, ticks)


def _log_scale(low: float, high: float, start: float, stop: float, num: int) -> Scale:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, math.ceil((last - first) / num))
    ticks = tuple(10.0**n for n in range(first, last + 1, every))
    return Scale(10.0**first, 10.0**last, start, stop, True, ticks)


def _round_step(step: float) -> float:
    """Round up to 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(n * power for n in (1, 2, 5, 10) if n * power >= step * (1 - 1e-9))


def short(value: float) -> str:
    """Format a number in few characters, such as 20k or 1e-5."""
    if value == 0:
        return "0"
    size = abs(value)
    if size < 1e-3 or size >= 1e15:
        return f"{value:.3g}".replace("e-0", "e-").replace("e+", "e").replace("e0", "e")
    for limit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            return f"{value / (1e3 if letter == 'k' else limit):.4g}{letter}"
    return f"{value:.4g}"
