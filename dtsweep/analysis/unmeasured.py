"""Points that were not measured and are predicted to be better than the recommended one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dtsweep.analysis.asked import possible_point
from dtsweep.analysis.importance import swept_axes
from dtsweep.analysis.launches import without_canaries
from dtsweep.analysis.model import (
    PREDICTED,
    WITH_INTERVAL,
    PerformanceModel,
    performance_model,
)
from dtsweep.analysis.recommend import Recommendation
from dtsweep.analysis.settings import (
    NODES,
    Settings,
    axis_name,
    settings_key,
    settings_of_rows,
    text_of,
)
from dtsweep.analysis.study import Study

if TYPE_CHECKING:
    import pandas as pd

MOST = 10_000
"""Combinations of measured values that are looked at."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Unmeasured:
    """The most promising point that was not measured."""

    row: pd.Series[Any]
    """Row of `PerformanceModel.predict`."""

    objective: str
    """Column by which points are compared."""

    is_better: bool
    """True if all of its 90 % interval is better than the recommended point's mean."""

    candidates: int
    """Points without a trial that can be predicted, and are allowed."""

    settings: dict[str, str]
    """Values of the swept axes as texts, by the names of a sweep file."""

    @property
    def command(self) -> str:
        """Command that measures it; the sweep file stands for itself."""
        words = [f"--set {name}={value}" for name, value in self.settings.items()]
        return " ".join(["dtsweep run SWEEP.py", *words])


@dataclass(frozen=True, kw_only=True)
class NoPoint:
    """No point was found."""

    reason: str
    """Sentence, without a full stop, that says why."""


def best_unmeasured(study: Study, recommendation: Recommendation) -> Unmeasured | NoPoint:
    """Find the point that was not measured with the best end of its interval.

    Candidates are the combinations of measured values of the swept axes that are allowed, can be
    predicted, and have no trial, skipped ones included. They meet the condition of the goal and its
    `least_rate` by their predicted values.
    """
    model = _model_of(study, recommendation)
    if model is None:
        return NoPoint(reason="the measured trials have no micro_batch, which predictions need")
    if (reason := _reason_against(recommendation, model)) is not None:
        return NoPoint(reason=reason)
    # Trials that failed or were skipped are no candidates, either.
    known = {settings_key(one) for one in _settings_to_ask(_trials_of(study, model))}
    settings = list(_candidates(model, known, allow=recommendation.goal.allow))
    if not settings:
        return NoPoint(reason="each allowed combination of measured values has a trial")
    rows = model.predict(settings)
    rows = rows[rows["reason"].isna() & rows[recommendation.objective.name].notna()]
    if rows.empty:
        return NoPoint(reason="no combination of measured values without a trial can be predicted")
    rows = rows[_meets_goal(rows, study, recommendation)]
    if rows.empty:
        return NoPoint(reason="no combination of measured values without a trial meets the goal")
    return _best_of(rows, recommendation, model)


def _best_of(
    rows: pd.DataFrame, recommendation: Recommendation, model: PerformanceModel
) -> Unmeasured:
    """Take the predicted point with the best end of its interval."""
    objective = recommendation.objective
    sign, end = (1, "low") if objective.maximize else (-1, "high")
    best = rows.iloc[int((sign * rows[f"{objective.name}_{end}"]).to_numpy("float64").argmax())]
    gain = best[f"{objective.name}_{end}"] - recommendation.point[objective.name]
    return Unmeasured(
        row=best,
        objective=objective.name,
        is_better=bool(sign * gain > 0),
        candidates=len(rows),
        settings=_swept_settings(model, best),
    )


def _reason_against(recommendation: Recommendation, model: PerformanceModel) -> str | None:
    """Say why nothing can be predicted; None if something can."""
    objective = recommendation.objective.name
    if objective not in WITH_INTERVAL:
        return f"{objective} is not predicted; ask for one of {', '.join(WITH_INTERVAL)}"
    for name in recommendation.condition_columns:
        if name not in PREDICTED:
            return f"{name} is not predicted; ask for one of {', '.join(PREDICTED)}"
    levels = [axis.levels for axis in swept_axes(_settings_to_ask(model.points))]
    if math.prod(map(len, levels)) > MOST:
        return (
            f"there are more than {MOST:,} combinations of the measured values; name points to "
            "`dtsweep predict` instead"
        )
    return None


def _meets_goal(
    rows: pd.DataFrame, study: Study, recommendation: Recommendation
) -> pd.Series[bool]:
    """Mark the predicted points that meet the goal's condition and its least rate."""
    goal = recommendation.goal
    rates = [recommendation.point["samples_per_s"], *recommendation.others["samples_per_s"]]
    is_met: pd.Series[bool] = rows["samples_per_s"] >= goal.least_rate * max(rates)
    if goal.where:
        is_met &= study.condition(goal.where).holds(rows).fillna(value=False).astype(bool)
    return is_met


def _model_of(study: Study, recommendation: Recommendation) -> PerformanceModel | None:
    """Model of the recommended point; None if its trials can't be fitted."""
    point = recommendation.point
    asked = text_of(point["model_digest"]), text_of(point["env_id"])
    for model in performance_model(study):
        if (text_of(model.model_digest), text_of(model.env_id)) == asked:
            return model
    return None


def _trials_of(study: Study, model: PerformanceModel) -> pd.DataFrame:
    """Trials of a model and environment, and those that ended before either was known."""
    rows = without_canaries(study.frame)
    for name in ("env_id", "model_digest"):
        rows = rows[rows[name].isna() | (rows[name] == getattr(model, name))]
    return rows


def _candidates(
    model: PerformanceModel, known: Container[Any], *, allow: tuple[str, ...]
) -> Iterator[Settings]:
    """Yield combinations of allowed semantics that have no trial."""
    levels = [axis.levels for axis in swept_axes(_settings_to_ask(model.points))]
    for chosen in itertools.product(*levels):
        settings = {**model.fastest}
        for level in chosen:
            settings |= level
        point = possible_point(settings)
        if point is None or point.semantics not in ("exact", *allow):
            continue
        settings |= {name: value for name, value in point.columns().items() if name != "optimizer"}
        if settings_key(settings) not in known:
            yield settings


def _settings_to_ask(rows: pd.DataFrame) -> list[Settings]:
    """Settings of rows, without the number of nodes: a run can't be asked for it."""
    return [
        {name: value for name, value in one.items() if name != NODES}
        for one in settings_of_rows(rows)
    ]


def _swept_settings(model: PerformanceModel, row: pd.Series[Any]) -> dict[str, str]:
    """Values of the swept axes that a point has; those that its mode does not read are left out."""
    values: dict[str, str] = {}
    for axis in swept_axes(_settings_to_ask(model.points)):
        first, *fields = axis.levels[0]
        kept = [first, *(name for name in fields if row[name] is not None)]
        values |= {axis_name(name): text_of(row[name]) for name in kept}
    return values
