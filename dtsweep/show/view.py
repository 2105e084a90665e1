"""Content of a page as JSON values: text and numbers of the report, without any markup."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dtsweep.analysis import without_canaries
from dtsweep.report.content import Content, Section
from dtsweep.report.queues import Queues
from dtsweep.report.recommendation import Advice
from dtsweep.report.remarks import paragraph
from dtsweep.report.tables import plain_headers, recommendation_columns
from dtsweep.results.statuses import FLAG_MEANINGS, STATUS_MEANINGS
from dtsweep.show.figures import plots_of
from dtsweep.show.numbers import rounded
from dtsweep.show.plot import Plot
from dtsweep.show.points import shape_title
from dtsweep.show.points_table import table_of
from dtsweep.text import count_of

if TYPE_CHECKING:
    import pandas as pd

    from dtsweep.analysis.recommend import Recommendation

_ANSWERS_SHOWN = 3
"""Largest number of recommendations that are written out; more are a table."""

_MACHINE = {
    "devices": "devices",
    "hosts": "hosts of a trial",
    "backend": "backend",
    "harness": "harness",
    "dtsweep_version": "dtsweep",
    "torch_version": "torch",
    "ray_version": "Ray",
    "python_version": "Python",
    "numpy_version": "NumPy",
    "node_types": "node types",
    "env_id": "env_id",
}
"""Columns of trials that describe the machine and its software, with their names on the page."""

_SECTION_WIDTH = 10_000
"""Columns of text of a section: no line breaks, as a path in two parts would be shown."""


def page_view(content: Content, *, place: str) -> dict[str, Any]:
    """Arrange everything that a page shows."""
    queues = [section for section in content.sections if isinstance(section, Queues)]
    plots = [*plots_of(content), *map(_queueing, queues)]
    printed = [_printed(section) for section in content.sections if section not in queues]
    return {
        "place": place,
        "title": f"dtsweep · {place.rstrip('/').rpartition('/')[2]}",
        "headline": content.headline,
        "answers": _answers(content),
        "answers_table": _answers_table(content),
        "paragraphs": [
            *filter(None, [paragraph(content.frontier_answer), _why_no_answer(content)])
        ],
        "doubts": [one.text for one in (*content.unsound, *content.doubts)],
        "plots": [plot_values(plot) for plot in plots],
        "points": table_of(content),
        "terms": _terms(content),
        "limits": [one.text for one in content.limits],
        "worth": [one.text for one in content.worth.remarks],
        "failures": _failures(content),
        "flags": _flags(content),
        "implausible": _implausible(content),
        # Flags with their meanings are a table among the warnings.
        "notes": [note.text for note in content.notes if note.code != "flags"],
        "constants": {name: str(value) for name, value in content.constants.items()},
        "machine": _machine(without_canaries(content.study.frame)),
        "printed": [text for text in printed if text],
    }


def _queueing(queues: Queues) -> Plot:
    return Plot(
        name="queueing",
        title=queues.title,
        description="",
        note=queues.note,
        traces=(),
        layout={},
        table=plain_headers(queues.columns),
        is_table=True,
    )


def plot_values(plot: Plot) -> dict[str, Any]:
    """A plot as JSON values; one that is a table on a page has no traces."""
    traces = () if plot.is_table else plot.traces
    return {**vars(plot), "traces": _rounded(traces)}


def _rounded(value: Any) -> Any:
    """Values with numbers as a page needs them."""
    if isinstance(value, float):
        return rounded(value)
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value


def _answers(content: Content) -> list[dict[str, Any]]:
    """Each recommendation: its sentences and doubts."""
    if len(content.recommendations) > _ANSWERS_SHOWN:
        return []
    # Without a recommendation, `advice` has the reason for that.
    return [
        _answer(one, advice)
        for one, advice in zip(content.recommendations, content.advice, strict=False)
    ]


def _answer(recommendation: Recommendation, advice: Advice) -> dict[str, Any]:
    return {
        "is_decided": bool(recommendation.is_decided),
        "sentences": [one.text for one in advice.answer],
        "doubts": [one.text for one in advice.doubts],
        "more": [one.text for one in advice.others],
    }


def _answers_table(content: Content) -> dict[str, list[str]]:
    """Recommendations as a table, where they are too many to be written out."""
    if len(content.recommendations) <= _ANSWERS_SHOWN:
        return {}
    return plain_headers(recommendation_columns(content.recommendations, content.varying))


def _why_no_answer(content: Content) -> str:
    """Reason for a page without a recommendation; empty if there is one."""
    if not content.trials:
        return "No trials in these results."
    if not content.frontiers:
        return "No trial ended ok, so there is no frontier."
    if not content.recommendations:
        return paragraph(content.advice[0].answer)
    return ""


def _terms(content: Content) -> list[str]:
    """Meanings of the words in the table of points, as far as they occur in it."""
    if not content.frontiers:
        return []
    return [
        f"`point`: {shape_title(content.varying).replace(' · ', ', then ')}.",
        "`standing`: a point is beaten if another of the same kind of update is better in all "
        "objectives, and on the frontier if not. It may be beaten: another's means are better, but "
        "launches can't tell. Knee: where the frontier bends most.",
    ]


def _failures(content: Content) -> list[dict[str, Any]]:
    """Trials of each status that is not ok: their number, and the log of one, for each reason.

    Those that were skipped on purpose are shown on demand.
    """
    return [
        _failures_of(str(status), rows)
        for status, rows in content.unmeasured.groupby("status", sort=False, dropna=False)
    ]


def _failures_of(status: str, rows: pd.DataFrame) -> dict[str, Any]:
    columns = {
        "trials": [str(count) for count in rows["count"]],
        "reason": [str(reason) for reason in rows["reason"].fillna("no reason stored")],
        "log": [str(log) for log in rows["log"].fillna("")],
    }
    if not any(columns["log"]):
        del columns["log"]
    meaning = STATUS_MEANINGS.get(status, "a status of another version")
    count = count_of(int(rows["count"].sum()), "trial")
    title = f"{status}: {count} ({meaning})"
    if status == "skipped":
        first, *others = columns["reason"]
        title = f"skipped: {count}: {first}"
        if others:
            title += f", and {count_of(len(others), 'more reason')}"
    return {"status": status, "title": title, "columns": columns}


def _flags(content: Content) -> dict[str, list[str]]:
    flags = content.flags
    if not flags:
        return {}
    return {
        "flag": [*flags],
        "trials": [str(count) for count in flags.values()],
        "meaning": [FLAG_MEANINGS.get(flag, "") for flag in flags],
    }


def _implausible(content: Content) -> list[str]:
    return [
        f"Trial {row['trial_id']}, repeat {row['repeat']}: {row['implausible']}."
        for row in content.implausible.to_dict("records")
    ]


def _machine(trials: pd.DataFrame) -> list[dict[str, Any]]:
    """Values of each column of the machine with the number of their trials."""
    rows = []
    for column, name in _MACHINE.items():
        counts = trials[column].dropna().value_counts()
        values = [str(value) for value in counts.index]
        if len(counts) > 1:
            values = [
                f"{value} ({count_of(int(count), 'trial')})" for value, count in counts.items()
            ]
        if values:
            rows.append({"name": name, "values": values})
    return rows


def _printed(section: Section) -> str:
    """Text of a section, as a terminal has it."""
    from rich.console import Console

    out = io.StringIO()
    section.print(console=Console(file=out, width=_SECTION_WIDTH, highlight=False))
    return out.getvalue().strip("\n")
