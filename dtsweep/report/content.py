"""Content of the report, computed once: each renderer shows it and computes nothing of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from dtsweep.analysis import canaries, difference, frontier, scaling, setting_columns, without_canaries
from dtsweep.analysis.spread import of_environment
from dtsweep.report.labels import axis_name, model_columns, model_label, point_label, trial_label
from dtsweep.report.notes import notes_on
from dtsweep.report.text import count_of

if TYPE_CHECKING:
    import pandas as pd

_FRONTIER_TITLES = {
    "exact": "exact updates",
    "lossy": "lossy updates",
    "stale": "stale updates, a step is one worker's push",
    "local": "local updates, latency is the mean step",
}
_SCALING_TITLES = {
    "weak": "Weak scaling by {per}s, same micro_batch and accumulation",
    "strong": "Strong scaling by {per}s, same global_batch, fastest micro_batch × accumulation (a noisy maximum)",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Frontier:
    """Points of one semantics, model and source of the workload that were measured in one environment."""

    title: str
    """The semantics in words, with the model if there are several, the label if all points share one, and the
    environment if there are several; what the workload has otherwise since."""
    semantics: str
    """What an update means, one of `dtsweep.sweep.modes.SEMANTICS`."""
    model_digest: str | None
    """What is trained; None where it is unknown, or all models count as one."""
    older_source: str | None
    """What the newest rows' source of the workload has otherwise; None where it is theirs."""
    points: pd.DataFrame
    """Rows of `dtsweep.analysis.frontier`, the fastest step first; `caution` says what puts a point in doubt."""
    labels: pd.Series[str]
    """Sync mode and swept settings of each point, with the index of `points`."""
    difference: pd.DataFrame
    """Rows of `dtsweep.analysis.difference` between the highest throughput on the frontier (`point_a`) and the highest
    of all other `points`, on the frontier or not (`point_b`); empty where there is no other."""
    verdict: str | None
    """What `difference` says of their throughput, as a sentence; None where there is no runner-up."""

    @property
    def best(self) -> pd.DataFrame:
        """Points on the frontier."""
        return self.points[self.points["on_frontier"]]

    @property
    def dominated(self) -> pd.DataFrame:
        """Points that another one beats; those without step time or throughput are neither here nor on the frontier."""
        return self.points[~self.points["on_frontier"] & self.points["standing"].notna()]

    @property
    def dominated_count(self) -> str:
        """How many are not, and of how many of them launches can't tell."""
        count = count_of(len(self.dominated), "dominated point")
        if not (untested := int((self.points["standing"] == "untested").sum())):
            return count
        if untested < len(self.dominated):
            return f"{count} ({untested} by the means alone: one launch each)"
        return f"{count_of(untested, 'point')} beaten by the means, untested (one launch each)"

    @property
    def undecided(self) -> str:
        """How many points are on it because launches don't decide, as a sentence; empty where there are none."""
        count = int((self.points["standing"] == "undecided").sum())
        return f"Beaten by the means, but launches don't decide: {count_of(count, 'point')}." if count else ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Scaling:
    """Speed-ups of one kind, weak or strong, with the size of a world counted in workers or in nodes."""

    title: str
    """The kind, the unit of size, and what is equal in a group."""
    per: Literal["worker", "node"]
    """What the size of a world is counted in."""
    rows: pd.DataFrame
    """Rows of `dtsweep.analysis.scaling`, of this kind alone; never empty."""
    labels: pd.Series[str]
    """Sync mode and swept settings of each row, with the index of `rows`."""

    @property
    def groups(self) -> list[pd.DataFrame]:
        """Rows of each group, from the smallest world to the largest; the group with the highest throughput first."""
        highest = self.rows.groupby("group")["samples_per_s"].max().sort_values(ascending=False, kind="stable")
        return [self.rows[self.rows["group"] == group] for group in highest.index]


@dataclass(frozen=True, kw_only=True, eq=False)
class Content:
    """Everything that a report says of results; canaries stand in `canaries` and `notes` alone."""

    headline: str
    """Workload, devices, hosts, and trials by status, in one line."""
    trials: int
    """Trials of any status; 0 where the results are empty."""
    statuses: Mapping[str, int]
    """Trials by status, the most frequent first."""
    flags: Mapping[str, int]
    """Trials by flag, the most frequent first; a trial may have several."""
    varying: Sequence[str]
    """Setting columns of points that have more than one value; `hosts` where one point was measured on several."""
    constants: Mapping[str, Any]
    """The other settings with their values, named as in a sweep file."""
    frontiers: Sequence[Frontier]
    """One per source, semantics, model and environment, the newest, exact updates first; empty without `ok` trials."""
    scaling: Sequence[Scaling]
    """By workers, then by nodes: weak, then strong; without those that have no group of several sizes."""
    canaries: pd.DataFrame
    """Rows of `dtsweep.analysis.canaries`: one per world and session that measured a canary."""
    notes: Sequence[str]
    """What to know before trusting the numbers; lines after the first of a note explain it. Empty without frontiers."""
    implausible: pd.DataFrame
    """Trials whose numbers can't all be true: `trial_id`, `point_id`, `repeat`, and which (`implausible`)."""
    unmeasured: pd.DataFrame
    """Trials that are not `ok`: `count`, `status`, `reason` and the first one's `log`; the skipped ones last."""


def content_of(frame: pd.DataFrame, *, one_product: bool = False) -> Content:
    """Compute the content of a report.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it, canaries included.
        one_product: compare all models with each other.
    """
    trials = without_canaries(frame)
    points = frontier(frame, one_product=one_product)
    varying = [c for c in setting_columns(points) if points[c].nunique(dropna=False) > 1]
    varying += ["hosts"] * bool(points.duplicated(["point_id", "env_id"]).any())
    statuses, flags = _counts(trials["status"]), _counts(trials["flags"].explode())
    watched = canaries(frame)
    several = [c for c in ("model_digest", "env_id", "older_source") if points[c].nunique(dropna=False) > 1]
    label_columns = [*varying, *(c for c in several if c != "model_digest" or not model_columns(points))]
    return Content(
        headline=_headline(trials, statuses),
        trials=len(trials),
        statuses=statuses,
        flags=flags,
        varying=varying,
        constants=_constants(points, varying),
        frontiers=_frontiers(trials, points, varying, one_product=one_product),
        scaling=[*_scaling(frame, label_columns, per="worker"), *_scaling(frame, label_columns, per="node")],
        canaries=watched,
        notes=notes_on(frame, points, canaries=watched, flags=flags, varying=varying, one_product=one_product),
        implausible=trials.loc[trials["implausible"].notna(), ["trial_id", "point_id", "repeat", "implausible"]],
        unmeasured=_unmeasured(trials),
    )


def _headline(trials: pd.DataFrame, statuses: Mapping[str, int]) -> str:
    names = [" and ".join(sorted(trials[c].dropna().unique())) for c in ("workload", "devices")]
    hosts = int(trials["hosts"].max()) if trials["hosts"].notna().any() else 0
    extent = [f"up to {count_of(hosts, 'host')}"] if hosts > 1 else []
    by_status = ", ".join(f"{count} {status}" for status, count in statuses.items())
    return " · ".join([*filter(None, names), *extent, f"{count_of(len(trials), 'trial')}: {by_status}"])


def _counts(column: pd.Series[str]) -> dict[str, int]:
    return {str(value): int(count) for value, count in column.value_counts().items()}


def _constants(points: pd.DataFrame, varying: Sequence[str]) -> dict[str, Any]:
    """Settings that all points share; an environment without variables is none."""
    names = [c for c in setting_columns(points) if c not in ("workload", *varying)]
    known = {axis_name(c): points[c].iloc[0] for c in names if len(points) and points[c].notna().all()}
    own = points.loc[points["optimizer"].isna(), "optimizer_class"].unique()
    named = (
        {"optimizer": f"{own[0]} (the workload's own)"}
        if len(own) == 1 and points["optimizer"].isna().all() and isinstance(own[0], str)
        else {}
    )
    return {name: value for name, value in {**known, **named}.items() if value not in ("{}", "[]")}


def _frontiers(
    trials: pd.DataFrame, points: pd.DataFrame, varying: Sequence[str], *, one_product: bool
) -> list[Frontier]:
    models = () if one_product else ("workload", "model_digest")
    apart = [c for c in (*models, "env_id") if points[c].nunique(dropna=False) > 1]
    telling = model_columns(points) if "model_digest" in apart else []
    found = []
    for _, rows in points.groupby(["older_source", "semantics", *models, "env_id"], sort=False, dropna=False):
        first = rows.iloc[0]
        labels = rows.apply(point_label, axis=1, varying=[c for c in varying if c not in (*telling, *apart)])
        leading = _leading(rows)
        compared = _difference(trials, leading)
        found.append(
            Frontier(
                title=" · ".join(filter(None, ["Frontier", *_title(first, labels, telling=telling, apart=apart)])),
                semantics=str(first["semantics"]),
                model_digest=first["model_digest"] if models and isinstance(first["model_digest"], str) else None,
                older_source=first["older_source"] if isinstance(first["older_source"], str) else None,
                points=rows,
                labels=labels,
                difference=compared,
                verdict=None if compared.empty else _verdict(compared.iloc[0], leading, varying=varying),
            )
        )
    return found


def _title(first: pd.Series[Any], labels: pd.Series[str], *, telling: Sequence[str], apart: Sequence[str]) -> list[str]:
    """What the points of a frontier share and others don't have.

    Args:
        first: one of the points.
        labels: of all.
        telling: settings that tell models apart.
        apart: which of model and environment there are several of.
    """
    return [
        _FRONTIER_TITLES.get(str(first["semantics"]), str(first["semantics"])),
        str(first["workload"]) if "workload" in apart and "workload" not in telling else "",
        model_label(first, telling) if "model_digest" in apart else "",
        labels.iloc[0] if labels.nunique() == 1 else "",
        f"env_id {first['env_id']}" if "env_id" in apart else "",
        f"older source: {first['older_source']}" if isinstance(first["older_source"], str) else "",
    ]


def _leading(points: pd.DataFrame) -> pd.DataFrame:
    """Select the highest throughput on the frontier and, below it, the highest of all other points."""
    ranked = points.dropna(subset=["samples_per_s"]).sort_values("samples_per_s", ascending=False, kind="stable")
    first = ranked.index[ranked["on_frontier"]][:1]
    return ranked.loc[[*first, *ranked.index.difference(first, sort=False)]].head(2 * len(first))


def _difference(trials: pd.DataFrame, leading: pd.DataFrame) -> pd.DataFrame:
    """Compare the first of two points with the second; empty where there are not two."""
    import pandas as pd

    if len(leading) < 2:
        return pd.DataFrame()
    a, b = leading["point_id"]
    rows = difference(of_environment(trials, leading["env_id"].iloc[0]), a, b).assign(point_a=a, point_b=b)
    return rows[rows["hosts_a"].isin(leading["hosts"].iloc[:1]) & rows["hosts_b"].isin(leading["hosts"].iloc[1:])]


def _verdict(row: pd.Series[Any], leading: pd.DataFrame, *, varying: Sequence[str]) -> str:
    """Put the first row of `difference`, that of throughput, into a sentence; name a runner-up off the frontier."""
    # Compared launch by launch, the one with the higher mean can be the slower one.
    is_paired = row["ratio"] < 1 and row["method"].startswith("paired")
    where = " in launches of both" if is_paired else ""
    doubt_a, doubt_b = (f" ({words})" if words else "" for words in (row["caution_a"], row["caution_b"]))
    ratio = f"Highest throughput{doubt_a}: {row['ratio']:.3f} times the runner-up's{doubt_b}{where}"
    second = leading.iloc[1]
    name = "" if second["on_frontier"] else f" The runner-up is off the frontier: {trial_label(second, varying)}."
    if row["method"] == "none":
        launches = row["verdict"].removeprefix("unknown: ")
        return f"{ratio}, by {launches}: whether launches differ by as much, repeats tell.{name}"
    return f"{ratio} ({row['ratio_low']:.3f}–{row['ratio_high']:.3f}), {row['verdict']}.{name}"


def _scaling(frame: pd.DataFrame, varying: Sequence[str], *, per: Literal["worker", "node"]) -> list[Scaling]:
    return [
        Scaling(
            title=_SCALING_TITLES[str(kind)].format(per=per),
            per=per,
            rows=rows,
            labels=rows.apply(point_label, axis=1, varying=varying),
        )
        for kind, rows in scaling(frame, per=per).groupby("kind", sort=False)
    ]


def _unmeasured(trials: pd.DataFrame) -> pd.DataFrame:
    groups = trials[trials["status"] != "ok"].groupby(["status", "reason"], dropna=False)
    rows = groups["log"].agg(count="size", log="first").reset_index()
    rows = rows.assign(skipped=rows["status"] == "skipped")
    rows = rows.sort_values(["skipped", "status", "count"], ascending=[True, True, False])
    return rows[["count", "status", "reason", "log"]]
