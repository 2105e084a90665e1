"""Draw the frontiers of results as an SVG that needs no program to be looked at: docs/frontier.svg shows `make sweep`.

python docs/picture.py results/batchsize docs/frontier.svg
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from dtsweep.analysis.load import load
from dtsweep.analysis.spread import POINT
from dtsweep.report.axes import Axis, axis_for, tick_label
from dtsweep.report.content import Content, content_of
from dtsweep.report.frontiers import Frontier
from dtsweep.report.labels import trial_label
from dtsweep.report.plots import COLOURS

WIDTH, HEIGHT = 800, 420
LEFT, RIGHT, TOP, BOTTOM = 62, 24, 64, 50
DARK, MIDDLE, LIGHT = "#24292f", "#57606a", "#e5e8eb"
OUTLINE = 'stroke="white" stroke-width="1"'


class Field(NamedTuple):
    """Where values stand in the picture, in pixels from its upper left corner."""

    step_ms: Axis
    rate: Axis

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
    step_ms = axis_for([row["latency_s"] * 1e3 for row in rows], most_ticks=8)
    field = Field(step_ms, axis_for([row["samples_per_s"] for row in rows], from_zero=True))
    recommended = [tuple(found.point[c] for c in POINT) for found in content.recommendations]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8" fill="white" stroke="{LIGHT}"/>',
        text(LEFT, 28, f"Step time against throughput: {content.headline.partition(' · ')[0]}", size=16, colour=DARK),
        *_legend(drawn),
        *_axes(field),
        *(part for found in drawn for part in _beaten(field, found)),
        *(part for found in reversed(drawn) for part in _line(field, found)),
        *(part for row in rows if row["knee"] for part in _ring(field, row, "knee")),
    ]
    for row in rows:
        if tuple(row[c] for c in POINT) in recommended:
            parts += _ring(field, row, f"recommended: {trial_label(row, content.varying)}")
    return "\n".join([*parts, "</svg>", ""])


def _axes(field: Field) -> Iterator[str]:
    """Grid, ticks and units."""
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    for value in field.rate.ticks:
        down = field.down(value)
        yield f'<line x1="{LEFT}" y1="{down:.1f}" x2="{right}" y2="{down:.1f}" stroke="{LIGHT}"/>'
        yield text(LEFT - 8, down + 4, tick_label(value), anchor="end")
    for value in field.step_ms.ticks:
        across = field.across(value)
        yield f'<line x1="{across:.1f}" y1="{TOP}" x2="{across:.1f}" y2="{bottom}" stroke="{LIGHT}"/>'
        yield text(across, bottom + 18, tick_label(value), anchor="middle")
    yield text((LEFT + right) / 2, bottom + 38, "step time, ms", anchor="middle")
    yield text(LEFT - 8, TOP - 12, "samples/s", anchor="end")


def _legend(drawn: Sequence[Frontier]) -> Iterator[str]:
    """What colours mean, in a row below the title."""
    across = LEFT + 14.0
    for found in drawn:
        colour, name = COLOURS.get(found.semantics, MIDDLE), f"{found.semantics} updates"
        yield f'<circle cx="{across:.1f}" cy="48" r="5" fill="{colour}"/>'
        yield text(across + 10, 52, name)
        across += 26 + 7 * len(name)
    yield f'<circle cx="{across:.1f}" cy="48" r="4" fill="{MIDDLE}" opacity="0.3"/>'
    yield text(across + 10, 52, "beaten by another point")


def _beaten(field: Field, found: Frontier) -> Iterator[str]:
    for _, row in found.dominated.iterrows():
        across, down = field.place(row)
        colour = COLOURS.get(found.semantics, MIDDLE)
        yield f'<circle cx="{across:.1f}" cy="{down:.1f}" r="4" fill="{colour}" opacity="0.3"/>'


def _line(field: Field, found: Frontier) -> Iterator[str]:
    """A frontier: its points, joined, with their settings to be read under the mouse."""
    colour, rows = COLOURS.get(found.semantics, MIDDLE), [row for _, row in found.shown.iterrows()]
    places = " ".join("{:.1f},{:.1f}".format(*field.place(row)) for row in rows)
    yield f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for row in rows:
        across, down = field.place(row)
        yield f'<circle cx="{across:.1f}" cy="{down:.1f}" r="5.5" fill="{colour}" {OUTLINE}/>'


def _ring(field: Field, row: Any, words: str) -> Iterator[str]:
    """Mark a point, with words above it, on the side where there is room."""
    across, down = field.place(row)
    is_right = across > WIDTH / 2
    yield f'<circle cx="{across:.1f}" cy="{down:.1f}" r="9" fill="none" stroke="{DARK}" stroke-width="1.5"/>'
    yield text(across + (8 if is_right else -8), down - 14, words, anchor="end" if is_right else "start", colour=DARK)


def text(x: float, y: float, words: str, *, anchor: str = "start", size: int = 13, colour: str = MIDDLE) -> str:
    """Words in the picture."""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"'
    return f"<text {place}>{escape(words)}</text>"


if __name__ == "__main__":
    results, file = sys.argv[1:]
    Path(file).write_text(picture(content_of(load(results, canaries=True))), encoding="utf-8")
