"""Trainings to a target: their time, samples and cost, and the speed-up by more workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtsweep.analysis.objectives import read_objectives
from dtsweep.analysis.pairwise import comparison_of
from dtsweep.analysis.study import Frame, study_of
from dtsweep.inference.spread import of_environment

if TYPE_CHECKING:
    import pandas as pd

_LEVEL = 0.05
"""Two-sided significance level of the intervals."""


def time_to_loss(frame: Frame) -> pd.DataFrame:
    """Relate the trainings to a target of points to the fastest one of the fewest workers.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it, or a study of it.

    Returns:
        Points with a target as `over_launches` has them, by model, environment and target, the
        fastest first, with `speed_up`: time of the base over theirs, with `_low` and `_high`, null
        where launches are too few or no base has reached the target; `efficiency`: the speed-up for
        each worker of the base, likewise; `sample_ratio`: samples to the target over the fewest of
        these points. Points with `censored` launches have `trained_at_least_s` in place of a time.
    """
    import pandas as pd

    study = study_of(frame)
    points = study.points.dropna(subset=["target_loss"])
    groups = []
    for (env_id, _, _), group in points.groupby(
        ["env_id", "model_digest", "target_loss"], dropna=False, sort=False
    ):
        is_bound = group["time_to_loss_s"].isna()
        reached = group[~is_bound].sort_values("time_to_loss_s", kind="stable")
        fewest = reached["workers"].min()
        base = reached[reached["workers"] == fewest].iloc[:1]
        objective = read_objectives(reached, minimize=["time_to_loss_s"], maximize=[])[0]
        trials = of_environment(study.trials, env_id)
        test = comparison_of(trials, objective, drift=study.drift(env_id))
        # Of the base to each of them.
        ratios = test.ratios(base, reached, level=_LEVEL)
        workers = reached["workers"].astype("float64") / float(base["workers"].sum())
        columns = {}
        for end, values in ratios.items():
            columns[f"speed_up{end}"] = values
            columns[f"efficiency{end}"] = values / workers
        samples = reached["samples_to_loss"]
        reached = reached.assign(**columns, sample_ratio=samples / samples.min())
        groups += [reached, group[is_bound].sort_values("trained_at_least_s", kind="stable")]
    if not groups:
        return points.assign(speed_up=[], efficiency=[], sample_ratio=[])
    return pd.concat(groups, ignore_index=True)
