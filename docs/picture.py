"""Draw the frontiers of results as an SVG; docs/frontier.svg shows `make sweep`.

python docs/picture.py results/batchsize docs/frontier.svg
"""

from __future__ import annotations

import math
import sys
import textwrap
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from dtsweep.analysis.load import load
from dtsweep.inference.spread import POINT
from dtsweep.report import Content, content_of
from dtsweep.report.frontiers import Frontier
from dtsweep.report.labels import trial_label
from dtsweep.show.frontier_plot import frontier_plot
from dtsweep.show.style import COLOURS

WIDTH, HEIGHT = 800, 420
LEFT, RIGHT, TOP, BOTTOM = 62, 24, 74, 50
BELOW, LINE, LETTERS = 10, 17, 118
"""Of what is written below the axes: from the edges, between lines, and letters in a line."""
DARK, MIDDLE, LIGHT = "#24292f", "#57606a", "#e5e8eb"


class Scale(NamedTuple):
    """An axis between two ends, with round numbers for its ticks."""

    low: float
    high: float
    is_logarithmic: bool
    ticks: list[float]

    def share(self, value: float) -> float:
        """Position of a value, from 0 at the lower end to 1 at the upper end."""
        ends = (self.low, self.high, value)
        low, high, position = map(math.log, ends) if self.is_logarithmic else ends
        return (position - low) / (high - low)


def scale_for(values: list[float], *, from_zero: bool = False) -> Scale:
    """Scale with room for all values, which are above 0; logarithmic if they differ much."""
    low, high = 0.0 if from_zero else min(values), max(values)
    is_logarithmic = not from_zero and high > 10 * low
    if is_logarithmic:
        beyond = (high / low) ** 0.06
        low, high = low / beyond, high * beyond
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [float(f"{factor}e{power}") for power in powers for factor in (1, 2, 5)]
    else:
        high += 0.06 * (high - low or high)
        power = 10.0 ** math.floor(math.log10((high - low) / 6))
        step = next(factor * power for factor in (1, 2, 5, 10) if 6 * factor * power >= high - low)
        ticks = [round(number * step, 9) for number in range(math.floor(high / step) + 1)]
    return Scale(low, high, is_logarithmic, [tick for tick in ticks if low <= tick <= high])


class Field(NamedTuple):
    """Where values stand in the picture, in pixels from its upper left corner."""

    step_ms: Scale
    rate: Scale

    def across(self, ms: float) -> float:
        """From the left."""
        return LEFT + (WIDTH - LEFT - RIGHT) * self.step_ms.share(ms)

    def down(self, per_s: float) -> float:
        """From the top."""
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - self.rate.share(per_s))

    def place(self, row: Any) -> tuple[float, float]:
        """Of a point."""
        return self.across(row["latency_s"] * 1e3), self.down(row["samples_per_s"])


def picture(content: Content) -> str:
    """Draw step time against throughput: a colour for each frontier, points that are beaten faint.

    The card has a ground of its own, so that it reads on a light page and on a dark one.
    """
    drawn = [found for found in content.frontiers if len(found.drawn)]
    rows = [row for found in drawn for _, row in found.drawn.iterrows()]
    step_ms = scale_for([row["latency_s"] * 1e3 for row in rows])
    field = Field(step_ms, scale_for([row["samples_per_s"] for row in rows], from_zero=True))
    recommended = [tuple(found.point[c] for c in POINT) for found in content.recommendations]
    below = [line for doubt in content.doubts for line in textwrap.wrap(doubt.text, LETTERS)]
    height = HEIGHT + (LINE * len(below) + BELOW if below else 0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif">',
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8" '
        f'fill="white" stroke="{LIGHT}"/>',
        text(
            18,
            28,
            # The recommended point has its name at its mark.
            frontier_plot(content).title.partition(":")[0],
            size=16,
            colour=DARK,
        ),
        *_legend(drawn),
        *_axes(field),
        *(
            text(18, HEIGHT + BELOW + LINE * number, line, size=12)
            for number, line in enumerate(below)
        ),
        *(part for found in drawn for part in _beaten(field, found)),
        *(part for found in reversed(drawn) for part in _line(field, found)),
        *(_ring(*field.place(row)) for row in rows if row["knee"]),
    ]
    for row in rows:
        if tuple(row[c] for c in POINT) in recommended:
            parts += _named(*field.place(row), f"recommended: {trial_label(row, content.varying)}")
    return "\n".join([*parts, "</svg>", ""])


def _axes(field: Field) -> Iterator[str]:
    """Grid, ticks and units."""
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    for value in field.rate.ticks:
        down = field.down(value)
        yield f'<line x1="{LEFT}" y1="{down:.1f}" x2="{right}" y2="{down:.1f}" stroke="{LIGHT}"/>'
        yield text(LEFT - 8, down + 4, f"{value:,g}", anchor="end")
    for value in field.step_ms.ticks:
        across = field.across(value)
        ends = f'x1="{across:.1f}" y1="{TOP}" x2="{across:.1f}" y2="{bottom}"'
        yield f'<line {ends} stroke="{LIGHT}"/>'
        yield text(across, bottom + 18, f"{value:,g}", anchor="middle")
    yield text((LEFT + right) / 2, bottom + 38, "step time, ms", anchor="middle")
    yield text(LEFT + 4, TOP - 6, "samples/s")


def _legend(drawn: Sequence[Frontier]) -> Iterator[str]:
    """What colours and rings mean, in a row below the title."""
    across = 24.0
    for found in drawn:
        name = f"{found.semantics} updates"
        yield f'<circle cx="{across:.1f}" cy="48" r="5" fill="{_colour(found)}"/>'
        yield text(across + 10, 52, name)
        across += 30 + 7.2 * len(name)
    yield f'<circle cx="{across:.1f}" cy="48" r="4" fill="{MIDDLE}" opacity="0.3"/>'
    yield text(across + 10, 52, "beaten")
    yield _ring(across + 84, 48)
    yield text(across + 98, 52, "knee")
    yield f'<path d="M{across + 152:.1f} 40 V56" stroke="{MIDDLE}" stroke-width="1.2"/>'
    yield text(across + 160, 52, "95 % interval")


def _colour(found: Frontier) -> str:
    return COLOURS.get(found.semantics, MIDDLE)


def _beaten(field: Field, found: Frontier) -> Iterator[str]:
    for _, row in found.dominated.iterrows():
        across, down = field.place(row)
        centre = f'cx="{across:.1f}" cy="{down:.1f}"'
        yield f'<circle {centre} r="4" fill="{_colour(found)}" opacity="0.3"/>'


def _line(field: Field, found: Frontier) -> Iterator[str]:
    """A frontier: its points with their intervals; those that may be beaten are not joined."""
    colour, rows = _colour(found), [row for _, row in found.shown.iterrows()]
    places = [field.place(row) for row in rows]
    joined = " ".join(
        f"{across:.1f},{down:.1f}"
        for row, (across, down) in zip(rows, places, strict=True)
        if row["standing"] != "undecided"
    )
    yield f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for row, (across, down) in zip(rows, places, strict=True):
        yield f'<path d="{_bars(field, row)}" stroke="{colour}" stroke-width="1.2" opacity="0.6"/>'
        fill, edge = ("white", colour) if row["standing"] == "undecided" else (colour, "white")
        mark = f'cx="{across:.1f}" cy="{down:.1f}" r="5.5" fill="{fill}" stroke="{edge}"'
        yield f"<circle {mark}/>"


def _bars(field: Field, row: Any) -> str:
    """The intervals of a point as lines that end with the axes; none where one is unknown."""
    across, down = field.place(row)
    steps, rates = (
        [row[f"{name}_{end}"] for end in ("low", "high")] for name in ("latency_s", "samples_per_s")
    )
    lines = []
    if not math.isnan(steps[0]):
        # Logarithms know no value below 0, which an interval may have.
        low, high = (
            min(max(field.across(max(s * 1e3, field.step_ms.low)), LEFT), WIDTH - RIGHT)
            for s in steps
        )
        lines.append(f"M{low:.1f} {down:.1f} H{high:.1f}")
    if not math.isnan(rates[0]):
        low, high = (min(max(field.down(rate), TOP), HEIGHT - BOTTOM) for rate in rates)
        lines.append(f"M{across:.1f} {low:.1f} V{high:.1f}")
    return " ".join(lines)


def _ring(across: float, down: float) -> str:
    centre = f'cx="{across:.1f}" cy="{down:.1f}"'
    return f'<circle {centre} r="9" fill="none" stroke="{DARK}" stroke-width="1.2"/>'


def _named(across: float, down: float, words: str) -> Iterator[str]:
    """Words near the lower end, where few points are, and a line to the point that they name."""
    is_right, bottom = across > WIDTH / 2, HEIGHT - BOTTOM - 14
    line = f"M{across:.1f} {down + 8:.1f} V{bottom - 16}"
    yield f'<path d="{line}" stroke="{DARK}" stroke-width="1.2" stroke-dasharray="2 3"/>'
    yield text(
        across + (8 if is_right else -8),
        bottom,
        words,
        anchor="end" if is_right else "start",
        colour=DARK,
    )


def text(
    x: float, y: float, words: str, *, anchor: str = "start", size: int = 13, colour: str = MIDDLE
) -> str:
    """Words in the picture, on a ground of their own that keeps lines off."""
    ground = 'stroke="white" stroke-width="4" paint-order="stroke"'
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"'
    return f"<text {place} {ground}>{escape(words)}</text>"


if __name__ == "__main__":
    results, file = sys.argv[1:]
    Path(file).write_text(picture(content_of(load(results, canaries=True))), encoding="utf-8")
