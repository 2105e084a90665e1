"""Content of the report, computed once: each renderer shows it and computes nothing of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol

from dtsweep.analysis import (
    bottleneck,
    frontier,
    scaling,
    setting_columns,
    without_canaries,
    worthwhile,
)
from dtsweep.analysis.objectives import MAXIMIZED, MINIMIZED
from dtsweep.analysis.recommend import Recommendation
from dtsweep.analysis.settings import axis_name
from dtsweep.analysis.study import Frame, Study, study_of
from dtsweep.errors import LABEL_SHOWN, shortened
from dtsweep.report.advice import frontier_answer, goal_asked, recommended_in
from dtsweep.report.doubts import conditions_on, doubts_on, unsound_doubts
from dtsweep.report.frontiers import Frontier, frontiers_of
from dtsweep.report.labels import model_columns, point_label, varying_columns
from dtsweep.report.limits import limits_on
from dtsweep.report.notes import counts_of, notes_on
from dtsweep.report.recommendation import Advice, advice_on
from dtsweep.report.remarks import Remark, remark
from dtsweep.report.scaling_words import scaling_remarks
from dtsweep.text import count_of

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

_SCALING_TITLES = {
    "weak": "Weak scaling by {per}s, same micro_batch and accumulation",
    "strong": "Strong scaling by {per}s, same global_batch, fastest micro_batch × accumulation "
    "(a noisy maximum)",
}

MOST_LADDERS = 200
"""Largest number of scaling groups for which a report says where one more worker doesn't pay.

Each takes some milliseconds.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Scaling:
    """Speed-ups of one kind of scaling, weak or strong.

    The size of a world is counted in workers or in nodes.
    """

    title: str
    """The kind, the unit of size, and what is equal in a group."""
    per: Literal["worker", "node"]
    """Unit in which the size of a world is counted."""
    rows: pd.DataFrame
    """Rows of `dtsweep.analysis.scaling`, of this kind alone; never empty."""
    labels: pd.Series[str]
    """Sync mode and swept settings of each row, with the index of `rows`."""

    @cached_property
    def groups(self) -> list[pd.DataFrame]:
        """Rows of each group, from the smallest world to the largest.

        The group that has the highest throughput in a larger world than its smallest stands first.
        """
        larger = self.rows[self.rows["group"].duplicated()]
        highest = (
            larger.groupby("group")["samples_per_s"]
            .max()
            .sort_values(ascending=False, kind="stable")
        )
        groups = dict(tuple(self.rows.groupby("group")))
        return [groups[group] for group in highest.index]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Worth:
    """From how many workers on one more doesn't pay."""

    worthwhile: pd.DataFrame
    """Rows of `dtsweep.analysis.worthwhile`."""
    remarks: Sequence[Remark]
    """Remarks on each group of scaling, and the number of unknown groups."""


class Section(Protocol):
    """A part of a report in a file of its own."""

    def print(self, *, console: Console) -> None:
        """Print it."""

    def as_json(self) -> dict[str, Any]:
        """Give it as JSON values, under keys of its own."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Content:
    """Everything that a report says of results; canaries stand in `canaries` and `notes` alone."""

    study: Study
    """All trials, and the tables that are made of them."""
    varying: Sequence[str]
    """Setting columns of points that have more than one value.

    `hosts` is among them if one point was measured on several numbers of hosts.
    """
    objectives: Sequence[str]
    """Objectives of the frontiers other than step time and throughput."""
    constants: Mapping[str, Any]
    """The other settings with their values, named as in a sweep file."""
    recommendations: Sequence[Recommendation]
    """Recommendations for the highest throughput, one per model and environment.

    Empty if no point is a candidate.
    """
    advice: Sequence[Advice]
    """Words on each recommendation; without one, the reason for that."""
    frontier_answer: Sequence[Remark]
    """Numbers of points on the frontier and of open ones; empty where it was not the question."""
    bounds: pd.DataFrame
    """Rows of `dtsweep.analysis.bottleneck`, one per point."""
    limits: Sequence[Remark]
    """Count of the limits of the points on frontiers."""
    frontiers: Sequence[Frontier]
    """One per semantics, model and environment, exact updates first; empty without `ok` trials."""
    scaling: Sequence[Scaling]
    """Sections by workers, then by nodes: weak scaling, then strong scaling.

    Kinds without a group of several sizes are left out.
    """
    worth: _Worth
    """From how many workers on one more doesn't pay, for the groups of `scaling`."""
    unsound: Sequence[Remark]
    """Points that are not recommended as sound, with the reason and the remedy.

    They stand next to the answer. Empty if there are no such points.
    """
    doubts: Sequence[Remark]
    """Warnings on what to ignore and what not to compare, shown before any table.

    Empty if nothing is in doubt.
    """
    notes: Sequence[Remark]
    """Notes on how the numbers came about. Empty without frontiers."""
    sections: Sequence[Section]
    """Further sections, the last ones of a report.

    Each prints itself and gives its JSON values.
    """

    def __repr__(self) -> str:
        """Give the headline."""
        return f"<Content: {self.headline}>"

    @cached_property
    def _rows(self) -> pd.DataFrame:
        return without_canaries(self.study.frame)

    @property
    def trials(self) -> int:
        """Number of trials of any status; 0 if the results are empty."""
        return len(self._rows)

    @cached_property
    def headline(self) -> str:
        """Workload, devices, hosts, and trials by status, in one line."""
        return _headline(self._rows)

    @cached_property
    def statuses(self) -> Mapping[str, int]:
        """Trials by status, the most frequent first."""
        return counts_of(self._rows["status"])

    @cached_property
    def flags(self) -> Mapping[str, int]:
        """Trials by flag, the most frequent first; a trial may have several."""
        return counts_of(self._rows["flags"].explode())

    @property
    def canaries(self) -> pd.DataFrame:
        """Rows of `dtsweep.analysis.canaries`: one per world and session that measured a canary."""
        return self.study.canaries

    @cached_property
    def implausible(self) -> pd.DataFrame:
        """Trials whose numbers can't all be true.

        Columns are `trial_id`, `point_id`, `repeat` and `implausible`, which names the numbers.
        """
        columns = ["trial_id", "point_id", "repeat", "implausible"]
        return self._rows.loc[self._rows["implausible"].notna(), columns]

    @cached_property
    def unmeasured(self) -> pd.DataFrame:
        """Trials that are not `ok`, by status and reason; the skipped ones are last.

        Columns are `count`, `status`, `reason` and the first one's `log`.
        """
        return _unmeasured(self._rows)


def content_of(
    frame: Frame,
    *,
    minimize: Sequence[str] = MINIMIZED,
    maximize: Sequence[str] = MAXIMIZED,
    where: str = "",
    sections: Sequence[Section] = (),
) -> Content:
    """Compute the content of a report.

    Args:
        frame: one row per trial, canaries included, or a study of it.
        minimize: objectives, as `dtsweep.analysis.frontier` takes them.
        maximize: the same.
        where: a condition that all points have to meet that tables show; `SweepError` if it can't
            be read.
        sections: further parts, of the points that meet the condition.
    """
    study = study_of(frame)
    bounds = bottleneck(study)
    points = frontier(study, minimize=minimize, maximize=maximize, where=where)
    conditions = conditions_on(points, where, minimize=minimize, maximize=maximize)
    varying, label_columns = varying_columns(points), _label_columns(points)
    frontiers = frontiers_of(study, points, varying)
    selected = study.where(where)
    ladders = _scaling(selected, label_columns)
    worth = _worth(selected, ladders)
    goal = goal_asked(study, minimize=minimize, maximize=maximize)
    recommended, why_none = recommended_in(study, goal, where=where)
    return Content(
        study=study,
        varying=varying,
        objectives=[
            name for name in (*minimize, *maximize) if name not in (*MINIMIZED, *MAXIMIZED)
        ],
        constants=_constants(points, varying),
        recommendations=recommended,
        advice=advice_on(recommended, varying, bounds) or [Advice(answer=why_none)],
        frontier_answer=frontier_answer(study, points),
        bounds=bounds,
        limits=limits_on([frontier.shown for frontier in frontiers], bounds),
        frontiers=frontiers,
        scaling=ladders,
        worth=worth,
        unsound=unsound_doubts(study),
        doubts=[*conditions, *doubts_on(study, points, varying=varying)],
        notes=notes_on(study, points),
        sections=sections,
    )


def _label_columns(points: pd.DataFrame) -> list[str]:
    """Name the columns that label groups of scaling: those that vary, of models and machines, too.

    `model_digest` is left out if settings of the workload identify the models.
    """
    label_columns = varying_columns(points)
    if points["model_digest"].nunique(dropna=False) > 1 and not model_columns(points):
        label_columns.append("model_digest")
    if points["env_id"].nunique(dropna=False) > 1:
        label_columns.append("env_id")
    return label_columns


def _headline(trials: pd.DataFrame) -> str:
    workloads = trials["workload"]
    if "workload_path" in trials:
        workloads = trials["workload_path"].fillna(workloads)
    values = (column.dropna().unique() for column in (workloads, trials["devices"]))
    names = [
        " and ".join(shortened(str(value), LABEL_SHOWN) for value in sorted(column))
        for column in values
    ]
    hosts = 0
    if trials["hosts"].notna().any():
        hosts = int(trials["hosts"].max())
    extent = []
    if hosts > 1:
        extent = [f"up to {count_of(hosts, 'host')}"]
    by_status = ", ".join(
        f"{count} {status}" for status, count in counts_of(trials["status"]).items()
    )
    return " · ".join(
        [*filter(None, names), *extent, f"{count_of(len(trials), 'trial')}: {by_status}"]
    )


def _constants(points: pd.DataFrame, varying: Sequence[str]) -> dict[str, Any]:
    """Settings that all points share; an environment without variables is none."""
    names = [name for name in setting_columns(points) if name not in ("workload", *varying)]
    shared = {
        axis_name(name): points[name].iloc[0]
        for name in names
        if points[name].notna().all() and points[name].nunique() == 1
    }
    has_no_setting = points["optimizer"].isna()
    classes = points.loc[has_no_setting, "optimizer_class"].unique()
    if len(classes) == 1 and has_no_setting.all() and isinstance(classes[0], str):
        shared["optimizer"] = f"{classes[0]} (the workload's own)"
    return {name: value for name, value in shared.items() if value not in ("{}", "[]")}


def _scaling(study: Study, varying: Sequence[str]) -> list[Scaling]:
    units: tuple[Literal["worker", "node"], ...] = ("worker", "node")
    return [
        Scaling(
            title=_SCALING_TITLES[str(kind)].format(per=per),
            per=per,
            rows=rows,
            labels=rows.apply(point_label, axis=1, varying=varying),
        )
        for per in units
        for kind, rows in scaling(study, per=per).groupby("kind", sort=False)
    ]


def _worth(study: Study, scaling: Sequence[Scaling]) -> _Worth:
    """Find for each group of scaling from where one more worker doesn't pay.

    Nothing is computed for more than `MOST_LADDERS` groups, so that a report takes seconds.
    """
    import pandas as pd

    groups = sum(part.rows["group"].nunique() for part in scaling if part.per == "worker")
    if groups > MOST_LADDERS:
        nothing = pd.DataFrame(columns=["group", "verdict", "pays_to", "reason"])
        return _Worth(worthwhile=nothing, remarks=[remark("many_groups", count=groups)])
    pays = worthwhile(study)
    return _Worth(worthwhile=pays, remarks=scaling_remarks(pays))


def _unmeasured(trials: pd.DataFrame) -> pd.DataFrame:
    groups = trials[trials["status"] != "ok"].groupby(["status", "reason"], dropna=False)
    rows = groups["log"].agg(count="size", log="first").reset_index()
    rows = rows.assign(skipped=rows["status"] == "skipped")
    rows = rows.sort_values(["skipped", "status", "count"], ascending=[True, True, False])
    return rows[["count", "status", "reason", "log"]]
