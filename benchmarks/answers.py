"""How often answers are wrong: simulated sweeps whose truth is known.

The frontier of single launches, limits in conditions, and more as they are asked for below. A
question is a function that returns a table's rows. Nothing is trained.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from benchmarks.log_entry import heading, table
from benchmarks.settle import Machine, Noise
from dtsweep.analysis import Goal, frontier, recommend
from dtsweep.errors import SweepError
from dtsweep.inference.contrasts import contrasts
from dtsweep.inference.pareto import knee_of
from dtsweep.inference.spread import Launches
from dtsweep.inference.variance import PRIOR_SIGMA_IN_TURN
from dtsweep.inference.verdicts import ConditionVerdict
from dtsweep.measure.cycles import effects_of
from tests.analysis.noise import significant
from tests.compare.test_regressions import compared, run

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
    for launches in (1, 3):
        for error in (0.01, 0.02, 0.03):
            beyond = inside = marked = count = 0
            for _ in range(sweeps):
                true_s = LIMIT_S * np.exp(rng.normal(0, 0.1, 24))
                made = [
                    row
                    for launch in range(launches)
                    for row in _made_limit(true_s, error, launch, rng)
                ]
                goal = Goal(maximize="samples_per_s", where=f"step_p99_s <= {LIMIT_S}")
                try:
                    (answer,) = recommend(_with_columns(trials(made)), goal)
                except SweepError:
                    continue
                count += 1
                is_marked = answer.point["condition_verdict"] == ConditionVerdict.UNDECIDED
                is_beyond = true_s[int(answer.point["point_id"])] > LIMIT_S * (1 + answer.zone)
                beyond += is_beyond and not is_marked
                undecided = {*answer.undecided["point_id"]}
                for number in np.flatnonzero(true_s < 0.95 * LIMIT_S):
                    inside += 1
                    marked += str(number) in undecided
            shares = (f"{beyond / count:.1%}", f"{marked / inside:.1%}")
            rows.append([str(launches), f"{error:.0%}", *shares])
    return rows


def _made_limit(
    true_s: np.ndarray, error: float, launch: int, rng: np.random.Generator
) -> list[dict[str, object]]:
    """Trials of one launch of 24 points, each with a p99 and its interval."""
    seen_s = true_s * np.exp(rng.normal(0, error, 24))
    rate = 100 * true_s
    return [
        {
            **{"point_id": str(n), "micro_batch": n + 1, "session": f"{launch}-{n}"},
            **{"samples_per_s": rate[n], "samples_per_s_error": 0.001 * rate[n]},
            **{"latency_s": seen_s[n], "step_p99_s": seen_s[n]},
            "step_p99_s_error": error * seen_s[n],
            "step_p99_s_low": seen_s[n] * (1 - 1.96 * error),
            "step_p99_s_high": seen_s[n] * (1 + 1.96 * error),
        }
        for n in range(24)
    ]


def knee_rows(sweeps: int, rng: np.random.Generator) -> list[list[str]]:
    """Shares of sweeps that find the true knee of `RATE`, and one at most a point away."""
    costs = np.column_stack([np.log(LATENCY_S), -np.log(RATE)])
    true_knee = knee_of(costs) or 0
    rows = []
    for noise in (0.01, 0.03):
        for launches in (1, 3):
            away = []
            for _ in range(sweeps):
                drawn = costs + rng.normal(0, noise / launches**0.5, costs.shape)
                away.append(abs((knee_of(drawn) or 0) - true_knee))
            shares = [f"{np.mean(np.array(away) <= most):.0%}" for most in (0, 1)]
            rows.append([f"{noise:.0%}", str(launches), *shares])
    return rows


RUN_SIGMA, LAUNCH_SIGMA = 0.02, 0.01
"""Standard deviations between runs, and between launches of one point."""


def compare_rows(sweeps: int, rng: np.random.Generator) -> list[list[str]]:
    """Pairs of runs with a regression, by the number of points."""
    rows = []
    for count in (12, 100):
        alike = np.zeros((count, 1))
        first = alike.copy()
        cells = [_with_regression(alike, sweeps, rng), _with_regression(alike, sweeps, rng, 0.1)]
        for slower in (0.03, 0.05, 0.1):
            first[0] = slower
            cells.append(_with_regression(first, sweeps, rng))
        rows.append([str(count), *(f"{share:.1%}" for share in cells)])
    return rows


def _one_run(
    count: int, rng: np.random.Generator, *, slower: np.ndarray | float = 0.0, missing: float = 0.0
) -> pd.DataFrame:
    """A run of three launches."""
    logs = rng.normal(0, LAUNCH_SIGMA, (count, 3)) + rng.normal(0, RUN_SIGMA) - slower
    logs[rng.random(count) < missing] = np.nan
    return run(logs)


def _with_regression(
    slower: np.ndarray, sweeps: int, rng: np.random.Generator, missing: float = 0.0
) -> float:
    found = 0
    for _ in range(sweeps):
        base = _one_run(len(slower), rng)
        new = _one_run(len(slower), rng, slower=slower, missing=missing)
        rows = compared(base, new, run_sigma=RUN_SIGMA)
        found += bool(rows["is_regression"].any())
    return found / sweeps


QUIET, NOISY = 0.005, 0.04
"""Standard deviations of what launches add, as shares: the noisy ones add eight times as much."""

WINDOW = 0.005
"""Standard error of a window."""


class Design(NamedTuple):
    """A sweep of which the first two points are compared."""

    name: str
    sigmas: list[float]
    """Standard deviation of what launches add to each point."""
    together: bool
    """True if points share launches."""
    apart: tuple[float, ...] = (0.0,)
    """True differences of the two points."""


POWER_OF = (0.0, 0.03, 0.05)

DESIGNS = (
    Design("2 of 6 points noisy", [NOISY] * 2 + [QUIET] * 4, together=True),
    Design("2 of 20 points noisy", [NOISY] * 2 + [QUIET] * 18, together=True),
    Design("1 of 6 points noisy", [NOISY] + [QUIET] * 5, together=True),
    Design("1 of 12 points noisy", [NOISY] + [QUIET] * 11, together=True),
    Design("2 of 12 points noisy, own launches", [NOISY] * 2 + [QUIET] * 10, together=False),
    Design("1 of 12 points noisy, own launches", [NOISY] + [QUIET] * 11, together=False),
    Design(
        "10 of 12 points noisy, the pair quiet",
        [QUIET] * 2 + [NOISY] * 10,
        together=True,
        apart=POWER_OF,
    ),
    Design(
        "1 of 6 points noisy, the pair quiet", [QUIET] * 5 + [NOISY], together=True, apart=POWER_OF
    ),
    Design("6 points alike", [0.01] * 6, together=True, apart=POWER_OF),
    Design("20 points alike", [0.01] * 20, together=True, apart=POWER_OF),
)

LAUNCHES = (2, 3, 4, 6)


def unequal_rows(sweeps: int) -> list[list[str]]:
    """Wrong verdicts on two equal points, and verdicts found where points are alike."""
    rows = []
    for name, sigmas, together, differences in DESIGNS:
        for apart in differences:
            drawn: dict[str, Any] = {
                "together": together,
                "added": sigmas,
                "apart": apart,
                "count": sweeps,
            }
            shares = [significant([WINDOW] * len(sigmas), launches=n, **drawn) for n in LAUNCHES]
            rows.append([name, f"{apart:.0%}", *(f"{share:.1%}" for share in shares)])
    return rows


def turn_rows(sweeps: int, rng: np.random.Generator) -> list[list[str]]:
    """Verdicts on two of six points in turn, with drift that was recorded on busy machines."""
    rows = []
    for favours in (0.0, 0.005, 0.01):
        for apart in (0.0, 0.03, 0.05, 0.1):
            shares = []
            for sessions in LAUNCHES_IN_TURN:
                found = [_is_found(apart, favours, sessions, rng) for _ in range(sweeps)]
                shares.append(f"{np.mean(found):.1%}")
            rows.append([f"{favours:.1%}", f"{apart:.0%}", *shares])
    return rows


LAUNCHES_IN_TURN = (1, 2, 3)


def _is_found(apart: float, favours: float, sessions: int, rng: np.random.Generator) -> bool:
    points = np.arange(6)
    costs = np.where(points == 1, apart, 0.0)
    machine = Machine(costs, Noise(favours, "recorded"), rng)
    effects = [effects_of(machine.cycles(points)) for _ in range(sessions)]
    means = np.column_stack([one.levels for one in effects])
    within = np.mean([one.errors**2 for one in effects], axis=0)
    launches = Launches(
        pd.DataFrame(index=points), means, within, PRIOR_SIGMA_IN_TURN, is_in_turn=True
    )
    contrast = contrasts(launches, points[:1], points[1:2])
    return bool(abs(contrast.estimate[0, 0]) > contrast.half_width[0, 0])


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
    names = [
        "launches",
        "error of a value",
        "recommended, over the limit by more than 3 %, unmarked",
        "5 % inside, undecided",
    ]
    print(table(names, limit_rows(options.sweeps, rng)))
    print("\nSignificant differences of two points, by the number of launches:\n")
    names = ["points", "apart", *(str(launches) for launches in LAUNCHES)]
    print(table(names, unequal_rows(options.sweeps)))
    print("\nSignificant differences of two of six points in turn, by the number of sessions:\n")
    names = ["a session favours a point by", "apart", *(str(count) for count in LAUNCHES_IN_TURN)]
    print(table(names, turn_rows(options.sweeps, rng)))
    print("\nKnee of eight points:\n")
    names = ["launch noise", "launches", "the true knee", "at most one point away"]
    print(table(names, knee_rows(options.sweeps, rng)))
    print("\nRuns of three launches that differ by 2 %; a regression in:\n")
    names = ["points", "no change", "no change, 10 % of points missing"]
    names += [f"one point {slower} % slower" for slower in (3, 5, 10)]
    print(table(names, compare_rows(options.sweeps, rng)))


if __name__ == "__main__":
    main()
