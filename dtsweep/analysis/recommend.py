"""Which configuration to take for a goal, how sure that is, and what it gives up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dtsweep.analysis.canaries import canaries
from dtsweep.analysis.candidates import read_goal, why_none, with_candidates
from dtsweep.analysis.frontier import MODEL
from dtsweep.analysis.launches import measured, points_of
from dtsweep.analysis.objectives import Cost, Objective, cost_of, read_objectives
from dtsweep.analysis.spread import POINT, of_environment
from dtsweep.analysis.standing import Rows
from dtsweep.analysis.variance import Numbers
from dtsweep.errors import SweepError
from dtsweep.sweep.goal import GOALS, Goal

if TYPE_CHECKING:
    import pandas as pd

SURE = {
    "told": "launches tell that it is better than every other candidate",
    "tied": "launches don't tell it from others",
    "untested": "better than the others by one launch each: nothing says how far launches differ",
    "alone": "no other point is a candidate",
}
"""How sure a recommendation is."""


WORTH_A_WORKER = 0.05
"""What more workers have to bring by the means, as a share, where launches don't tell that they bring anything."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Recommendation:
    """One configuration for a goal, of one model and environment."""

    goal: Goal
    objective: Objective
    point: pd.Series[Any]
    """Row of `over_launches`."""
    sure: str
    """One of `SURE`."""
    others: pd.DataFrame
    """The other candidates, the best first: rows of `over_launches` with `ratio`, the objective of the recommended
    point over theirs (less theirs where one may be 0 or below), `ratio_low` and `ratio_high`, its 95 % interval, null
    where there is no test, and `is_tied`, whether it is not told from the best one."""
    alternatives: pd.DataFrame
    """What is better in something else, or by updates that are not allowed: rows of `over_launches` with `better`, the
    column by which it was chosen, `is_allowed`, and `<column>_ratio` of `latency_s` and of `samples_per_s`, what it
    has over the recommended point, with `_low` and `_high`, null where there is no test."""
    unknown: int
    """Points left out because what is asked for was not measured."""
    implausible: int
    """Points left out because their numbers contradict each other."""
    drift: float
    """Largest drift of the machine inside a session that canaries told, as a share; 0 where they told none."""

    @property
    def tied(self) -> pd.DataFrame:
        """The other candidates that are not told from the best one."""
        return self.others[self.others["is_tied"]]


def recommend(
    frame: pd.DataFrame, goal: Goal = GOALS["throughput"], *, one_product: bool = False
) -> list[Recommendation]:
    """Recommend one configuration for a goal, for each model and environment.

    Candidates have semantics that are allowed, meet the condition, are of the newest source of the workload, and their
    numbers don't contradict each other. Of the best one and of those that it is not told from (as `difference` tells;
    with one launch each by the intervals within them and the machine's drift) and whose means are within 5 % of it, the
    one with the fewest workers is recommended, of several the best.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it, canaries included.
        goal: what counts.
        one_product: compare all models with each other.

    Returns:
        The one of the smallest model (fewest FLOPs) first.

    Raises:
        SweepError: no point is a candidate, or the goal can't be read.
    """
    trials = measured(frame)
    points = points_of(trials)
    points = points[points["older_source"].isna()]
    objective = read_goal(points, goal)
    points = with_candidates(points, goal, objective)
    if not points["is_candidate"].any():
        raise SweepError(why_none(points, goal, objective))
    watched = canaries(frame)
    drifts = (
        watched[watched["flagged"].fillna(value=False)].groupby("env_id")["drift"].agg(lambda each: each.abs().max())
    )
    found = []
    ordered = points.sort_values("flops_per_sample", kind="stable")
    for _, there in ordered.groupby([*(() if one_product else MODEL), "env_id"], dropna=False, sort=False):
        if there["is_candidate"].any():
            env_id = there["env_id"].iloc[0]
            drift = float(np.nan_to_num(drifts.get(env_id, 0.0)))
            found.append(_recommended(there, of_environment(trials, env_id), goal, objective, drift=drift))
    return found


def _recommended(
    points: pd.DataFrame, trials: pd.DataFrame, goal: Goal, objective: Objective, *, drift: float
) -> Recommendation:
    """Choose among the points of one model and environment."""
    rows = points[points["is_candidate"]]
    if goal.least_rate:
        rows = rows[rows["samples_per_s"] >= goal.least_rate * rows["samples_per_s"].max()]
    cost = cost_of(trials.dropna(subset=[objective.name]), objective)
    known = cost.launches.points.reset_index(names="row")
    rows = rows.merge(known, on=list(POINT))
    numbers = rows["row"].to_numpy()
    best = _best(cost, numbers)
    is_tied, is_tested = _tied(cost, numbers, best, drift=drift)
    order = rows.assign(centre=cost.launches.centres[numbers], is_tied=is_tied)
    near = order[order["is_tied"] & (order["centre"] <= order["centre"][best] + WORTH_A_WORKER)]
    # Of equal ones, as they are where what counts is set and not measured, the highest throughput.
    near = near.sort_values("samples_per_s", ascending=False, kind="stable")
    chosen = near.sort_values(["workers", "centre"], kind="stable").index[0]
    others = order.drop(index=chosen).sort_values("centre", kind="stable")
    over = _over(cost, others["row"].to_numpy(), numbers[[chosen]], objective)
    # That of the recommended one over theirs: the other way round.
    turned = {"": "", "_low": "_high", "_high": "_low"}
    invert = np.reciprocal if objective.is_relative else np.negative
    others = others.assign(**{f"ratio{end}": invert(over[turned[end]]) for end in turned})
    sure = "alone" if others.empty else "tied" if is_tied.sum() > 1 else "told" if is_tested.all() else "untested"
    return Recommendation(
        goal=goal,
        objective=objective,
        point=rows.loc[chosen],
        sure=sure,
        others=others.drop(columns=["row", "centre"]).reset_index(drop=True),
        alternatives=_alternatives(points, trials, rows.loc[chosen], objective),
        unknown=int(points["is_unknown"].sum()),
        implausible=int((points["is_implausible"] & points["is_allowed"]).sum()),
        drift=drift,
    )


def _best(cost: Cost, numbers: Rows) -> int:
    """The place of the point with the least cost, unless launches that measured both tell another one to be better."""
    best = int(cost.launches.centres[numbers].argmin())
    for _ in range(len(numbers)):
        found = cost.contrasts(numbers[[best]], numbers)
        worse_than = np.flatnonzero(found.greater[0])
        if not len(worse_than):
            break
        best = int(worse_than[cost.launches.centres[numbers[worse_than]].argmin()])
    return best


def _tied(cost: Cost, numbers: Rows, best: int, *, drift: float) -> tuple[Any, Any]:
    """Which points are not told from the best one, itself included; and which of them launches can test.

    Two with one launch each, where nothing says how far launches differ, are told apart by the intervals within them
    and by the drift of the machine; an error that is not known counts as the largest that is.
    """
    found = cost.contrasts(numbers, numbers[[best]])
    excess, tested = found.estimate[:, 0], found.tested[:, 0]
    within = cost.launches.within[numbers]
    within = np.where(np.isnan(within), np.nanmax(within, initial=0.0), within)
    by_one_launch = np.maximum(1.96 * (within + within[best]) ** 0.5, np.log1p(drift))
    is_tied = ~(excess > np.where(tested, found.reach[:, 0], by_one_launch))
    is_tied[best] = tested[best] = True
    return is_tied, tested


def _over(cost: Cost, rows: Rows, other: Rows, objective: Objective) -> dict[str, Numbers]:
    """The objective of points over that of another one, with its interval; less it, where one may be 0 or below."""
    found = cost.contrasts(rows, other)
    estimate, reach = (-1 if objective.maximize else 1) * found.estimate[:, 0], found.reach[:, 0]
    ends = {"": estimate, "_low": estimate - reach, "_high": estimate + reach}
    return {end: np.exp(value) if objective.is_relative else value for end, value in ends.items()}


def _alternatives(
    points: pd.DataFrame, trials: pd.DataFrame, chosen: pd.Series[Any], objective: Objective
) -> pd.DataFrame:
    """Points that are told, or seem by one launch each, to be better in something than the recommended one."""
    import pandas as pd

    trusted = points[~points["is_implausible"]].dropna(subset=["latency_s", "samples_per_s", objective.name])
    both = read_objectives(points)
    kinds = [(True, each) for each in both] + [(False, objective)]
    rows = [
        trusted[trusted["is_allowed"] == is_allowed]
        .sort_values(each.name, ascending=not each.maximize, kind="stable")
        .head(1)
        .assign(better=each.name)
        for is_allowed, each in kinds
    ]
    found = pd.concat(rows, ignore_index=True)
    for each in {each.name: each for each in (*both, objective)}.values():
        cost = cost_of(trials.dropna(subset=[each.name]), each)
        known = cost.launches.points.reset_index(names="row")
        numbers = found[list(POINT)].merge(known, how="left", on=list(POINT))["row"].to_numpy("int64")
        own = (
            chosen[list(POINT)]
            .to_frame()
            .T.astype(known.dtypes[list(POINT)])
            .merge(known, on=list(POINT))["row"]
            .to_numpy("int64")
        )
        # Of the recommended point the other objective may be unknown.
        unknown = dict.fromkeys(("", "_low", "_high"), np.full(len(found), np.nan))
        over = _over(cost, numbers, own, each) if len(own) else unknown
        found = found.assign(**{f"{each.name}_ratio{end}": values for end, values in over.items()})
        is_better = over[""] > 1 if each.maximize else over[""] < 1
        is_told = ~((over["_low"] <= 1) & (over["_high"] >= 1))
        found["is_better"] = np.where(found["better"] == each.name, is_better & is_told, found.get("is_better", True))
    return found[found["is_better"].astype("bool")].drop(columns="is_better").reset_index(drop=True)
