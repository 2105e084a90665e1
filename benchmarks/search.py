"""How much of a grid's cost does a search need to find its frontier, next to other optimisers?

Published jobs are replayed (`search_jobs.py`): a trial gives the mean step time of its candidate.
A trial costs its workers times 30 s for a launch and 40 steps; with live sessions the launch is
charged where the trial before ran in another world. Quality is the hypervolume of the measured
candidates over log latency and log rate, each scaled to the grid's range, with reference 1.1, as a
share of the grid's. Shown is the cost until 95 and 98 % of it, as a share of the grid's cost with a
launch for each trial; a run that ends earlier counts as 100 %. No trial of these jobs failed.

`confirmed` adds one more launch of each member of the frontier at that moment. The certificate is
taken when the largest expected gain falls below a limit. It is honest when no more candidates beat
the frontier by more than 2 % than it counted.

Peers (`search_peers.py`) get the same candidates and logarithms of both objectives; a proposal that
is no candidate, or was measured, becomes the nearest candidate without a measurement.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.log_entry import heading, quartiles, table
from benchmarks.search_jobs import JOBS, START_S, STEPS, Problem, read_problem
from benchmarks.search_peers import PEERS
from dtsweep.model.setups import Measured
from dtsweep.model.step_time import fit_step_time
from dtsweep.search.certificate import Certificate, certificate_of, chance_to_join
from dtsweep.search.choice import Pool, Progress, charges_of, next_points, power_of
from dtsweep.search.first_points import first_points
from dtsweep.search.gain import expected_gain
from dtsweep.search.objectives import latency_and_rate

LEVELS = (0.95, 0.98)
"""Shares of the grid's hypervolume."""

LIMITS = (0.003, 0.001)
"""Largest expected gains, as shares of the hypervolume, at which a search ends."""


@dataclass
class Trace:
    """Order of the trials of one run, and the certificates on its way."""

    rows: list[int] = field(default_factory=list)
    certificates: dict[float, tuple[int, Certificate]] = field(default_factory=dict)
    """Number of trials and certificate, by the limit that ended the search."""
    seconds: float = 0.0
    """Time of the optimiser itself."""


def own_search(problem: Problem, seed: int, *, sessions: bool, most: int) -> Trace:
    """Replay the search of dtsweep until the last limit, or 98 %, whichever is later."""
    trace, began = Trace(), time.perf_counter()
    charges = charges_of(problem.setups, world=problem.world, start_s=START_S, steps=STEPS)
    objectives = latency_and_rate(problem.setups.samples_per_step)
    latest: list[float] = []

    def gain_of(estimates):  # type: ignore[no-untyped-def]
        gains = expected_gain(objectives, estimates)
        latest.append(gains.largest_share)
        return gains.gain

    pool = Pool(setups=problem.setups, charges=charges, gain_of=gain_of)
    # Before a trial, a window counts nothing: its step time is unknown.
    trace.rows = first_points(problem.setups, problem.launch_s, seed=seed).tolist()
    launches = list(range(len(trace.rows)))
    while len(trace.rows) < most:
        measured = np.array(trace.rows)
        model = fit_step_time(
            problem.setups.take(measured),
            Measured(
                step_s=problem.step_s[measured],
                error=np.zeros(len(measured)),
                pass_s=problem.pass_s[measured],
                launch=np.array(launches),
            ),
        )
        progress = Progress(
            measured=measured,
            log_step_s=np.log(problem.step_s[measured]),
            chance=np.ones(len(problem.step_s)),
            live=int(problem.world[measured[-1]]) if sessions else None,
        )
        estimates = progress.estimates(model.predict(problem.setups))
        gains = expected_gain(objectives, estimates)
        for limit in LIMITS:
            if gains.is_settled(limit) and limit not in trace.certificates:
                chances = chance_to_join(objectives, estimates)
                certificate = certificate_of(chances, estimates)
                trace.certificates[limit] = (len(trace.rows), certificate)
        if len(trace.certificates) == len(LIMITS) and (
            problem.share_of_volume(trace.rows) >= LEVELS[-1]
        ):
            break
        chosen = next_points(
            pool, model, progress=progress, power=power_of(gains.largest_share)
        ).tolist()
        if not chosen:
            break
        for row in chosen:
            is_live = sessions and problem.world[row] == problem.world[trace.rows[-1]]
            launches.append(launches[-1] if is_live else launches[-1] + 1)
            trace.rows.append(row)
    trace.seconds = time.perf_counter() - began
    return trace
