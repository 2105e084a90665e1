"""Lead of a recommended point over the next one and over the plain choice, in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.report.code import point_arguments
from dtsweep.report.labels import point_label, trial_label
from dtsweep.report.remarks import Remark, first_that_fits, remark
from dtsweep.sweep.point import Point
from dtsweep.text import count_of, in_percent, is_wide, percent

if TYPE_CHECKING:
    import pandas as pd

    from dtsweep.analysis.recommend import Recommendation

_PLAIN = Point()
"""Settings of a plain choice, as far as they were measured."""

_MANY_TIMES = 2.0
"""Ratio from which on it is written as a factor."""

_ALIKE = 0.005
"""Difference, as a share, below which it would be 0 %."""


def lead(recommendation: Recommendation, varying: Sequence[str]) -> list[Remark]:
    """Say how much better the point is than the next one and than the plain choice."""
    others, objective = recommendation.others, recommendation.objective
    if others.empty or objective.is_exact or not objective.is_relative:
        return []
    plain, row = _plain_choice(recommendation), others.iloc[0]
    name = _name_of(row, recommendation, varying, plain=plain).removeprefix("the one ")
    by = _better_by(row, recommendation)
    if by.startswith("at least"):
        # By how much is said with how sure it is.
        by = "better than"
    long, short = _over_plain(recommendation, row, varying, plain=plain)
    options = [(f", {name}", long), ("", long), (f", {name}", short), ("", short)]
    return [first_that_fits([remark("lead", by=by, next=of, plain=words) for of, words in options])]


def rivals(recommendation: Recommendation, varying: Sequence[str]) -> list[Remark]:
    """Name the points that may be better, and the lead over the plain choice."""
    contenders = recommendation.contenders.sort_values(
        "possible_gain", ascending=False, kind="stable"
    )
    contenders = contenders[contenders["possible_gain"] > 0]
    if contenders.empty:
        return lead(recommendation, varying)
    plain, row = _plain_choice(recommendation), contenders.iloc[0]
    name = _name_of(row, recommendation, varying, plain=plain)
    if len(contenders) > 1:
        name += f" and {count_of(len(contenders) - 1, 'other')}"
    long, short = _over_plain(recommendation, row, varying, plain=plain)
    options = [(name, long), (name, short), (count_of(len(contenders), "other"), short)]
    return [
        first_that_fits(
            [remark("rivals", rivals=of[0].upper() + of[1:], plain=words) for of, words in options]
        )
    ]


def _name_of(
    row: pd.Series[Any],
    recommendation: Recommendation,
    varying: Sequence[str],
    *,
    plain: pd.Series[Any] | None,
) -> str:
    """Name a point by what tells it from the recommended one: "the one with micro_batch=64"."""
    point = recommendation.point
    differing = [name for name in varying if str(row[name]) != str(point[name])]
    label, mode = trial_label(row, differing), point_label(row, [])
    settings = label.removeprefix(mode).strip()
    if plain is not None and row["point_id"] == plain["point_id"]:
        return f"the baseline ddp with {settings}".removesuffix(" with ")
    if settings and mode == point_label(point, []):
        return f"the one with {settings}"
    return label


def _over_plain(
    recommendation: Recommendation,
    named: pd.Series[Any],
    varying: Sequence[str],
    *,
    plain: pd.Series[Any] | None,
) -> tuple[str, str]:
    """End of a sentence on the plain choice, behind one that names a point; and a shorter one."""
    is_named = plain is not None and plain["point_id"] == named["point_id"]
    if plain is None or is_named or not recommendation.objective.is_relative:
        return "", ""
    if plain is recommendation.point:
        return "; it is the baseline ddp itself", ""
    words = f"; it is {_better_by(plain, recommendation)}"
    name = _name_of(plain, recommendation, varying, plain=plain)
    return f"{words} {name}", f"{words} the baseline ddp"


def _plain_choice(recommendation: Recommendation) -> pd.Series[Any] | None:
    """Point that a user would take without measuring, of as many workers; None without `ddp`.

    It has the fewest settings that are not the default, then the micro-batch that is nearest to the
    default one.
    """
    point = recommendation.point
    rows = [point, *(row for _, row in recommendation.others.iterrows())]
    of_workload = [name for name in point.index if name.startswith(("workload", "environment"))]
    plain = [
        row
        for row in rows
        if row["sync"] == _PLAIN.sync
        and not isinstance(row["compression"], str)
        and all(str(row[name]) == str(point[name]) for name in ("workers", *of_workload))
    ]
    return min(plain, key=_distance_to_plain, default=None)


def _distance_to_plain(row: pd.Series[Any]) -> tuple[int, float, int]:
    settings = point_arguments(row)
    size = settings.pop("micro_batch", _PLAIN.micro_batch)
    return len(settings), abs(math.log2(size / _PLAIN.micro_batch)), size


def _better_by(other: pd.Series[Any], recommendation: Recommendation) -> str:
    """Write how much better the recommended point is than another one: "12 % better than"."""
    ratio, low, high = (float(other[f"ratio{end}"]) for end in ("", "_low", "_high"))
    if not recommendation.objective.maximize:
        ratio, low, high = 1 / ratio, 1 / high, 1 / low
    zone = recommendation.zone
    if math.isnan(low):
        return _by_means(ratio)
    if 1 / (1 + zone) <= low and high <= 1 + zone:
        return f"equal within {percent(zone)} to"
    is_open = bool(other.get("is_contender", True)) or ratio < 1
    if low <= 1 <= high and is_open:
        return "not shown to differ from"
    if low > 1 and is_wide(ratio - 1, low - 1, high - 1):
        return f"at least {percent(low - 1, is_lower_limit=True)} better than"
    return _by_means(ratio)


def _by_means(ratio: float) -> str:
    """Write a ratio of means, without an interval.

    >>> _by_means(1.041), _by_means(2.51), _by_means(0.9), _by_means(1.001)
    ('4 % better than', '2.5 times as good as', '10 % worse than', 'as good as')
    """
    if abs(ratio - 1) < _ALIKE:
        return "as good as"
    if ratio < 1:
        return f"{in_percent(1 - ratio)} worse than"
    if ratio >= _MANY_TIMES:
        return f"{ratio:.2g} times as good as"
    return f"{in_percent(ratio - 1)} better than"
