"""Statistical efficiency of points whose updates are not exact, in words and as JSON values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dtsweep.analysis.settings import is_plain_training
from dtsweep.analysis.statistical_efficiency import Ratio, Row, efficiency_of
from dtsweep.text import count_of

if TYPE_CHECKING:
    import pandas as pd


def efficiency_words(point: pd.Series[Any]) -> str:
    """Say how many samples the updates of a point need; empty if they are exact.

    One worker exchanges with nobody: empty too, if its mode lets it train like plain PyTorch.
    """
    settings = {str(name): value for name, value in point.items()}
    if point["semantics"] == "exact" or is_plain_training(settings):
        return ""
    row = efficiency_of(point)
    if row is None:
        return "statistical efficiency not measured for these settings"
    return f"on a small model: {times_the_samples(row.ratio)}; not transferable"


def times_the_samples(ratio: Ratio) -> str:
    """Write a ratio of samples with its interval.

    >>> times_the_samples(Ratio(mean=1.302, low=1.204, high=1.497))
    '1.30 times the samples (1.20 to 1.50)'
    >>> times_the_samples(Ratio(mean=None, low=4.0, high=None))
    'more than 4.00 times the samples'
    """
    if ratio.mean is None:
        return f"more than {ratio.low:.2f} times the samples"
    return f"{ratio.mean:.2f} times the samples ({ratio.low:.2f} to {ratio.high:.2f})"


def ratio_cell(ratio: Ratio) -> str:
    """Write a ratio with its interval for a table.

    >>> ratio_cell(Ratio(mean=1.302, low=1.204, high=1.497))
    '1.30 (1.20–1.50)'
    """
    if ratio.mean is None:
        return f"> {ratio.low:.2f}"
    return f"{ratio.mean:.2f} ({ratio.low:.2f}–{ratio.high:.2f})"


def difference_cell(row: Row) -> str:
    """Write how much higher the loss is at equal samples, with its interval, for a table."""
    difference = row.loss_difference
    if difference is None:
        diverged = row.loss_differences.count(None)
        return f"diverged with {diverged} of {count_of(len(row.loss_differences), 'seed')}"
    mean, half = difference
    return f"{mean:.3f} ± {half:.3f}"


def efficiency_lines(points: pd.DataFrame) -> list[str]:
    """Say it of the settings of several points, a line each; those without a row are counted."""
    measured = {}
    unmeasured = 0
    for _, point in points.iterrows():
        words = efficiency_words(point)
        row = efficiency_of(point)
        if row is not None and words:
            measured[row.name] = f"{row.name}, {words}."
        elif words:
            unmeasured += 1
    lines = list(measured.values())
    if unmeasured:
        lines.append(f"Statistical efficiency not measured for {count_of(unmeasured, 'point')}.")
    return lines


def efficiency_json(point: pd.Series[Any]) -> dict[str, Any] | None:
    """Give the row of a point as JSON values; None if its updates are exact, or without a row."""
    row = efficiency_of(point)
    if row is None or not efficiency_words(point):
        return None
    ratio = row.ratio
    return {
        "problem": row.problem,
        "samples_ratio": ratio.mean,
        "samples_ratio_low": ratio.low,
        "samples_ratio_high": ratio.high,
        "seeds": len(row.ratios),
        "date": row.date,
    }
