"""Configuration for a goal: the answer by the launches so far, and what it gives up."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dtsweep.analysis.canaries import significant_drift
from dtsweep.analysis.candidates import (
    narrowed,
    read_goal,
    unmeasured_of,
    why_none,
    with_candidates,
)
from dtsweep.analysis.frontier import MODEL
from dtsweep.analysis.launches import setting_columns
from dtsweep.analysis.noise import Noise, noise_of
from dtsweep.analysis.objectives import Objective, read_objectives
from dtsweep.analysis.pairwise import PairTest, comparison_of
from dtsweep.analysis.study import Frame, Study, study_of
from dtsweep.analysis.where import Condition
from dtsweep.errors import SweepError
from dtsweep.inference.selection import (
    Candidates,
    Selection,
    points_to_launch,
    select,
)
from dtsweep.inference.spread import of_environment
from dtsweep.inference.variance import Numbers
from dtsweep.inference.verdicts import Answer, ConditionVerdict
from dtsweep.results.schema import IMPORTED
from dtsweep.sweep.goal import Goal, Question, goal_of
from dtsweep.sweep.mode_info import UNASKED
from dtsweep.text import count_of

if TYPE_CHECKING:
    import pandas as pd

_Compare = Callable[[Objective], PairTest]
"""Comparison of the points of one environment by an objective."""

_MANY = 500
"""Candidates from which on those that are far worse are left out of the comparison of all pairs."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Recommendation:
    """One configuration for a goal, of one model and environment."""

    goal: Goal
    objective: Objective
    point: pd.Series[Any]
    """Row of `over_launches`."""
    answer: Answer
    """Answer by the launches so far."""
    is_decided: bool
    """True if further launches would not change the choice."""
    is_futile: bool
    """True if it is open, and another round is not worth its time (`inference.forecast`)."""
    rounds_to_decide: float | None
    """Further rounds that decide with probability 0.8, if the estimates hold.

    0 if it is decided; infinite if they are over `MOST_ROUNDS`; None where that is unknown.
    """
    seconds_to_decide: float | None
    """Time of these rounds, by that of the rounds so far; None where one of the two is unknown."""
    not_measured: pd.DataFrame
    """Newest attempts at asked points that have no number, one each."""
    not_begun: int
    """Points that the newest run was to measure, and has not begun; 0 where that is not known."""
    measured: int
    """Points of its model and environment that have a number."""
    zone: float
    """Indifference zone, as a share."""
    confidence: float
    """Probability of a right answer, over all looks at the data."""
    question: Question | None
    """Question that the launches were measured for; None of a plain grid."""
    others: pd.DataFrame
    """Other candidates, best first, as rows of `over_launches` with the columns below.

    `ratio` is the objective of the recommended point divided by theirs (minus theirs where it may
    be 0 or negative). `ratio_low` and `ratio_high` are its interval at the level of a look, null
    without a test. `is_contender` is true if no point is significantly better. `is_equal` is true
    if no point is better by more than the indifference zone. `possible_gain` is the upper limit of
    how much better it is than the recommended point: a share, or a difference as `ratio`.
    """
    alternatives: pd.DataFrame
    """Points that are better by another column, or whose updates are not allowed.

    Rows of `over_launches` with `better`, the column by which the point was chosen, `is_allowed`,
    and `<column>_ratio` of `latency_s` and of `samples_per_s`: the point's value over that of the
    recommended one, with `_low` and `_high`, null if there is no test.
    """
    unknown: int
    """Points left out because what is asked for was not measured."""
    unmeasured: tuple[str, ...]
    """The columns asked for that these lack."""
    slow: int
    """Points left out because their rate is below the goal's `least_rate`."""
    implausible: int
    """Points left out because their numbers contradict each other."""
    has_other_semantics: bool
    """True if points were left out because their updates are not allowed."""
    condition_columns: tuple[str, ...]
    """Columns of the goal's condition that are measured, not set."""
    undecided: pd.DataFrame
    """Other allowed points whose intervals hold a limit of the condition, best first.

    They may or may not meet it.
    """
    drift: float | None
    """Possible drift of the machine, from `drift_of`.

    None where no canaries were read that compare.
    """
    noise: Noise
    """Of the trials of the model and environment."""
    assumed_sigma: float | None
    """Standard deviation between launches, as a share, that is known in general; None if unused.

    It is used where the launches are too few to show their own.
    """

    def __repr__(self) -> str:
        """Name the recommended point by the settings that candidates differ in."""
        import pandas as pd

        candidates = pd.concat([self.point.to_frame().T, self.others])
        names = [
            name
            for name in setting_columns(candidates)
            if candidates[name].nunique(dropna=False) > 1 and pd.notna(self.point[name])
        ]
        settings = " ".join(f"{name}={self.point[name]}" for name in names)
        value = f"{self.objective.name}={self.point[self.objective.name]:.4g}"
        words = " ".join(filter(None, [settings, value]))
        count = count_of(len(candidates), "candidate")
        return f"<Recommendation: {self.answer}, {words}, of {count}>"

    @property
    def contenders(self) -> pd.DataFrame:
        """The other candidates that no point is significantly better than."""
        return self.others[self.others["is_contender"]]


def recommend(frame: Frame, goal: Goal | str | None = None) -> list[Recommendation]:
    """Recommend one configuration for a goal, for each model and environment.

    Candidates have allowed semantics and a value of the objective, meet the condition and the
    goal's `least_rate`, and their numbers don't contradict each other; one worker with inexact
    updates is a candidate only where there is no other. No frontier is computed.

    The answer is `best` if one candidate is significantly better than all others. It is `equal` if
    no other is better than the recommended one by more than the indifference zone; of such points
    the one with the fewest workers is taken, then with the least memory. Else it is `undecided`,
    and the one is taken that may lose least: mostly the best one by its means.
    `dtsweep.inference.selection` has the tests. Zone, confidence and the number of looks are those
    of the sweep's question; of a plain grid 3 %, 95 % and one look.

    Args:
        frame: one row per trial, as `dtsweep.load(results, canaries=True)` gives it, or a study of
            it.
        goal: what counts, or its name, one of `GOALS`; None is the goal that the trials were
            measured for, or the highest throughput.

    Returns:
        The one of the smallest model (fewest FLOPs) first.

    Raises:
        SweepError: no point is a candidate, or the goal can't be read.
    """
    study = study_of(frame)
    if isinstance(goal, str):
        goal = goal_of(goal)
    goal = goal or study.goal
    objective = read_goal(study.points, goal)
    condition = study.condition(goal.where)
    points = with_candidates(study, goal, objective, condition)
    if not (points["is_candidate"] & points["is_met"]).any():
        raise SweepError(why_none(points, objective, condition))

    recommendations = []
    for group, compare in _groups_in(study, points.sort_values("flops_per_sample", kind="stable")):
        if (group["is_candidate"] & group["is_met"]).any():
            recommendations.append(_recommend_one(study, group, goal, condition, compare))
    return recommendations


def _groups_in(study: Study, points: pd.DataFrame) -> Iterator[tuple[pd.DataFrame, _Compare]]:
    """Yield the points of each model and environment, and how to compare them."""
    compare = functools.cache(functools.partial(_comparison_in, study))
    for _, group in points.groupby([*MODEL, "env_id"], dropna=False, sort=False):
        yield group, functools.partial(compare, group["env_id"].iloc[0])


def selections_in(study: Study, goal: Goal) -> Iterator[tuple[pd.DataFrame, Selection]]:
    """Select among the candidates of each model and environment that has some.

    Yields:
        Candidates, and the selection, whose numbers are places among them.

    Raises:
        SweepError: the goal can't be read.
    """
    objective = read_goal(study.points, goal)
    condition = study.condition(goal.where)
    points = with_candidates(study, goal, objective, condition)
    for group, compare in _groups_in(study, points):
        if group["is_candidate"].any():
            kept, _, selection = _selected(group, goal, compare, study)
            yield kept[kept["is_candidate"]], selection


def is_futile_in(study: Study, candidates: pd.DataFrame, selection: Selection) -> bool:
    """True if a question is open, and another round of its points is not worth its time.

    Where no launches are left, as many again may be asked for.
    """
    question, forecast = study.question, selection.forecast
    if question is None or forecast is None:
        return False
    if question.goal is not None and question.goal.trains:
        # A wrong choice costs a whole training, whatever the launches here have cost.
        return False
    rows = candidates.iloc[points_to_launch(selection)]
    launches = int(rows["launches"].max())
    left = max(question.max_launches - launches, launches)
    return not forecast.is_worth(share=_round_share(study, rows["point_id"]), left=left)


def _round_share(study: Study, points: Collection[str]) -> float:
    """Time of one more round of some points, as a share of the time that was spent so far.

    Each point takes what a trial of the newest round took. Where times are unknown, trials count.
    """
    import pandas as pd

    seconds = study.seconds
    if seconds.isna().any():
        seconds = pd.Series(1.0, index=seconds.index)
    repeats = study.frame["repeat"].loc[seconds.index]
    newest = seconds[repeats == repeats.max()]
    return float(len(points) * newest.mean() / seconds.sum())


def _comparison_in(study: Study, env_id: object, objective: Objective) -> PairTest:
    """Prepare to compare the points of one environment by an objective."""
    trials = of_environment(study.trials, env_id)
    shown = significant_drift(of_environment(study.canaries, env_id))
    return comparison_of(
        trials, objective, drift=study.drift(env_id), significant_drift=shown or 0.0
    )


def _selected(
    points: pd.DataFrame, goal: Goal, compare: _Compare, study: Study
) -> tuple[pd.DataFrame, PairTest, Selection]:
    """Select among the points of one model and environment, as `with_candidates` gives them.

    Returns:
        The points, narrowed; the test; and the selection, whose numbers are places among the
        candidates.
    """
    points = narrowed(points, goal)
    rows = points[points["is_candidate"]]
    test = compare(read_goal(rows, goal))
    numbers = test.numbers_of(rows)
    # Of many candidates the best ones are compared, each to each.
    costs = test.cost.launches.point_means[numbers]
    kept = np.sort(np.argsort(costs, kind="stable")[:_MANY])
    near = rows.iloc[kept]
    selection = select(
        test.differences(numbers[kept]),
        _properties_of(near, test),
        zone=test.zone(study.zone, numbers),
        level=study.level,
    )
    return points, test, selection.among(kept, len(rows))


def _recommend_one(
    study: Study, points: pd.DataFrame, goal: Goal, condition: Condition, compare: _Compare
) -> Recommendation:
    """Choose among the points of one model and environment."""
    points, test, selection = _selected(points, goal, compare, study)
    objective, rounds = test.objective, rounds_of(selection)
    failed, not_begun = _without_number(study, goal, condition, points)
    rows = points[points["is_candidate"]]
    chosen = rows.index[[selection.chosen]]
    places = np.arange(len(rows))
    order = rows.assign(
        mean_cost=test.cost.launches.point_means[test.numbers_of(rows)],
        is_contender=np.isin(places, selection.contenders),
        is_equal=np.isin(places, selection.equal),
        possible_gain=_as_share(selection.shortfall, test),
    )
    ordered = order.drop(index=chosen).sort_values("mean_cost", kind="stable")
    rivals = ordered.drop(columns="mean_cost")
    ratios = test.ratios(rows.loc[chosen], rivals, level=study.level)
    return Recommendation(
        goal=goal,
        objective=objective,
        point=rows.loc[chosen[0]],
        answer=selection.answer,
        # Of several points that were asked for, one number is no answer.
        is_decided=selection.is_decided and not (not_begun or (len(points) == 1 and len(failed))),
        measured=len(points),
        not_measured=failed,
        not_begun=not_begun,
        is_futile=is_futile_in(study, rows, selection),
        rounds_to_decide=rounds,
        seconds_to_decide=_seconds_of(study, rows.iloc[points_to_launch(selection)], rounds),
        zone=study.zone,
        confidence=study.confidence,
        question=study.question,
        others=rivals.assign(
            **{f"ratio{end}": values for end, values in ratios.items()}
        ).reset_index(drop=True),
        alternatives=_alternatives(
            points, points.loc[chosen], objective, compare, level=study.level
        ),
        unknown=int((points["is_unknown"] & points["is_allowed"]).sum()),
        unmeasured=unmeasured_of(points, objective, condition),
        slow=int(
            (
                points["is_slow"]
                & points["is_allowed"]
                & points["is_met"]
                & ~points["is_implausible"]
            ).sum()
        ),
        implausible=int((points["is_implausible"] & points["is_allowed"]).sum()),
        has_other_semantics=not points["is_allowed"].all(),
        condition_columns=tuple(
            name for name in condition.columns if name not in setting_columns(points)
        ),
        undecided=_undecided(points, chosen, objective),
        drift=test.drift,
        noise=_noise_of(study, points),
        assumed_sigma=test.assumed_sigma(rows.loc[chosen], rivals),
    )


def _without_number(
    study: Study, goal: Goal, condition: Condition, points: pd.DataFrame
) -> tuple[pd.DataFrame, int]:
    """Newest attempts at asked points that have no number, and the count of points not begun.

    What was asked for is the plan of the newest run, where its record has it.
    """
    frame = study.frame
    trials = frame[(frame["role"] != "canary") & (frame["harness"] != IMPORTED)]
    newest = trials.drop_duplicates("point_id", keep="last")
    failed = newest[~newest["point_id"].isin(study.trials["point_id"])]
    failed = failed[failed["status"] != "skipped"]
    planned = set(frame.attrs.get("planned", "").split())
    if planned:
        failed = failed[failed["point_id"].isin(planned)]
    not_begun = 0
    # Names of points alone don't say which a condition, or another model, leaves out.
    has_one_model = study.points["model_digest"].nunique(dropna=False) == 1
    if has_one_model and not goal.where:
        not_begun = len(planned - set(trials["point_id"]))
    semantics = failed["semantics"]
    failed = failed[semantics.isna() | semantics.isin([*UNASKED, *goal.allow])]
    if not has_one_model:
        # A failure before the model was built has no digest: it may be of any model.
        digests = failed["model_digest"]
        failed = failed[digests.isna() | digests.isin(points["model_digest"])]
    columns = list(dict.fromkeys([*failed.columns, *condition.columns]))
    is_outside = condition.holds(failed.reindex(columns=columns)).eq(other=False)
    return failed[~is_outside.fillna(value=False).astype("bool")], not_begun


def _noise_of(study: Study, points: pd.DataFrame) -> Noise:
    """Noise of the trials of some points of one environment."""
    env_id = points["env_id"].iloc[0]
    trials = of_environment(study.trials, env_id)
    shown = significant_drift(of_environment(study.canaries, env_id))
    return noise_of(trials[trials["point_id"].isin(points["point_id"])], drift=shown)


def _properties_of(rows: pd.DataFrame, test: PairTest) -> Candidates:
    """Properties of candidates that a selection asks for."""
    counts = test.cost.launches.counts[test.numbers_of(rows)]
    return Candidates(
        # What is set is the same in every launch.
        counts=np.maximum(counts, 2) if test.objective.is_exact else counts,
        is_met=(rows["condition_verdict"] == ConditionVerdict.MEETS).to_numpy("bool"),
        is_likely=rows["is_met"].to_numpy("bool"),
        prices=_prices(rows, test.objective),
    )


def _prices(rows: pd.DataFrame, objective: Objective) -> Numbers:
    """(points, prices): workers and memory; where what counts is set, the rate, negated."""
    if objective.is_exact:
        return -rows[["samples_per_s"]].to_numpy("float64", na_value=0.0)
    return np.column_stack(
        [
            rows["workers"].to_numpy("float64"),
            rows["memory_peak_bytes"].to_numpy("float64", na_value=np.inf),
        ]
    )


def _as_share(gains: Numbers, test: PairTest) -> Numbers:
    """Gains as shares, where they are differences of logarithms."""
    if test.objective.is_relative:
        with np.errstate(over="ignore"):  # a gain without a bound is infinite
            return np.expm1(gains)
    return gains


def rounds_of(selection: Selection) -> float | None:
    """Further rounds that decide, as `Recommendation.rounds_to_decide`."""
    if selection.is_decided:
        return 0
    return selection.forecast.rounds if selection.forecast else None


def _seconds_of(study: Study, points: pd.DataFrame, rounds: float | None) -> float | None:
    """Time of so many rounds of some points; None where times are unknown."""
    if rounds is None or math.isinf(rounds) or study.seconds.isna().any():
        return None
    return rounds * _round_share(study, points["point_id"]) * float(study.seconds.sum())


def _undecided(points: pd.DataFrame, chosen: pd.Index[int], objective: Objective) -> pd.DataFrame:
    """Other allowed points that may or may not meet the condition, best first."""
    is_undecided = points["condition_verdict"] == ConditionVerdict.UNDECIDED
    others = points[is_undecided & points["is_allowed"] & ~points["is_implausible"]]
    others = others.drop(index=chosen, errors="ignore").dropna(subset=[objective.name])
    ascending = not objective.maximize
    return others.sort_values(objective.name, ascending=ascending, kind="stable").reset_index(
        drop=True
    )


def _alternatives(
    points: pd.DataFrame,
    chosen: pd.DataFrame,
    objective: Objective,
    compare: _Compare,
    *,
    level: float,
) -> pd.DataFrame:
    """Points that are significantly better in some objective than the recommended one."""
    import pandas as pd

    # Workers that exchange nothing train a model each: their rate is no faster training.
    is_training = points["semantics"] != "not_exchanged"
    would_do = points["is_allowed"] | (points["is_met"] & ~points["is_slow"] & is_training)
    pool = points[would_do & ~points["is_alone"] & ~points["is_implausible"]]
    pool = pool.dropna(subset=["latency_s", "samples_per_s"])
    objectives = read_objectives(points)
    tests = {item.name: compare(item) for item in (*objectives, objective)}
    rows, better = [], []
    for is_allowed, by in [*((True, item) for item in objectives), (False, objective)]:
        candidates = pool[pool["is_allowed"] == is_allowed].dropna(subset=[by.name])
        first = candidates.sort_values(by.name, ascending=not by.maximize, kind="stable").head(1)
        test = tests[by.name]
        numbers = test.numbers_of(first)
        chosen_numbers = test.numbers_of(chosen)
        if first.empty or (chosen_numbers < 0).any():
            continue
        pair = test.differences(np.concatenate([chosen_numbers, numbers]))
        if pair.estimate[0, 1] > pair.half_width(level)[0, 1]:
            rows.append(first.index[0])
            better.append(by.name)
    alternatives = pool.loc[rows].assign(better=better)
    ratios = {
        f"{name}_ratio{end}": values
        for name, test in tests.items()
        for end, values in test.ratios(alternatives, chosen, level=level).items()
    }
    # In one piece: so many columns one by one make pandas warn of a fragmented table.
    of_ratios = pd.DataFrame(ratios, index=alternatives.index)
    return pd.concat([alternatives, of_ratios], axis=1).reset_index(drop=True)
