"""JSON renderer of the report, for programs: every row, nothing cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dtsweep.report import recommendation
from dtsweep.report.bounds import bounds_json
from dtsweep.report.laws import laws_json
from dtsweep.report.records import records_of

if TYPE_CHECKING:
    from dtsweep.report.content import Content
    from dtsweep.report.frontiers import Frontier


def report_json(content: Content) -> dict[str, Any]:
    """Give the content of the report as JSON values; unknown is None.

    Returns:
        `headline` (text), `trials` (count), `statuses` and `flags` (count of each), `constants` (settings that all
        points share), `recommendations` (those of `dtsweep.report.recommendation`, for the highest throughput) with
        `advice` (the sentences of each, or why there is none), `doubts`, `limits`, `worth` and `notes` (texts),
        `bottlenecks` (those of `dtsweep.report.bounds`), `frontiers` (`title`, `semantics`, `model_digest`,
        and the words of each: `words`, `undecided`, `alone`, `dominated`), `frontier`, `scaling`,
        `scaling_per_node`, `worthwhile`, `laws` and `canaries` (rows of the functions of `dtsweep.analysis`),
        `hypervolume` (rows of it, for the same objectives), `differences` (rows of `difference` between the highest
        throughput of each frontier, `point_a`, and the highest of all other points of its semantics, model and
        environment, `point_b`), `implausible` (trials whose numbers can't all be true, and why), `unmeasured` (count,
        status, reason, log of trials that are not ok). Canaries are in `canaries` alone.
    """
    frontiers, scaling = content.frontiers, content.scaling
    return {
        "headline": content.headline,
        "trials": content.trials,
        "statuses": dict(content.statuses),
        "flags": dict(content.flags),
        "constants": {name: _plain(value) for name, value in content.constants.items()},
        "recommendations": [recommendation.as_json(found) for found in content.recommendations],
        "advice": [list(sentences) for sentences in content.advice],
        "doubts": list(content.doubts),
        "limits": list(content.limits),
        "worth": list(content.worth.sentences),
        "notes": list(content.notes),
        "bottlenecks": bounds_json(content.bounds),
        "frontiers": [_words_of(frontier) for frontier in frontiers],
        "frontier": [row for frontier in frontiers for row in records_of(frontier.points)],
        "hypervolume": records_of(content.hypervolume),
        "differences": [
            {"semantics": f.semantics, "model_digest": f.model_digest} | row
            for f in frontiers
            for row in records_of(f.difference)
        ],
        "scaling": [row for part in scaling if part.per == "worker" for row in records_of(part.rows)],
        "scaling_per_node": [row for part in scaling if part.per == "node" for row in records_of(part.rows)],
        **laws_json(content.worth.worthwhile, content.worth.laws),
        "canaries": records_of(content.canaries),
        "implausible": records_of(content.implausible),
        "unmeasured": records_of(content.unmeasured),
    }


def _words_of(frontier: Frontier) -> dict[str, str | None]:
    """What a report says of a frontier, and of which one."""
    names = ("semantics", "model_digest", "undecided", "alone")
    words = {"title": frontier.name, "words": frontier.verdict_words, "dominated": frontier.dominated_count}
    return words | {name: getattr(frontier, name) for name in names}


def _plain(value: Any) -> Any:
    """A setting as Python has it, and not NumPy."""
    return value.item() if hasattr(value, "item") else value
