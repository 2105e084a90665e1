"""How many samples do points need to the loss that another one ends with, seed by seed?

Of results of a goal with `train_samples`: python -m benchmarks.equal_loss RESULTS POINT_ID
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd

import dtsweep
from dtsweep.analysis import Study
from dtsweep.analysis.study import study_of
from dtsweep.measure.statistics import students_t


def samples_to_equal_loss(
    frame: Study | pd.DataFrame, curves: pd.DataFrame, *, baseline: str
) -> pd.DataFrame:
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


def main() -> None:
    """Print a row for each other point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results")
    parser.add_argument("point_id", help="of the baseline, as `dtsweep.load` names it")
    options = parser.parse_args()
    trials, curves = dtsweep.load(options.results), dtsweep.curves(options.results)
    found = samples_to_equal_loss(trials, curves, baseline=options.point_id)
    print(found.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
