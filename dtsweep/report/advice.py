"""Advice of a report, in sentences: a configuration per model, its limit and what to try next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dtsweep.analysis import recommend
from dtsweep.analysis.recommend import Recommendation
from dtsweep.analysis.study import Study
from dtsweep.errors import SweepError
from dtsweep.inference.spread import POINT
from dtsweep.report.bounds import bounds_sentence, next_words
from dtsweep.report.frontiers import Frontier
from dtsweep.report.recommendation import in_words, names_of
from dtsweep.sweep.goal import GOALS

if TYPE_CHECKING:
    import pandas as pd


def recommended_in(
    study: Study, *, where: str, compare_models: bool
) -> tuple[list[Recommendation], str]:
    """Recommend a configuration, or say why there is none."""
    try:
        return recommend(
            study, replace(GOALS["throughput"], where=where), compare_models=compare_models
        ), ""
    except SweepError as error:
        return [], f"No recommendation: {error}."


def advice_on(recommendations: Sequence[Recommendation], varying: Sequence[str]) -> list[list[str]]:
    """Put recommendations into sentences; each is named if there are several."""
    names = names_of(recommendations)
    return [
        in_words(recommendation, varying=varying, name=name, named=1)
        for recommendation, name in zip(recommendations, names, strict=True)
    ]


def limits_on(
    recommended: Sequence[Recommendation], frontiers: Sequence[Frontier], bounds: pd.DataFrame
) -> list[str]:
    """Say what limits recommended points, and count what limits those on frontiers."""
    import pandas as pd

    sentences = []
    for recommendation, name in zip(recommended, names_of(recommended), strict=True):
        row = bounds_of(recommendation.point.to_frame().T, bounds).iloc[0]
        limit = ""
        if row["bound"]:
            limit = f"{row['bound']}: "
        following = ""
        if row["next_axes"]:
            following = (
                " Try next, with at most that share of the step to win: "
                f"{next_words(row['next_axes'])}."
            )
        sentences.append(
            f"The recommended one{f' ({name})' if name else ''}: "
            f"{limit}{row['bound_reason']}.{following}"
        )
    shown = [bounds_of(frontier.shown, bounds) for frontier in frontiers if len(frontier.shown)]
    if shown:
        sentences.append(f"Points on frontiers: {bounds_sentence(pd.concat(shown))}")
    return sentences


def bounds_of(points: pd.DataFrame, bounds: pd.DataFrame) -> pd.DataFrame:
    """Look up the rows of `bounds` of some points, in their order."""
    keys = [tuple(row) for row in bounds[[*POINT]].astype(object).fillna("").to_numpy()]
    places = {key: place for place, key in enumerate(keys)}
    return bounds.iloc[
        [places[tuple(row)] for row in points[[*POINT]].astype(object).fillna("").to_numpy()]
    ]
