"""A point that was not measured, next to a recommendation: in words and as JSON values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dtsweep.analysis.unmeasured import NoPoint
from dtsweep.report.recommendation import quantity
from dtsweep.report.records import records_of
from dtsweep.text import count_of, plain, say

if TYPE_CHECKING:
    from rich.console import Console

    from dtsweep.analysis.recommend import Recommendation
    from dtsweep.analysis.unmeasured import Unmeasured


def print_unmeasured(
    one: Unmeasured | NoPoint, recommendation: Recommendation, *, console: Console
) -> None:
    """Print the point and the command that measures it, or why there is none."""
    for line in words_on(one, recommendation):
        if line.startswith("    "):
            # A command is never wrapped.
            console.print(plain(line), soft_wrap=True)
        else:
            say(console, line)


def words_on(one: Unmeasured | NoPoint, recommendation: Recommendation) -> list[str]:
    """Put the point into sentences; the last line is a command."""
    if isinstance(one, NoPoint):
        return [f"Predicted: {one.reason}."]
    name = one.objective
    ends = [float(one.row[f"{name}{end}"]) for end in ("", "_low", "_high")]
    measured = quantity(name, float(recommendation.point[name]))
    settings = " ".join(f"{axis}={value}" for axis, value in one.settings.items())
    figures = f"{settings} has {quantity(name, *ends)}, where the recommended point has {measured}"
    if not one.is_better:
        count = count_of(one.candidates, "point")
        return [
            f"Predicted: of {count} without a trial, no interval is wholly better. The most "
            f"promising: {figures}."
        ]
    return [
        f"Predicted, not measured: {figures}. To verify it:",
        f"    {one.command}",
    ]


def unmeasured_json(one: Unmeasured | NoPoint) -> dict[str, Any]:
    """Give the point as JSON values.

    Returns:
        `reason`, why there is no point, else None; and of a point `point` (row of
        `PerformanceModel.predict`), `objective`, `is_better`, `candidates` (a count), `settings`
        (of the swept axes), and `command`, which measures it.
    """
    if isinstance(one, NoPoint):
        return {"reason": one.reason}
    return {
        "reason": None,
        "point": records_of(one.row.to_frame().T.infer_objects())[0],
        "objective": one.objective,
        "is_better": one.is_better,
        "candidates": one.candidates,
        "settings": one.settings,
        "command": one.command,
    }
