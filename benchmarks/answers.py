"""How often answers are wrong: simulated sweeps whose truth is known.

The frontier of single launches, limits in conditions, and more as they are asked for below. A
question is a function that returns a table's rows. Nothing is trained.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.log_entry import heading, table
from dtsweep.analysis import Goal, frontier, recommend
from dtsweep.errors import SweepError
from dtsweep.inference.verdicts import ConditionVerdict
from tests.analysis.test_difference import significant

LATENCY_S = np.geomspace(0.005, 0.160, 8)
"""Of eight points, each the best at its latency; a ninth one is worse than the fifth in both."""

RATE = 1000 * (1 - np.exp(-LATENCY_S / 0.030))

LIMIT_S = 0.2


def trials(rows: list[dict[str, object]]) -> pd.DataFrame:
    """Trials with the columns that answers need."""
    usual: dict[str, object] = {
        **{"status": "ok", "role": "trial", "repeat": 1, "flags": [], "workload": "made"},
        **{"semantics": "exact", "workers": 1, "env_id": "e", "hosts": 1, "sync": "ddp"},
        **{"accumulation": 1, "model_digest": "m", "flops_per_sample": 1.0, "row_number": 0},
    }
    frame = pd.DataFrame([usual | row for row in rows])
    return frame.assign(trial_id=[f"t{n}" for n in range(len(frame))])


def frontier_rows(sweeps: int, rng: np.random.Generator) -> list[list[str]]:
    """Optimal points left off, and worse points left off, with one launch each."""
    rows = []
    for noise in (0.01, 0.03):
        for worse in (0.05, 0.1, 0.2):
            lost = found = 0
            for _ in range(sweeps):
                on = _simulated_frontier(noise, worse, rng)
                lost += not on[:8].all()
                found += not on[8]
            rows.append([f"{noise:.0%}", f"{worse:.0%}", f"{lost / sweeps:.1%}"])
            rows[-1].append(f"{found / sweeps:.1%}")
    return rows


def _simulated_frontier(noise: float, worse: float, rng: np.random.Generator) -> np.ndarray:
    latency_s = np.append(LATENCY_S, LATENCY_S[4] * (1 + worse))
    rate = np.append(RATE, RATE[4] / (1 + worse))
    first, second = rng.normal(0, noise, (2, 9))
    latency_s = latency_s * np.exp(first)
    rate = rate * np.exp(-0.9 * first - 0.19**0.5 * second)
    made = [
        {
            **{"point_id": str(n), "micro_batch": n + 1},
            **{"latency_s": latency_s[n], "step_p50_s": latency_s[n], "samples_per_s": rate[n]},
            **{"latency_s_error": 0.005 * latency_s[n], "samples_per_s_error": 0.005 * rate[n]},
        }
        for n in range(9)
    ]
    points = frontier(_with_columns(trials(made))).set_index("point_id")
    on: np.ndarray = points.loc[[str(n) for n in range(9)], "on_frontier"].to_numpy()
    return on


def _with_columns(frame: pd.DataFrame) -> pd.DataFrame:
    from dtsweep.results.schema import TRIALS

    missing = [column.name for column in TRIALS if column.name not in frame]
    return frame.reindex(columns=[*frame.columns, *missing])


def limit_rows(sweeps: int, rng: np.random.Generator) -> list[list[str]]:
    """Recommended points beyond a limit without a mark, and points inside it with one."""
    rows = []
    for error in (0.01, 0.03):
        beyond = inside = marked = count = 0
        for _ in range(sweeps):
            true_s = LIMIT_S * np.exp(rng.normal(0, 0.1, 24))
            seen_s = true_s * np.exp(rng.normal(0, error, 24))
            made = [
                {
                    **{"point_id": str(n), "micro_batch": n + 1, "samples_per_s": 100 * true_s[n]},
                    **{"samples_per_s_error": 0.1 * true_s[n], "latency_s": seen_s[n]},
                    **{"step_p99_s": seen_s[n], "step_p99_s_error": error * seen_s[n]},
                    "step_p99_s_low": seen_s[n] * (1 - 1.96 * error),
                    "step_p99_s_high": seen_s[n] * (1 + 1.96 * error),
                }
                for n in range(24)
            ]
            goal = Goal(maximize="samples_per_s", where=f"step_p99_s <= {LIMIT_S}")
            try:
                (answer,) = recommend(_with_columns(trials(made)), goal)
            except SweepError:
                continue
            count += 1
            is_marked = answer.point["condition_verdict"] == ConditionVerdict.UNDECIDED
            beyond += true_s[int(answer.point["point_id"])] > LIMIT_S and not is_marked
            undecided = {*answer.undecided["point_id"]}
            for number in np.flatnonzero(true_s < 0.95 * LIMIT_S):
                inside += 1
                marked += str(number) in undecided
        rows.append([f"{error:.0%}", f"{beyond / count:.1%}", f"{marked / inside:.1%}"])
    return rows


QUIET, NOISY = 0.005, 0.04
"""Standard deviations of what launches add, as shares: the noisy ones add eight times as much."""

WINDOW = 0.005
"""Standard error of a window."""

UNEQUAL: dict[str, tuple[list[float], bool]] = {
    "2 of 6 points noisy": ([NOISY] * 2 + [QUIET] * 4, True),
    "2 of 20 points noisy": ([NOISY] * 2 + [QUIET] * 18, True),
    "1 of 6 points noisy": ([NOISY] + [QUIET] * 5, True),
    "1 of 12 points noisy": ([NOISY] + [QUIET] * 11, True),
    "2 of 12 points noisy, own launches": ([NOISY] * 2 + [QUIET] * 10, False),
    "1 of 12 points noisy, own launches": ([NOISY] + [QUIET] * 11, False),
    "10 of 12 points noisy, the pair quiet": ([QUIET] * 2 + [NOISY] * 10, True),
    "6 points alike": ([0.01] * 6, True),
    "20 points alike": ([0.01] * 20, True),
}
"""Standard deviations of what launches add to each point, and whether points share launches.

The first two points are compared.
"""

LAUNCHES = (2, 3, 4, 6)


def unequal_rows(sweeps: int) -> list[list[str]]:
    """Wrong verdicts on two equal points, and verdicts found where points are alike."""
    rows = []
    for name, (sigmas, together) in UNEQUAL.items():
        for apart in (0.0, 0.03, 0.05) if "alike" in name else (0.0,):
            drawn: dict[str, Any] = {
                "together": together,
                "added": sigmas,
                "apart": apart,
                "count": sweeps,
            }
            shares = [significant([WINDOW] * len(sigmas), launches=n, **drawn) for n in LAUNCHES]
            rows.append([name, f"{apart:.0%}", *(f"{share:.1%}" for share in shares)])
    return rows


def main() -> None:
    """Simulate and print the entry."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sweeps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    print(heading("how often are answers wrong?"))
    print("\nFrontier, one launch each:\n")
    names = ["launch noise", "worse by", "an optimal point left off", "the worse point left off"]
    print(table(names, frontier_rows(options.sweeps, rng)))
    print("\nLimits of a condition:\n")
    names = ["error of a value", "recommended, over the limit, unmarked", "5 % inside, undecided"]
    print(table(names, limit_rows(options.sweeps, rng)))
    print("\nSignificant differences of two points, by the number of launches:\n")
    names = ["points", "apart", *(str(launches) for launches in LAUNCHES)]
    print(table(names, unequal_rows(options.sweeps)))


if __name__ == "__main__":
    main()
