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


def advice_on(found: Sequence[Recommendation], varying: Sequence[str]) -> list[list[str]]:
    """Put recommendations into sentences; each says which it is, where there are several."""
    named = zip(found, names_of(found), strict=True)
    return [in_words(each, varying=varying, name=name, named=1) for each, name in named]


def limits_on(
    recommended: Sequence[Recommendation], frontiers: Sequence[Frontier], bounds: pd.DataFrame
) -> list[str]:
    """Say what limits recommended points, and count what limits those on frontiers."""
    import pandas as pd

    said = []
    for found, name in zip(recommended, names_of(recommended), strict=True):
        row = bounds_of(found.point.to_frame().T, bounds).iloc[0]
        limit = ""
        if row["bound"]:
            limit = f"{row['bound']}: "
        following = ""
        if row["next_axes"]:
            following = (
                " Try next, with at most that share of the step to win: "
                f"{next_words(row['next_axes'])}."
            )
        said.append(
            f"The recommended one{f' ({name})' if name else ''}: "
            f"{limit}{row['bound_reason']}.{following}"
        )
    shown = [bounds_of(found.shown, bounds) for found in frontiers if len(found.shown)]
    return [
        *said,
        *([f"Points on frontiers: {bounds_sentence(pd.concat(shown))}"] if shown else []),
    ]


def bounds_of(points: pd.DataFrame, bounds: pd.DataFrame) -> pd.DataFrame:
    """Look up the rows of `bounds` of some points, in their order."""
    keys = [tuple(row) for row in bounds[[*POINT]].astype(object).fillna("").to_numpy()]
    places = {key: place for place, key in enumerate(keys)}
    return bounds.iloc[
        [places[tuple(row)] for row in points[[*POINT]].astype(object).fillna("").to_numpy()]
    ]
