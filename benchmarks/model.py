"""Accuracy of the step-time model on published jobs.

A job's folder has `placements.csv` and `scalability.csv` (`DTSWEEP_TEST_DATA/scaling`). Rows of
equal nodes, workers and micro-batch are one configuration, with the means of their times. A draw
measures some configurations at random, and predicts all others; for `scale-out`, it measures up
to 16 workers and predicts more. A job's error is the mean over draws of the mean absolute
percentage error.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.log_entry import heading, table
from dtsweep.predict.setups import MeasuredSetups, Prediction, Setups
from dtsweep.predict.step_time import StepTimeModel, fit_step_time
from tests.setups import setups_of

Numbers = NDArray[np.float64]

SIZES = {"others": [6, 10, 16, 30], "scale-out": [10, 16, 30]}
"""Measured configurations, by which ones are predicted."""

LARGEST = 16
"""Workers of a configuration that is measured for `scale-out`."""


class Draw(NamedTuple):
    """A job's configurations, of which some were measured at random."""

    job: str
    measured: pd.DataFrame
    others: pd.DataFrame


class Outcome(NamedTuple):
    """Errors and coverage of a draw."""

    job: str
    error: float
    """Mean absolute percentage error."""

    coverage: float
    """Share of the times that its 90 % intervals hold."""

    seconds: float
    """Time to fit the model and to predict."""


def configurations(folder: Path) -> pd.DataFrame:
    """Read a job: nodes, workers, micro_batch, step_s, pass_s."""
    placements = pd.read_csv(folder / "placements.csv", dtype={"placement": str})
    digits = placements["placement"]
    placements["num_nodes"] = digits.str.len()
    placements["num_replicas"] = digits.map(lambda text: sum(map(int, text)))
    rows = pd.concat([placements, pd.read_csv(folder / "scalability.csv")])
    rows["pass_s"] = rows["step_time"] - rows["sync_time"]
    names = {"num_nodes": "nodes", "num_replicas": "workers", "local_bsz": "micro_batch"}
    rows = rows.rename(columns=names | {"step_time": "step_s"})
    return rows.groupby(list(names.values()), as_index=False)[["step_s", "pass_s"]].mean()


def draw(job: str, rows: pd.DataFrame, *, split: str, size: int, seed: int) -> Draw:
    """Measure some configurations at random."""
    rng = np.random.default_rng(seed)
    is_small = (rows["workers"] <= LARGEST).to_numpy()
    if split == "scale-out":
        chosen = rng.choice(np.flatnonzero(is_small), size, replace=False)
        return Draw(job, rows.iloc[chosen], rows[~is_small])
    order = rng.permutation(len(rows))
    return Draw(job, rows.iloc[order[:size]], rows.iloc[order[size:]])


def percentage_error(predicted: Numbers, rows: pd.DataFrame) -> float:
    """Mean absolute percentage error."""
    return float(100 * np.mean(np.abs(predicted / rows["step_s"].to_numpy() - 1)))


def setups_from(rows: pd.DataFrame) -> Setups:
    """Settings of the rows."""
    return setups_of(
        workers=rows["workers"].to_numpy(),
        nodes=rows["nodes"].to_numpy(),
        micro_batch=rows["micro_batch"].to_numpy(),
    )


def fitted(train: pd.DataFrame) -> StepTimeModel:
    """Fit the model; the windows' errors are not published, and each row is a launch."""
    measured = MeasuredSetups(
        step_s=train["step_s"].to_numpy(),
        error=np.zeros(len(train)),
        pass_s=train["pass_s"].to_numpy(),
        launch=np.arange(len(train)),
    )
    return fit_step_time(setups_from(train), measured)


def covered(prediction: Prediction, times: Numbers) -> Numbers:
    """1 where the 90 % interval holds the time."""
    away = np.abs(prediction.log_step_s - np.log(times))
    return (away < 1.645 * prediction.error).astype(np.float64)


def outcome_of(drawn: Draw) -> Outcome:
    """Fit, and predict the others."""
    began = time.perf_counter()
    prediction = fitted(drawn.measured).predict(setups_from(drawn.others))
    seconds = time.perf_counter() - began
    error = percentage_error(np.exp(prediction.log_step_s), drawn.others)
    coverage = covered(prediction, drawn.others["step_s"].to_numpy())
    return Outcome(drawn.job, error, float(coverage.mean()), seconds)


def cells(outcomes: list[Outcome]) -> Iterator[str]:
    """Write the error, coverage and time."""
    errors = pd.Series([outcome.error for outcome in outcomes])
    of_jobs = errors.groupby([outcome.job for outcome in outcomes]).mean()
    yield f"{of_jobs.median():.1f} ({of_jobs.max():.1f})"
    coverage = pd.Series([outcome.coverage for outcome in outcomes])
    by_job = coverage.groupby([outcome.job for outcome in outcomes]).mean()
    yield f"{by_job.mean():.0%} ({by_job.min():.0%}–{by_job.max():.0%})"
    yield f"{np.median([outcome.seconds for outcome in outcomes]):.2f}"


def refit_seconds(jobs: dict[str, pd.DataFrame], *, measured: int, turns: int) -> float:
    """Median time to fit, and to predict about 700 configurations."""
    seconds = []
    for rows in jobs.values():
        drawn = draw("", rows, split="others", size=min(measured, len(rows)), seed=0)
        candidates = rows.sample(700, replace=True, random_state=0)
        for _ in range(turns):
            began = time.perf_counter()
            fitted(drawn.measured).predict(setups_from(candidates))
            seconds.append(time.perf_counter() - began)
    return float(np.median(seconds))


def main() -> None:
    """Print an entry for docs/log/."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20, help="draws of each size")
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(os.environ.get("DTSWEEP_TEST_DATA", ".")) / "scaling",
        help="folder with a folder for each job",
    )
    args = parser.parse_args()
    folders = sorted(path.parent for path in args.data.glob("*/placements.csv"))
    if not folders:
        parser.error(f"no job in {args.data}; set --data or DTSWEEP_TEST_DATA")
    jobs = {folder.name: configurations(folder) for folder in folders}
    lines = []
    for split, sizes in SIZES.items():
        for size in sizes:
            outcomes = [
                outcome_of(draw(job, rows, split=split, size=size, seed=seed))
                for job, rows in jobs.items()
                for seed in range(args.seeds)
            ]
            lines.append([split, str(size), *cells(outcomes)])
    print(heading("how well are step times predicted that were not measured?"))
    print()
    print(
        f"Jobs {', '.join(jobs)}; {args.seeds} draws. Mean absolute percentage error, median over"
        " jobs (worst job). Coverage of the 90 % intervals, mean over jobs (range). Seconds to fit"
        " and to predict all others, median."
    )
    print()
    print(table(["predicted", "measured", "error", "coverage", "s"], lines))
    print()
    print(
        "60 measured, 700 predicted:"
        f" {refit_seconds(jobs, measured=60, turns=3):.2f} s to fit and to predict, median."
    )


if __name__ == "__main__":
    main()
