"""Points that were not measured and are predicted to be better than the recommended one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dtsweep.analysis.asked import possible_point
from dtsweep.analysis.launches import without_canaries
from dtsweep.analysis.model import PREDICTED, PerformanceModel, performance_model
from dtsweep.analysis.reach import axis_of
from dtsweep.analysis.recommend import Recommendation
from dtsweep.analysis.setting_values import settings_key, text_of
from dtsweep.analysis.settings import NODES, Settings, settings_of_rows
from dtsweep.analysis.study import Study
from dtsweep.analysis.swept import swept_axes
from dtsweep.errors import SweepError

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


def best_unmeasured(study: Study, recommendation: Recommendation) -> Unmeasured | None:
    """Find the point that was not measured with the best end of its interval.

    Candidates are the combinations of measured values of the swept axes that are allowed, can be
    predicted, and have no trial, skipped ones included. They meet the condition of the goal by
    their predicted values.

    Args:
        study: that the recommendation was made of.
        recommendation: of a goal by a column of `PREDICTED`.

    Returns:
        The point; None without a candidate.

    Raises:
        SweepError: the goal or its condition is by a column that is not predicted.
    """
    goal, objective = recommendation.goal, recommendation.objective
    _check(recommendation)
    model = _model_of(study, recommendation)
    # Trials that failed or were skipped are no candidates, either.
    known = {settings_key(one) for one in _settings_to_ask(without_canaries(study.frame))}
    settings = list(_candidates(model, known, allow=goal.allow))
    if not settings:
        return None
    rows = model.predict(settings)
    rows = rows[rows["reason"].isna() & rows[objective.name].notna()]
    if goal.where:
        rows = rows[study.condition(goal.where).holds(rows).fillna(value=False).astype(bool)]
    if rows.empty:
        return None
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


def _check(recommendation: Recommendation) -> None:
    names = [recommendation.objective.name, *recommendation.condition_columns]
    for name in names:
        if name not in PREDICTED:
            raise SweepError(
                f"{name} is not predicted; leave --predicted out, or ask for one of "
                f"{', '.join(PREDICTED)}"
            )


def _model_of(study: Study, recommendation: Recommendation) -> PerformanceModel:
    """Model of the recommended point."""
    point = recommendation.point
    return next(
        model
        for model in performance_model(study)
        if text_of(model.model_digest) == text_of(point["model_digest"])
        and text_of(model.env_id) == text_of(point["env_id"])
    )


def _candidates(
    model: PerformanceModel, known: Container[Any], *, allow: tuple[str, ...]
) -> Iterator[Settings]:
    """Yield combinations of allowed semantics that have no trial.

    Args:
        model: whose measured values are combined.
        known: keys of the settings that have one.
        allow: semantics in addition to exact updates.
    """
    levels = [axis.levels for axis in swept_axes(_settings_to_ask(model.points))]
    if math.prod(map(len, levels)) > MOST:
        raise SweepError(
            f"there are more than {MOST:,} combinations of the measured values; name points to "
            "`dtsweep predict` instead"
        )
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
        values |= {axis_of(name): text_of(row[name]) for name in kept}
    return values
