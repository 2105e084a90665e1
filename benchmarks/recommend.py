"""How good is a recommendation, on simulated sweeps whose truth is known?

A sweep has 24 points: 1, 2, 4 and 8 workers, three micro-batches, two accumulations. Their true
rates follow from costs that are drawn for each sweep: a pass costs a fixed time and one per sample,
an exchange a fixed time and one that grows with the workers, part of which hides behind the pass.
Many of these points lie within a few percent of the best. A launch measures all of them once: what
it adds to all alike, what it adds to each, and what its window's own error is (which the row says)
is normal. Two canaries, with the same error, watch a machine that does not drift. Recommended is
the highest throughput.

A recommendation is `right` when the true rate of its point is within 3 % of the best one, the
indifference zone. It is `decided and wrong` when its answer is `best` or `equal`, and it is not.
"""

from __future__ import annotations

import argparse
import itertools
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.log_entry import heading, table
from dtsweep.analysis import recommend
from dtsweep.results.schema import FLOAT, INT, TRIALS

POINTS = list(itertools.product((1, 2, 4, 8), (4, 16, 64), (1, 4)))
"""Workers, micro-batch, accumulation."""


class Noise(NamedTuple):
    """Standard deviations, as shares of the mean."""

    window: float
    """Of a window, which it knows."""
    own: float
    """That a launch adds to each point."""
    shared: float
    """That a launch adds to all points."""


NOISES = {
    "quiet (windows 0.5 %, launches 0.3 % and 1 %)": Noise(0.005, 0.003, 0.01),
    "usual (windows 1 %, launches 1 % and 3 %)": Noise(0.01, 0.01, 0.03),
    "loud (windows 3 %, launches 3 % and 5 %)": Noise(0.03, 0.03, 0.05),
}


def true_rates(rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw the samples per second of all points of a sweep."""
    fixed, sample = rng.uniform(0.002, 0.02), rng.uniform(0.0005, 0.004)
    exchange, growth, hidden = rng.uniform(0.001, 0.05), rng.uniform(0, 0.6), rng.uniform(0, 1)
    rates = []
    for workers, micro_batch, accumulation in POINTS:
        one_pass = fixed + sample * micro_batch
        sent = exchange * (1 + growth * np.log2(workers)) if workers > 1 else 0.0
        step = accumulation * one_pass + max(sent - hidden * one_pass, 0.1 * sent)
        rates.append(workers * micro_batch * accumulation / step)
    return np.array(rates)


def sweep_of(
    rates: NDArray[np.float64], noise: Noise, *, launches: int, rng: np.random.Generator
) -> pd.DataFrame:
    """Draw the trials of one sweep."""
    shape = (len(rates), launches)
    logs = rng.normal(0, np.hypot(noise.window, noise.own), shape) + rng.normal(
        0, noise.shared, launches
    )
    measured = rates[:, None] * np.exp(logs)
    point, launch = (axis.ravel() for axis in np.indices(shape))
    workers, micro_batch, accumulation = np.array(POINTS)[point].T
    samples = workers * micro_batch * accumulation
    found = measured.ravel()
    return pd.DataFrame(
        {
            "point_id": point.astype(str),
            "trial_id": [f"{one}.{other}" for one, other in zip(point, launch, strict=True)],
            "session": launch.astype(str),
            "repeat": launch + 1,
            "workers": workers,
            "micro_batch": micro_batch,
            "accumulation": accumulation,
            "samples_per_s": found,
            "samples_per_s_error": found * noise.window,
            "latency_s": samples / found,
            "latency_s_error": samples / found * noise.window,
        }
    )


def canaries_of(noise: Noise, rng: np.random.Generator) -> pd.DataFrame:
    """Draw the canaries at both ends of the first launch of a sweep."""
    watched = np.exp(rng.normal(0, noise.window, 2))
    return pd.DataFrame(
        {
            "point_id": "canary",
            "role": "canary",
            "trial_id": ["c0", "c1"],
            "session": "0",
            "started_at": [0, 1],
            "step_mean_s": watched,
            "step_mean_s_error": watched * noise.window,
        }
    )


def tried(noise: Noise, *, launches: int, sweeps: int) -> list[str]:
    """Cells of a row: how good recommendations are."""
    rng = np.random.default_rng(0)
    truths = [true_rates(rng) for _ in range(sweeps)]
    frames = [
        sweep_of(rates, noise, launches=launches, rng=rng).assign(env_id=f"{number:06}")
        for number, rates in enumerate(truths)
    ]
    watched = [canaries_of(noise, rng).assign(env_id=f"{number:06}") for number in range(sweeps)]
    rows = pd.concat([*frames, *watched], ignore_index=True)
    rows = rows.assign(status="ok", semantics="exact", hosts=1, workload="Simulated", sync="ddp")
    rows = rows.reindex(columns=[column.name for column in TRIALS])
    types = {FLOAT: "float64", INT: "Int64"}
    rows = rows.astype(
        {column.name: types[column.type] for column in TRIALS if column.type in types}
    )
    rows["flags"] = [[] for _ in range(len(rows))]
    found = recommend(rows.copy())
    chosen = [(truths[int(each.point["env_id"])], int(each.point["point_id"])) for each in found]
    loss = np.array([1 - rates[point] / rates.max() for rates, point in chosen])
    answers = np.array([each.answer for each in found])
    right = loss <= 0.03
    is_settled = np.isin(answers, ["best", "equal"])
    shares = [
        right,
        *(answers == answer for answer in ("single_launch", "undecided", "equal", "best")),
        is_settled & ~right,
    ]
    return [*(f"{share.mean():.1%}" for share in shares), f"{np.quantile(loss, 0.95):.1%}"]


def main() -> None:
    """Print an entry for docs/log/."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sweeps", type=int, default=200)
    parser.add_argument("--launches", type=int, nargs="+", default=[1, 2, 3, 5])
    args = parser.parse_args()
    rows = [
        [name, str(launches), *tried(noise, launches=launches, sweeps=args.sweeps)]
        for name, noise in NOISES.items()
        for launches in args.launches
    ]
    print(heading(f"how good is a recommendation, on {args.sweeps} simulated sweeps a row?"))
    print()
    headers = [
        "noise",
        "launches",
        "right",
        "one launch each",
        "undecided",
        "equal",
        "best",
    ]
    print(table([*headers, "best or equal, and wrong", "95 % lose less than"], rows))


if __name__ == "__main__":
    main()
