"""JSON renderer of the report, for programs: every row, nothing cut."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from dtsweep.report import recommendation
from dtsweep.report.records import records_of
from dtsweep.sweep.values import python_value

if TYPE_CHECKING:
    from dtsweep.report.content import Content
    from dtsweep.report.frontiers import Frontier
    from dtsweep.report.remarks import Remark


_PRODUCT = ("semantics", "update_kind", "model_digest")
"""Keys that identify a frontier of one environment."""


def report_json(content: Content) -> dict[str, Any]:
    """Give the content of the report as JSON values: `docs/schemas/report.json`."""
    frontiers = content.frontiers
    values = {
        "headline": content.headline,
        "trials": content.trials,
        "statuses": dict(content.statuses),
        "flags": dict(content.flags),
        "constants": {name: python_value(value) for name, value in content.constants.items()},
        "recommendations": [
            recommendation.as_json(item, advice.remarks)
            for item, advice in zip(content.recommendations, content.advice, strict=False)
        ],
        "remarks": [one.as_json() for one in _remarks(content)],
        "bottlenecks": records_of(content.bounds),
        "frontiers": [_words_of(frontier) for frontier in frontiers],
        "frontier": [row for frontier in frontiers for row in records_of(frontier.points)],
        "differences": [row for frontier in frontiers for row in _differences_of(frontier)],
        "scaling": _scaling_rows(content, per="worker"),
        "scaling_per_node": _scaling_rows(content, per="node"),
        "worthwhile": records_of(content.worth.worthwhile),
        "canaries": records_of(content.canaries),
        "implausible": records_of(content.implausible),
        "unmeasured": records_of(content.unmeasured),
        "time_to_loss": [],
        "grids": [],
        "queueing": [],
    }
    for section in content.sections:
        values.update(section.as_json())
    return values


def _remarks(content: Content) -> Iterator[Remark]:
    """Yield the remarks that are not on one recommendation, in the report's order."""
    yield from content.frontier_answer
    if not content.recommendations:
        yield from chain.from_iterable(advice.remarks for advice in content.advice)
    yield from (*content.unsound, *content.doubts, *content.limits)
    yield from (*content.worth.remarks, *content.notes)


def _scaling_rows(content: Content, *, per: str) -> list[dict[str, Any]]:
    return [row for part in content.scaling if part.per == per for row in records_of(part.rows)]


def _differences_of(frontier: Frontier) -> list[dict[str, Any]]:
    product = {name: getattr(frontier, name) for name in _PRODUCT}
    return [product | row for row in records_of(frontier.difference)]


def _words_of(frontier: Frontier) -> dict[str, Any]:
    """Give the sentences of a report on a frontier, with the keys that identify it."""
    names = (*_PRODUCT, "undecided", "alone")
    words = {
        "title": frontier.name,
        "dominated": len(frontier.dominated),
        "updates": frontier.updates,
    }
    return words | {name: getattr(frontier, name) for name in names}
