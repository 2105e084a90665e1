"""How much of a grid's cost does a search need for its frontier, next to other optimisers?

Published jobs are replayed (`search_jobs.py`): a trial gives the mean step time of its candidate.
A trial costs its workers times 30 s for a launch and 40 steps; with live sessions the launch is
charged where the trial before ran in another world. Quality is the hypervolume of the measured
candidates over log latency and log rate, each scaled to the grid's range, with reference 1.1, as a
share of the grid's. Shown is the cost until 95 and 98 % of it, as a share of the grid's cost with a
launch for each trial; a run that ends earlier counts as 100 %. No trial of these jobs failed.

Costs with confirmation include one more launch of each member of the frontier at that moment, in
the search and in the grid. The certificate is taken when the largest expected gain falls below a
limit. It holds when no more candidates beat the frontier by more than the zone than it gives as the
most with probability 95 %. With live sessions a choice is of up
to three candidates of one world, as in a run; else of one.

The search gets the costs of launches and the time of a pass without the exchange, and knows that
one step time gives both objectives. Next to it, candidates are measured in random order.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from benchmarks.log_entry import heading, quartiles, table
from benchmarks.search_jobs import JOBS, START_S, STEPS, Problem, read_problem
from dtsweep.plan.search_policy import LEAST_GAIN, MOST_IN_BATCH
from dtsweep.plan.search_worth import COULD_CHANCE, FrontierWorth, certificate_of
from dtsweep.predict.candidate_costs import Estimates, latency_and_rate
from dtsweep.predict.choice import Charges, Pool, SearchProgress, cost_power, next_points
from dtsweep.predict.first_points import first_points
from dtsweep.predict.setups import MeasuredSetups
from dtsweep.predict.step_time import fit_step_time
from dtsweep.results.certificate import Certificate
from dtsweep.sweep.goal import Question

LEVELS = (0.95, 0.98)
"""Shares of the grid's hypervolume."""

LIMITS = (LEAST_GAIN, 0.001)
"""Largest expected gains, as shares of the hypervolume, at which a search ends."""

ZONE = Question().indifference
"""Share by which a candidate has to be better, to count."""


@dataclass(kw_only=True)
class Trace:
    """Trials of one run in their order."""

    problem: Problem
    sessions: bool = False
    """True if a live session measures all candidates of its world."""
    rows: list[int] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    """Cost after each trial, as a share of the grid's."""
    volumes: list[float] = field(default_factory=list)
    """Hypervolume after each trial, as a share of the grid's."""

    def add(self, row: int) -> None:
        """Add a trial."""
        problem = self.problem
        cost = problem.window_s[row]
        if not (self.sessions and self.rows and problem.world[row] == self.live):
            cost += problem.launch_s[row]
        self.rows.append(row)
        self.costs.append((self.costs or [0.0])[-1] + cost / problem.grid_s)
        self.volumes.append(problem.share_of_volume(self.rows))

    @property
    def live(self) -> int:
        """World of the latest trial."""
        return int(self.problem.world[self.rows[-1]])

    def trials_to(self, level: float) -> int | None:
        """Trials until a level of the hypervolume; None if it was not reached."""
        reached = np.flatnonzero(np.array(self.volumes) >= level)
        return int(reached[0]) + 1 if len(reached) else None

    def cost_to(self, level: float) -> float:
        """Share of the grid's cost until a level; 1 if it was not reached."""
        trials = self.trials_to(level)
        return self.costs[trials - 1] if trials else 1.0

    def confirmed_cost_to(self, level: float) -> float:
        """Share of the grid's cost until a level, the frontiers of both launched once more."""
        trials = self.trials_to(level)
        if not trials:
            return 1.0
        problem = self.problem
        trial_s = (problem.window_s + problem.launch_s) / problem.grid_s
        grid = 1 + trial_s[problem.members(range(len(trial_s)))].sum()
        confirmation = trial_s[problem.members(self.rows[:trials])].sum()
        return float((self.costs[trials - 1] + confirmation) / grid)


class End(NamedTuple):
    """State of a search when its expected gain fell below a limit."""

    trials: int
    cost: float
    volume: float
    certificate: Certificate
    better: int
    """Candidates that truly beat the frontier by more than the zone."""


def own_search(
    problem: Problem, *, seed: int, sessions: bool, most: int
) -> tuple[Trace, dict[float, End]]:
    """Replay the search until all limits and 98 %, or for as many trials."""
    worth = FrontierWorth(objectives=latency_and_rate(problem.setups.samples_per_step))
    count = len(problem.step_s)
    charges = Charges(
        workers=problem.setups.workers,
        world=problem.world,
        start_s=np.full(count, START_S),
        rest_s=np.zeros(count),
        steps=STEPS,
    )
    pool = Pool(setups=problem.setups, charges=charges, gain_of=worth.gain_of)
    batch = MOST_IN_BATCH if sessions else 1
    trace = Trace(problem=problem, sessions=sessions)
    ends: dict[float, End] = {}
    # Before there is a model, a launch stands for the cost of a trial.
    for row in first_points(problem.setups, problem.launch_s, seed=seed).tolist():
        trace.add(row)
    while len(trace.rows) < most:
        model = fit_step_time(problem.setups.take(trace.rows), measured_of(trace))
        progress = SearchProgress(
            measured=np.array(trace.rows),
            log_step_s=np.log(problem.step_s[trace.rows]),
            chance=np.ones(len(problem.step_s)),
            live=trace.live if sessions else None,
        )
        estimates = progress.estimates(model.predict(problem.setups))
        gain = worth.largest_share(estimates)
        for limit in LIMITS:
            if gain < limit:
                ends.setdefault(limit, end_of(trace, worth, estimates))
        if len(ends) == len(LIMITS) and trace.volumes[-1] >= LEVELS[-1]:
            break
        rows = next_points(pool, model, progress=progress, power=cost_power(gain), most=batch)
        for row in rows.tolist():
            trace.add(row)
    return trace, ends


def measured_of(trace: Trace) -> MeasuredSetups:
    """Measurements of a run so far; trials of one session are of one launch."""
    problem, rows = trace.problem, trace.rows
    is_other = np.diff(problem.world[rows]) != 0
    if not trace.sessions:
        is_other[:] = True
    return MeasuredSetups(
        step_s=problem.step_s[rows],
        error=np.zeros(len(rows)),
        pass_s=problem.pass_s[rows],
        launch=np.concatenate([[0], np.cumsum(is_other)]),
    )


def end_of(trace: Trace, worth: FrontierWorth, estimates: Estimates) -> End:
    """Take the certificate of a search, and count what it has missed."""
    problem = trace.problem
    truth = Estimates(
        log_step_s=np.log(problem.step_s),
        error=np.full(len(problem.step_s), 1e-9),
        is_measured=estimates.is_measured,
        chance=estimates.chance,
    )
    return End(
        trials=len(trace.rows),
        cost=trace.costs[-1],
        volume=trace.volumes[-1],
        certificate=certificate_of(worth, estimates, zone=ZONE, tried=len(trace.rows)),
        better=int((worth.chances(truth, zone=ZONE) > 0.5).sum()),
    )


def random_runs(problems: Sequence[Problem], *, seeds: int) -> list[Trace]:
    """Measure the candidates of all problems in random order until 98 %."""
    traces = []
    for problem, seed in itertools.product(problems, range(seeds)):
        trace = Trace(problem=problem)
        order = np.random.default_rng(seed).permutation(len(problem.step_s))
        for row in order.tolist():
            trace.add(row)
            if trace.volumes[-1] >= LEVELS[-1]:
                break
        traces.append(trace)
    return traces


def cells(name: str, traces: Sequence[Trace], *, seconds: float, most: int | None) -> list[str]:
    """Row of the table of optimisers."""
    trials = [trace.trials_to(LEVELS[0]) or len(trace.rows) for trace in traces]
    fits = sum(len(trace.rows) for trace in traces)
    return [
        name,
        str(len(traces)),
        str(most or "all"),
        *(
            quartiles([100 * trace.cost_to(level) for trace in traces], form=".1f")
            for level in LEVELS
        ),
        f"{np.mean([trace.trials_to(LEVELS[1]) is not None for trace in traces]):.0%}",
        *(
            f"{np.median([100 * trace.confirmed_cost_to(level) for trace in traces]):.1f}"
            for level in LEVELS
        ),
        f"{np.median(trials):.3g}",
        f"{seconds / fits:.2f} s",
    ]


def end_cells(name: str, limit: float, ends: Sequence[End], runs: int) -> list[str]:
    """Row of the table of certificates."""
    holds = [end.better <= (end.certificate.most or 0) for end in ends]
    return [
        name,
        f"{limit:.1%}",
        f"{len(ends)} of {runs}",
        f"{np.median([end.trials for end in ends]):.3g}",
        f"{np.median([100 * end.cost for end in ends]):.1f}",
        f"{np.median([100 * end.volume for end in ends]):.1f}",
        f"{np.median([end.certificate.could_beat for end in ends]):.3g}",
        f"{np.median([100 * end.certificate.chance for end in ends]):.3g}",
        f"{np.mean([end.better for end in ends]):.2g}",
        f"{np.mean([end.certificate.expected for end in ends]):.2g}",
        f"{np.mean(holds):.0%}",
    ]


def job_cells(name: str, traces: Sequence[Trace], problems: Sequence[Problem]) -> list[str]:
    """Row of the table of jobs: medians of both levels for each job."""
    shown = [name]
    for problem in problems:
        of_job = [trace for trace in traces if trace.problem is problem]
        medians = [np.median([100 * trace.cost_to(level) for trace in of_job]) for level in LEVELS]
        shown.append(" / ".join(f"{median:.1f}" for median in medians))
    return shown


def main() -> None:
    """Print an entry for docs/log/."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5, help="of dtsweep's search, for each job")
    parser.add_argument("--most", type=int, default=60, help="trials of a search")
    parser.add_argument("--jobs", nargs="+", default=list(JOBS))
    parser.add_argument("--random-seeds", type=int, default=10, help="of random order")
    args = parser.parse_args()
    problems = [read_problem(job) for job in args.jobs]
    of_all, of_jobs, of_ends = [], [], []

    def note(name: str, traces: Sequence[Trace], began: float, *, most: int | None) -> None:
        of_all.append(cells(name, traces, seconds=time.process_time() - began, most=most))
        of_jobs.append(job_cells(name, traces, problems))
        print(" | ".join(of_all[-1]), file=sys.stderr, flush=True)

    for name, sessions in (("dtsweep", False), ("dtsweep, live sessions", True)):
        if not args.seeds:
            break
        began, runs = time.process_time(), []
        for problem, seed in itertools.product(problems, range(args.seeds)):
            run = own_search(problem, seed=seed, sessions=sessions, most=args.most)
            runs.append(run)
            shares = [f"{level:.0%}: {run[0].cost_to(level):.1%}" for level in LEVELS]
            print(name, problem.name, seed, *shares, file=sys.stderr, flush=True)
        note(name, [trace for trace, _ in runs], began, most=args.most)
        for limit in LIMITS:
            ends = [of_run[limit] for _, of_run in runs if limit in of_run]
            if ends:
                of_ends.append(end_cells(name, limit, ends, len(runs)))
    began = time.process_time()
    note("random", random_runs(problems, seeds=args.random_seeds), began, most=None)
    print(heading("how much of a grid's cost does a search need for its frontier?"))
    sizes = ", ".join(f"{problem.name} {len(problem.step_s)}" for problem in problems)
    print(
        f"  Candidates: {sizes}. Costs are shares of the grid's in %, medians over jobs and seeds"
    )
    print("  (quartiles); CPU time per trial is the optimiser's.\n")
    levels = [f"{level:.0%} of the hypervolume" for level in LEVELS]
    confirmed = [f"{level:.0%}, confirmed" for level in LEVELS]
    names = ["optimiser", "runs", "at most", *levels, "reach 98%", *confirmed]
    print(table([*names, "trials to 95%", "CPU time per trial"], of_all))
    print("\nMedians for each job, 95 % / 98 %:\n")
    print(table(["optimiser", *args.jobs], of_jobs))
    print("\nAt the end by a limit of the expected gain:\n")
    counts = [f"counted from {COULD_CHANCE:.0%}", "largest chance, %"]
    counts += [f"beat it by {ZONE:.0%}, mean", "expected, mean", "holds"]
    shown = ["search", "limit", "runs that end", "trials", "cost", "hypervolume", *counts]
    print(table(shown, of_ends), flush=True)


if __name__ == "__main__":
    main()
