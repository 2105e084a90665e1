"""Lines over two logarithmic axes, as an SVG that needs no program to be looked at."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

Line = Sequence[tuple[float, float]]

COLOURS = (
    "#222222",
    "#1f77b4",
    "#2ca02c",
    "#17a2b8",
    "#9467bd",
    "#d62728",
    "#e377c2",
    "#8c564b",
    "#ff7f0e",
    "#b8860b",
)
"""Of the lines, in turn."""

WIDTH, HEIGHT, TOP, BOTTOM, LEFT, NAMES = 330, 400, 40, 50, 60, 110
"""Of a panel's field, what is around it, and the room for the lines' names at its right."""

BETWEEN_NAMES = 14


@dataclass(frozen=True, kw_only=True)
class Field:
    """A panel's field: its left edge, and the ends of both axes."""

    left: float
    x: tuple[float, float]
    y: tuple[float, float]

    def across(self, value: float) -> float:
        """From the left; the largest value stands there, so that lines rise to their names."""
        low, high = map(math.log, self.x)
        return self.left + WIDTH * (high - math.log(value)) / (high - low)

    def down(self, value: float) -> float:
        """From the top."""
        low, high = map(math.log, self.y)
        return TOP + HEIGHT * (high - math.log(value)) / (high - low)


def curves(panels: Mapping[str, Mapping[str, Line]], *, x: str, y: str) -> str:
    """Draw panels side by side, on the same axes.

    Args:
        panels: by title the lines by name.
        x: what is across, its largest value at the left.
        y: what is up.
    """
    points = [point for lines in panels.values() for line in lines.values() for point in line]
    across, up = [[point[axis] for point in points] for axis in (0, 1)]
    step = LEFT + WIDTH + NAMES
    parts = []
    for index, (title, lines) in enumerate(panels.items()):
        field = Field(
            left=index * step + LEFT,
            x=(min(across), max(across)),
            y=(min(up) / 1.3, max(up) * 1.2),
        )
        parts += [*_frame(field, title, x, y), *_lines(field, lines)]
    width, height = step * len(panels), TOP + HEIGHT + BOTTOM
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif">'
    )
    return "\n".join(
        [opening, f'<rect width="{width}" height="{height}" fill="white"/>', *parts, "</svg>", ""]
    )


def _frame(field: Field, title: str, x: str, y: str) -> list[str]:
    """Title, axes and grid."""
    right, bottom = field.left + WIDTH, TOP + HEIGHT
    parts = [_text(field.left, TOP - 14, f"{title}: {y}", size=14)]
    for value in _ticks(*field.y):
        at = field.down(value)
        parts += [
            _stroke(field.left, at, right, at),
            _text(field.left - 6, at + 4, f"{value:,}", anchor="end"),
        ]
    for value in _ticks(*field.x, steps=(1,)):
        at = field.across(value)
        parts += [
            _stroke(at, TOP, at, bottom),
            _text(at, bottom + 18, f"{value:,}", anchor="middle"),
        ]
    middle = field.left + WIDTH / 2
    return [*parts, _text(middle, bottom + 38, x, anchor="middle")]


def _lines(field: Field, lines: Mapping[str, Line]) -> list[str]:
    """Lines with points, and their names next to their ends, moved apart where they overlap."""
    parts, ends = [], []
    for (name, line), colour in zip(lines.items(), COLOURS * len(lines), strict=False):
        places = [(field.across(x), field.down(y)) for x, y in sorted(line)]
        path = " ".join(f"{across:.1f},{down:.1f}" for across, down in places)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>'
        )
        parts += [
            f'<circle cx="{across:.1f}" cy="{down:.1f}" r="2.5" fill="{colour}"/>'
            for across, down in places
        ]
        ends.append((places[0][1], places[0][0], name, colour))
    lowest = -math.inf
    for down, across, name, colour in sorted(ends):
        lowest = max(down, lowest + BETWEEN_NAMES)
        parts.append(_stroke(across + 3, down, across + 14, lowest, colour))
        parts.append(_text(across + 17, lowest + 4, name, colour=colour))
    return parts


def _ticks(low: float, high: float, steps: Sequence[int] = (1, 2, 5)) -> list[int]:
    """Round numbers of an axis."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [
        step * 10**power for power in powers for step in steps if low <= step * 10**power <= high
    ]


def _stroke(left: float, top: float, right: float, bottom: float, colour: str = "#dddddd") -> str:
    ends = f'x1="{left:.1f}" y1="{top:.1f}" x2="{right:.1f}" y2="{bottom:.1f}"'
    return f'<line {ends} stroke="{colour}"/>'


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, colour: str = "#222222"
) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"'
    return f"<text {place}>{escape(text)}</text>"
