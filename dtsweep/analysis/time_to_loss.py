"""Trainings to a target: their time, samples and cost, and the speed-up by more workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dtsweep.analysis.objectives import read_objectives
from dtsweep.analysis.pairwise import comparison_of
from dtsweep.analysis.study import Frame, study_of
from dtsweep.inference.spread import of_environment
from dtsweep.measure.statistics import students_t

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
        of the base and where launches are too few; `efficiency`: the speed-up for each worker of
        the base, likewise; `sample_ratio`: samples to the target over the fewest of these points.
        Of `censored` launches the time is a lower bound.
    """
    import pandas as pd

    study = study_of(frame)
    points = study.points.dropna(subset=["target_loss", "time_to_loss_s"])
    groups = []
    for (env_id, _, _), group in points.groupby(
        ["env_id", "model_digest", "target_loss"], dropna=False, sort=False
    ):
        ordered = group.sort_values("time_to_loss_s", kind="stable")
        base = ordered[ordered["workers"] == ordered["workers"].min()].iloc[:1]
        objective = read_objectives(ordered, minimize=["time_to_loss_s"], maximize=[])[0]
        trials = of_environment(study.trials, env_id)
        test = comparison_of(trials, objective, drift=study.drift(env_id))
        # Of the base to each of them.
        ratios = test.ratios(base, ordered, level=_LEVEL)
        workers = ordered["workers"].astype("float64") / float(base["workers"].iloc[0])
        columns = {}
        for end, values in ratios.items():
            columns[f"speed_up{end}"] = values
            columns[f"efficiency{end}"] = values / workers
        samples = ordered["samples_to_loss"]
        groups.append(ordered.assign(**columns, sample_ratio=samples / samples.min()))
    if not groups:
        return points.assign(speed_up=[], efficiency=[], sample_ratio=[])
    return pd.concat(groups, ignore_index=True)


def samples_to_equal_loss(frame: Frame, curves: pd.DataFrame, *, baseline: str) -> pd.DataFrame:
    """Compare the samples that points need to the loss that another one ends with, seed by seed.

    Args:
        frame: of trainings on a number of samples, as `time_to_loss` takes it.
        curves: of the same results, as `dtsweep.curves` gives them.
        baseline: the `point_id` of the other one.

    Returns:
        A row for each other point: `point_id`; `sample_ratio`, the geometric mean over seeds of its
        samples over those of the baseline, with `_low` and `_high` (95 %, Student's t over seeds;
        nan of one seed); `seeds`; `censored`, the seeds in which it did not get there, which count
        with all of their samples: a lower bound.
    """
    import pandas as pd

    trials = study_of(frame).trials[["attempt_id", "point_id", "repeat"]]
    rows = curves.merge(trials, on="attempt_id").dropna(subset=["loss"]).sort_values("steps")
    is_base = rows["point_id"] == baseline
    ends = rows[is_base].groupby("repeat")[["samples", "loss"]].last()
    found = []
    others = rows[~is_base].merge(ends, on="repeat", suffixes=("", "_of_base"))
    for (point, _), curve in others.groupby(["point_id", "repeat"]):
        last = curve.iloc[-1]
        needed = _samples_at(curve, last["loss_of_base"])
        is_censored = needed is None
        ratio = (needed or last["samples"]) / last["samples_of_base"]
        found.append((point, np.log(ratio), is_censored))
    logs = pd.DataFrame(found, columns=["point_id", "log", "censored"]).groupby("point_id")
    mean, seeds = logs["log"].mean(), logs["log"].size()
    half = students_t(seeds - 1) * logs["log"].std() / seeds**0.5
    logs_of_ends = {"": mean, "_low": mean - half, "_high": mean + half}
    columns = {f"sample_ratio{end}": np.exp(values) for end, values in logs_of_ends.items()}
    return pd.DataFrame(
        {**columns, "seeds": seeds, "censored": logs["censored"].sum()}
    ).reset_index()


def _samples_at(curve: pd.DataFrame, loss: float) -> float | None:
    """Samples at which a curve first has a loss, in a line between evaluations; None if never."""
    losses, samples = (curve[name].to_numpy("float64") for name in ("loss", "samples"))
    reached = np.flatnonzero(losses <= loss)
    if not len(reached):
        return None
    at = reached[0]
    if at == 0:
        return float(samples[0])
    share = (losses[at - 1] - loss) / (losses[at - 1] - losses[at])
    return float(samples[at - 1] + share * (samples[at] - samples[at - 1]))
