"""Bias of the measured cost of the exchange, on simulated ranks with known exchange and jitter.

A rank's own step takes 20 ms, times its jitter: normal, drawn for each step and rank, with or
without autocorrelation. With the exchange all ranks wait for the longest own step of each step, and
for the part of the exchange that nothing hides. The steps go through dtsweep's own functions:
`dtsweep.measure.turns` says how many steps follow the window and in which order, and
`dtsweep.metrics.exchange_share` makes the columns. Where the exchange is marked instead
(`local_sgd`, a period of 8 steps) the window itself tells, and nothing follows it.

`quick` is the default of `Measure(exchange=…)`: one turn without the exchange, for a quarter of the
window's time. `precise` runs rounds, for half of the window's time here. The table gives the means
over simulated trials, which must be the truth in each row, and how often the 95 % intervals cover
it. A second table counts how often a straggler is named where all ranks are equal, and the right
one where one takes a tenth longer.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import signal

from benchmarks.log_entry import heading, table
from dtsweep.measure.statistics import correlated_steps
from dtsweep.measure.stopping import AFTER
from dtsweep.measure.turns import (
    FIRST_ROUND_S,
    LEAD,
    QUICK_SHARE,
    block_steps,
    by_pair,
    is_known,
    quick_steps,
    turns,
)
from dtsweep.metrics.exchange_share import exchange_columns
from dtsweep.metrics.rank_result import Measured
from dtsweep.metrics.skew import skew_columns
from dtsweep.sweep.point import Point

STEP_S = 0.02
"""A rank's own step, without its jitter."""

MOST_TURN_STEPS = 300
"""Steps that are drawn for a quick turn, its lead among them."""

PERIOD = 8
"""Steps from one exchange to the next, of `local_sgd`."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """Ranks whose steps are drawn."""

    ranks: int

    cv: float
    """Of a rank's own steps."""

    alone: float
    """The exchange by itself, as a share of a rank's own step."""

    hidden: float = 0.0
    """Share of it that runs behind own work."""

    slow: float = 0.0
    """What the own steps of rank 1 take longer, as a share."""

    rho: float = 0.0
    """What a step's jitter remembers of the step before."""

    @property
    def exposed_s(self) -> float:
        """What a step gets longer by, in seconds."""
        return STEP_S * self.alone * (1 - self.hidden)

    def own(self, random: np.random.Generator, steps: int) -> NDArray[np.float64]:
        """Draw own steps: (ranks, steps) seconds."""
        drawn = random.normal(size=(self.ranks, steps))
        drawn[:, 1:] *= np.sqrt(1 - self.rho**2)
        own: NDArray[np.float64] = STEP_S * (
            1 + self.cv * signal.lfilter([1.0], [1.0, -self.rho], drawn, axis=1)
        )
        own[1 % self.ranks] *= 1 + self.slow
        return own

    def truth(self, *, period: int = 1) -> dict[str, float]:
        """The true shares of a step, by drawing very many."""
        own = self.own(np.random.default_rng(1), 2_000_000 // self.ranks // period * period)
        if period > 1:
            own = own.reshape(self.ranks, -1, period).mean(axis=2)
        longest, mean = own.max(axis=0).mean(), own.mean()
        step = longest + self.exposed_s / period
        return {
            "exchange_share": self.exposed_s / period / step,
            "wait_share": (longest - mean) / step,
            "comm_share": 1 - mean / step,
            "overlap_share": self.hidden,
        }


def sent(
    step_s: NDArray[np.float64], *, part: Any = "window", block: Any = -1, **columns: Any
) -> Measured:
    """What a rank sends that took these times."""
    count = len(step_s)
    steps = {
        "part": np.broadcast_to(part, count),
        "block": np.broadcast_to(block, count),
        "step_s": step_s,
    }
    steps |= {name: np.zeros(count) for name in ("data_s", "forward_s", "backward_s")} | columns
    return Measured(
        steps=steps,
        window_s=1.0,
        window_steps=1,
        skipped_steps=0,
        stop_reason="",
        memory_peak_bytes=0,
    )


def in_a_quick_turn(job: Job, random: np.random.Generator, *, window_steps: int) -> list[Measured]:
    """Measure a window and one turn without the exchange, as `exchange="quick"` does."""
    own = job.own(random, window_steps + MOST_TURN_STEPS)
    window = np.tile(own[:, :window_steps].max(axis=0) + job.exposed_s, (job.ranks, 1))
    step_s = float(window[0].mean())
    steps = quick_steps(
        step_s,
        share_s=QUICK_SHARE * window_steps * step_s,
        budget_s=QUICK_SHARE * window_steps * step_s,
        noise=float(window[0].std(ddof=1) * np.sqrt(correlated_steps(window[0])) / step_s),
        window_steps=window_steps,
    )
    if steps is None:
        raise SystemExit("no step fits")
    turn = own[:, window_steps + LEAD : window_steps + LEAD + steps]
    parts = np.repeat(["window", "no_exchange"], [window_steps, steps])
    blocks = np.repeat([-1, 0], [window_steps, steps])
    times = np.concatenate([window, turn], axis=1)
    starts = np.cumsum(times, axis=1) - times
    forward = np.concatenate([own[:, :window_steps], turn], axis=1) / 3
    ranks = [
        sent(series, part=parts, block=blocks, start_s=start, forward_s=passed)
        for series, start, passed in zip(times, starts, forward, strict=True)
    ]
    return with_exchange_alone(ranks, job, random)


def with_exchange_alone(
    ranks: Sequence[Measured], job: Job, random: np.random.Generator
) -> list[Measured]:
    """Time the exchange by itself, in five batches known to 5 % each."""
    sample = random.normal(job.alone * STEP_S, 0.05 * job.alone * STEP_S, size=5)
    mean_s, error_s = float(sample.mean()), float(sample.std(ddof=1) / np.sqrt(5))
    return [
        replace(rank, exchange_isolated_s=mean_s, exchange_isolated_error_s=error_s)
        for rank in ranks
    ]


def in_turns(job: Job, random: np.random.Generator, *, limit_s: float) -> list[Measured]:
    """Take turns as `exchange="precise"` does, as long as it would."""
    steps = block_steps(STEP_S + job.exposed_s, limit_s=max(limit_s, FIRST_ROUND_S))
    if steps is None:
        raise SystemExit("no round fits")
    times, parts, blocks, spent_s = [], [], [], 0.0
    for rounds in itertools.count(1):
        for turn in turns(rounds - 1):
            own = job.own(random, LEAD + steps * len(turn.blocks))
            taken = (
                np.tile(own.max(axis=0) + job.exposed_s, (job.ranks, 1)) if turn.exchanges else own
            )
            spent_s += taken.sum(axis=1).max()
            times.append(taken[:, LEAD:])
            parts += ["exchange" if turn.exchanges else "no_exchange"] * (steps * len(turn.blocks))
            blocks += list(np.repeat(turn.blocks, steps))
        known = np.concatenate(times, axis=1)
        means = known.mean(axis=0).reshape(-1, steps).mean(axis=1)
        if is_known(*by_pair(means)) or spent_s * (rounds + 1) / rounds > limit_s:
            break
    ranks = [sent(series, part=np.array(parts), block=np.array(blocks)) for series in known]
    return with_exchange_alone(ranks, job, random)


def in_window(job: Job, random: np.random.Generator, *, steps: int) -> list[Measured]:
    """Take a window's steps, each `PERIOD`-th of which ends with an exchange that all wait for."""
    own = job.own(random, steps // PERIOD * PERIOD)
    sums = own.reshape(job.ranks, -1, PERIOD).sum(axis=2)
    sync = np.zeros_like(own)
    sync[:, PERIOD - 1 :: PERIOD] = sums.max(axis=0) - sums + job.exposed_s
    return [sent(work + waited, sync_s=waited) for work, waited in zip(own, sync, strict=True)]


def shares(job: Job, *, steps: int, repetitions: int, method: str) -> list[str]:
    """A row of the table: truth and mean of the shares, and the coverage of their intervals.

    Args:
        job: whose steps are drawn.
        steps: of a window.
        repetitions: trials.
        method: `quick` or `precise` of `ddp`, or `window` of `local_sgd`.
    """
    random, rows, taken = np.random.default_rng(0), [], []
    point = Point(workers=job.ranks, sync="local_sgd" if method == "window" else "ddp")
    for _ in range(repetitions):
        if method == "quick":
            ranks = in_a_quick_turn(job, random, window_steps=steps)
        elif method == "precise":
            ranks = in_turns(job, random, limit_s=AFTER * steps * STEP_S)
        else:
            ranks = in_window(job, random, steps=steps)
        rows.append(exchange_columns(point, ranks))
        taken.append(int((ranks[0].steps["part"] != "window").sum()))
    truth = job.truth(period=point.period)
    cells = []
    for name in ("exchange_share", "wait_share", "comm_share", "overlap_share"):
        if rows[0][name] is None:
            cells.append("")
            continue
        covers = np.mean([row[f"{name}_low"] <= truth[name] <= row[f"{name}_high"] for row in rows])
        mean = np.mean([row[name] for row in rows])
        cells.append(f"{truth[name] * 100:.1f} / {mean * 100:.1f} / {covers:.2f}")
    half = np.median([row["comm_share_high"] - row["comm_share_low"] for row in rows]) / 2
    return [*cells, f"{half * 100:.1f}", f"{np.mean(taken):.0f}"]


def named(job: Job, *, steps: int, repetitions: int, method: str) -> str:
    """Share of trials in which a straggler is named; where one is slow, in which that one is.

    Args:
        job: whose steps are drawn.
        steps: of a window.
        repetitions: trials.
        method: `window`, whose steps mark the exchange, or `quick`, a turn without the exchange
            after it.
    """
    random = np.random.default_rng(0)
    nodes = [f"node {rank}" for rank in range(job.ranks)]
    stragglers = []
    for _ in range(repetitions):
        if method == "quick":
            ranks = in_a_quick_turn(job, random, window_steps=steps)
        else:
            ranks = [sent(series, sync_s=np.zeros(steps)) for series in job.own(random, steps)]
        stragglers.append(skew_columns(ranks, nodes)["straggler"] or "")
    expected = "rank 1 " if job.slow else "rank"
    return f"{np.mean([name.startswith(expected) for name in stragglers]):.3f}"


def table_of_shares(windows: Sequence[int], repetitions: int) -> str:
    """Truth and mean of the shares by job and window."""
    rows = []
    noises = [(0.01, 0.0), (0.05, 0.0), (0.05, 0.8), (0.1, 0.0)]
    for method, ranks, (cv, rho), hidden in itertools.product(
        ("quick", "precise"), (2, 8, 64), noises, (0.0, 1.0)
    ):
        job = Job(ranks=ranks, cv=cv, rho=rho, alone=0.1, hidden=hidden)
        what = [
            f"ddp, {'all' if hidden else 'nothing'} hidden",
            method,
            str(ranks),
            _noise(cv, rho),
        ]
        rows += [
            [*what, str(steps), *shares(job, steps=steps, repetitions=repetitions, method=method)]
            for steps in windows
        ]
    for ranks, steps in itertools.product((2, 8, 64), windows):
        job = Job(ranks=ranks, cv=0.05, alone=0.4)
        cells = shares(job, steps=steps, repetitions=repetitions, method="window")
        rows.append([f"local_sgd H={PERIOD}", "window", str(ranks), "5 %", str(steps), *cells])
    each = ["exchange %", "wait %", "comm %", "overlap %"]
    return table(
        ["job", "by", "ranks", "jitter", "window", *each, "comm ±", "steps after it"], rows
    )


def _noise(cv: float, rho: float) -> str:
    return f"{cv * 100:.0f} %" + (f", AR(1) {rho:g}" if rho else "")


def table_of_stragglers(repetitions: int) -> str:
    """How often a straggler is named."""
    rows = []
    windows = [
        ("quick", 20),
        ("quick", 60),
        ("quick", 400),
        ("window", 44),
        ("window", 100),
        ("window", 400),
    ]
    for ranks, (method, steps) in itertools.product((2, 8, 64), windows):
        equal = [
            Job(ranks=ranks, cv=cv, alone=0, rho=rho)
            for cv, rho in ((0.02, 0), (0.05, 0), (0.05, 0.5), (0.05, 0.8))
        ]
        jobs = [*equal, Job(ranks=ranks, cv=0.05, alone=0, slow=0.1)]
        cells = (named(job, steps=steps, repetitions=repetitions, method=method) for job in jobs)
        rows.append([method, str(ranks), str(steps), *cells])
    return table(
        [
            "by",
            "ranks",
            "window",
            "cv 2 %",
            "cv 5 %",
            "AR(1) 0.5",
            "AR(1) 0.8",
            "one 10 % slower, cv 5 %",
        ],
        rows,
    )


def main() -> None:
    """Simulate and print an entry for docs/log/."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.exchange", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--repetitions", type=int, default=200, help="trials of each kind (default 200)"
    )
    options = parser.parse_args()
    print(heading("Is what the exchange costs told as it is?"), end="\n\n")
    print(
        "Truth / mean of the trials / how often the interval covers the truth; "
        "comm ± is the median half-width in\npoints.",
        end="\n\n",
    )
    print(table_of_shares((30, 100, 1000), options.repetitions), end="\n\n")
    print(
        "How often a straggler is named among equal ranks; the slower one where there is one.",
        end="\n\n",
    )
    print(table_of_stragglers(options.repetitions))


if __name__ == "__main__":
    main()
