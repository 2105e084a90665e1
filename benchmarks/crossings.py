"""Step times by bandwidth from rows of `slow_network`; crossings, measured and by arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.curves import Line, curves
from benchmarks.log_entry import table

PLAIN, WORKERS = "ddp", 2
"""What the others are held against, and how many send through the loopback."""

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Launches of a variant of a model at one rate: the one with the shortest step.

    None is unknown.
    """

    step_s: float
    """Its `latency_s`."""

    low_s: float
    high_s: float
    """Ends of the hull of all launches' 95 % intervals."""

    comm_share: float | None
    compress_s: float | None
    overlap_share: float | None


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A variant of a model."""

    cells: Mapping[float, Cell]
    """By rate in Mbit/s, the fastest first."""

    launches: Sequence[Mapping[float, float]]
    """`latency_s` by rate; some leave rates out."""

    bytes_sent_per_step: float
    error: float | None

    compress_s: float | None
    """The compression's own time per step, the least of all launches and rates.

    None where there is none.
    """

    def over_rates(self, launch: int | None = None) -> list[float]:
        """Step times, the fastest rate first.

        They are a launch's, except for rates that it left out, or the shortest ones.
        """
        own = {} if launch is None else self.launches[launch]
        return [own.get(rate, cell.step_s) for rate, cell in self.cells.items()]

    def share(self, rate: float) -> str:
        """The exchange's share of a step, in percent.

        Without steps that leave it out, the share comes from those at the fastest rate.
        """
        cell, fastest = self.cells[rate], next(iter(self.cells.values()))
        if cell.comm_share is not None:
            return f"{cell.comm_share * 100:.0f}"
        if fastest.comm_share is None:
            return ""
        return f"≈ {(1 - fastest.step_s * (1 - fastest.comm_share) / cell.step_s) * 100:.0f}"


def curves_of(rows: Rows, model: str) -> dict[str, Curve]:
    """Curves of a model by variant, in the order of the first launch."""
    own = [row for row in rows if row["model"] == model]
    return {
        name: _curve([row for row in own if row["variant"] == name])
        for name in _each(own, "variant")
    }


def _curve(rows: Rows) -> Curve:
    rates = sorted(_each(rows, "mbits"), reverse=True)
    return Curve(
        cells={rate: _cell([row for row in rows if row["mbits"] == rate]) for rate in rates},
        launches=[
            {row["mbits"]: row["latency_s"] for row in rows if row["launch"] == launch}
            for launch in _each(rows, "launch")
        ],
        bytes_sent_per_step=_mean(rows, "bytes_sent_per_step") or 0.0,
        error=_mean(rows, "compression_error"),
        compress_s=min(
            (row["compress_s"] for row in rows if row["compress_s"] is not None), default=None
        ),
    )


def _cell(rows: Rows) -> Cell:
    best = min(rows, key=lambda row: float(row["latency_s"]))
    ends = [
        row[f"latency_s{end}"] or row["latency_s"] for row in rows for end in ("", "_low", "_high")
    ]
    shares = {name: best[name] for name in ("comm_share", "compress_s", "overlap_share")}
    return Cell(step_s=best["latency_s"], low_s=min(ends), high_s=max(ends), **shares)


def _each(rows: Rows, column: str) -> list[Any]:
    return list(dict.fromkeys(row[column] for row in rows))


def _mean(rows: Rows, column: str) -> float | None:
    known = [row[column] for row in rows if row[column] is not None]
    return fmean(known) if known else None


def crossing(rates: Sequence[float], plain: Sequence[float], other: Sequence[float]) -> float:
    """The bandwidth below which another step time is shorter than the plain one.

    Args:
        rates: the fastest first.
        plain: step times at each.
        other: of what may win.

    Returns:
        In the unit of `rates`; infinite where it is shorter at all of them, 0 where it isn't at the
        slowest.

    >>> crossing([100, 10], [1.0, 10.0], [2.0, 2.0])
    50.0
    """
    slowness, gain = 1 / np.array(rates), np.array(plain) - np.array(other)
    if gain[-1] <= 0:
        return 0.0
    if (gain > 0).all():
        return math.inf
    last = int(np.flatnonzero(gain <= 0)[-1])
    share = -gain[last] / (gain[last + 1] - gain[last])
    return float(1 / (slowness[last] + share * (slowness[last + 1] - slowness[last])))


def measured_crossings(plain: Curve, other: Curve) -> list[float]:
    """Rates in Mbit/s at which another variant begins to win.

    The first is by the shortest steps of all launches, the others by one launch each.
    """
    rates = list(plain.cells)
    launches = [None, *range(min(len(plain.launches), len(other.launches)))]
    return [
        crossing(rates, plain.over_rates(launch), other.over_rates(launch)) for launch in launches
    ]


def crossing_by_arithmetic(plain: Curve, other: Curve) -> float:
    """The same by the bytes that it saves and its own time."""
    saved = plain.bytes_sent_per_step - other.bytes_sent_per_step
    if saved <= 0:
        return 0.0
    return saved * 8 * WORKERS / other.compress_s / 1e6 if other.compress_s else math.inf


def as_rate(mbits: float) -> str:
    """A bandwidth in words.

    >>> as_rate(10_000), as_rate(430.4), as_rate(0), as_rate(math.inf)
    ('10 Gbit/s', '430 Mbit/s', 'never', 'at all')
    """
    if mbits in (0, math.inf):
        return "at all" if mbits else "never"
    rounded = float(f"{mbits:.2g}")
    return f"{rounded / 1000:g} Gbit/s" if rounded >= 1000 else f"{rounded:g} Mbit/s"


def table_of_steps(known: Mapping[str, Curve]) -> str:
    """Step time, exchange and the compression's own time at each rate."""
    lines = []
    for name, curve in known.items():
        error = "" if curve.error is None else f"{curve.error:.2g}"
        line = [f"`{name}`", f"{curve.bytes_sent_per_step / 1e6:.3g}", error]
        for rate, cell in curve.cells.items():
            step, low, high = (
                f"{seconds * 1e3:.0f}" for seconds in (cell.step_s, cell.low_s, cell.high_s)
            )
            own = "" if cell.compress_s is None else f"{cell.compress_s * 1e3:.1f}"
            line += [f"{step} ({low}–{high})", curve.share(rate), own]
        lines.append(line)
    rates = next(iter(known.values())).cells
    of_rate = [
        f"{as_rate(rate)}: {what}"
        for rate in rates
        for what in ("step, ms", "exchange, %", "compress, ms")
    ]
    return table(["variant", "MB sent per step", "error", *of_rate], lines)


def table_of_crossings(models: Mapping[str, Mapping[str, Curve]]) -> str:
    """Below which bandwidth each variant wins."""
    lines = []
    for name in next(iter(models.values())):
        line = [f"`{name}`"]
        for known in models.values():
            best, *each = map(as_rate, measured_crossings(known[PLAIN], known[name]))
            line += [
                f"{best} ({', '.join(each)})",
                as_rate(crossing_by_arithmetic(known[PLAIN], known[name])),
            ]
        if name != PLAIN:
            lines.append(line)
    return table(
        [
            "variant",
            *(f"{model}, {how}" for model in models for how in ("measured", "by arithmetic")),
        ],
        lines,
    )


def picture(models: Mapping[str, Mapping[str, Curve]], drawn: Sequence[str]) -> str:
    """Step time over bandwidth, as SVG; a panel for each model."""
    panels = {
        f"{model} parameters": {
            name: _line(curve) for name, curve in known.items() if name in drawn
        }
        for model, known in models.items()
    }
    return curves(panels, x="bandwidth, Mbit/s", y="step, ms")


def _line(curve: Curve) -> Line:
    return [(rate, cell.step_s * 1e3) for rate, cell in curve.cells.items()]
