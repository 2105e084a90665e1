"""Numbers of results as JSON values: unknown and infinite ones are None."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any


def number(value: Any) -> float | None:
    """Give a finite number, else None.

    >>> number(2), number(float("nan")), number(None), number(float("inf"))
    (2.0, None, None, None)
    """
    try:
        converted = float(value)
    except (TypeError, ValueError):
        return None
    if math.isfinite(converted):
        return converted
    return None


def numbers(values: Iterable[Any]) -> list[float | None]:
    """Give finite numbers, and None in the place of others."""
    return [number(value) for value in values]


def rounded(value: float) -> float | None:
    """Round to as many significant digits as a page needs; None where it is not finite.

    >>> rounded(0.012345678), rounded(1234567.0), rounded(float("nan"))
    (0.0123457, 1234570.0, None)
    """
    if not math.isfinite(value):
        return None
    return float(f"{value:.6g}")


def bars(rows: Iterable[Mapping[Any, Any]], name: str, *, unit: float = 1.0) -> dict[str, Any]:
    """Error bars from the ends of an interval; an unknown end has none."""
    up, down = [], []
    for row in rows:
        value, low, high = (number(row[key]) for key in (name, f"{name}_low", f"{name}_high"))
        up.append(_distance(value, high, unit))
        down.append(_distance(low, value, unit))
    return {
        "type": "data",
        "symmetric": False,
        "array": up,
        "arrayminus": down,
        "thickness": 1,
        "width": 2,
    }


def _distance(low: float | None, high: float | None, unit: float) -> float | None:
    if low is None or high is None:
        return None
    return max(0.0, high - low) * unit
