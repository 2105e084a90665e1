"""Comparison of a run with earlier ones, by point: slower points, and those that no longer run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dtsweep.compare.regressions import RUN_SIGMA, regressions
from dtsweep.compare.runs import (
    BROKEN,
    Run,
    names_of_machines,
    other_machines,
    other_software,
    other_source,
)
from dtsweep.errors import SweepError

if TYPE_CHECKING:
    import pandas as pd

RUNS_FROM = 5
"""Number of earlier runs from which on the spread between runs decides.

With fewer runs, the spread between the launches inside them decides.
"""

MOST_RUNS = 20
"""Earlier runs that count: the newest ones."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RunComparison:
    """Comparison of a later run with one or several earlier ones."""

    base: Sequence[Run]
    """Earlier runs on the machine of the new one, the oldest first."""
    new: Run
    is_by_run: bool
    """True if a run counts as one draw; False if a launch does."""
    rows: pd.DataFrame
    """Rows of `regressions`."""
    drift: float
    """Drift of the machine, as a share.

    A smaller difference is never significant for a point with one draw.
    """
    broken: pd.DataFrame
    """Points that an earlier run measured and the new one could not.

    Columns include `point_id`, `status` and `reason`.
    """
    machine: Sequence[str]
    """Differences of the machines; empty unless these are allowed."""
    software: Sequence[str]
    """Differences between the software of the newest earlier run and of the new one."""
    source: Sequence[str]
    """Differences of the workload's source in the newest earlier run."""

    @property
    def is_regression(self) -> bool:
        """True if a point is significantly worse by more than the threshold, or no longer runs."""
        return bool(self.rows["is_regression"].any()) or len(self.broken) > 0


def compare_runs(
    base: Sequence[Run],
    new: Run,
    *,
    of: Sequence[str],
    threshold: float,
    other_machine: bool = False,
) -> RunComparison:
    """Compare a run with earlier ones.

    Args:
        base: earlier runs, the oldest first; of several, those of another machine are left out
            beforehand (`of_machine`).
        new: the later one.
        of: rates and times to compare by.
        threshold: share by which a value must be worse to be a regression.
        other_machine: compare runs of different machines as if they were one.

    Raises:
        SweepError: machines differ, trials are the same in both, or no point was measured in both.
    """
    base = base[-MOST_RUNS:]
    for run in base:
        _check_distinct(run, new)
    names = names_of_machines([*base, new])
    machine = other_machines(base[-1], new, names)
    if machine and not other_machine:
        differences = "; ".join(machine)
        raise SweepError(
            f"these runs are of different machines: {differences}; --other-machine compares them "
            "all the same"
        )
    by_run = len(base) >= RUNS_FROM
    broken = _broken(base, new)
    launches = [
        _launches(run, {} if other_machine else names, by_run=by_run) for run in (*base, new)
    ]
    drift = _drift_of_one(base, new, by_run=by_run)
    rows = regressions(
        _joined(launches[:-1]),
        launches[-1],
        of=of,
        threshold=threshold,
        drift=drift,
        run_sigma=0.0 if by_run else RUN_SIGMA,
    )
    if rows.empty and broken.empty:
        for run in (base[-1], new):
            if run.launches.empty:
                raise SweepError(f"no trial of {run.name} ended ok, so there is nothing to compare")
        raise SweepError(
            f"no point is in both {base[-1].name} and {new.name}; give runs of one sweep"
        )
    return RunComparison(
        base=base,
        new=new,
        is_by_run=by_run,
        rows=rows,
        drift=drift,
        broken=broken,
        machine=machine,
        software=other_software(base[-1], new),
        source=other_source(base[-1], new),
    )


def _check_distinct(base: Run, new: Run) -> None:
    """Refuse to compare trials with themselves."""
    then, now = (set(run.launches["attempt_id"]) for run in (base, new))
    if then and then == now:
        raise SweepError(
            f"{base.name} and {new.name} are the same run: give another one to compare with"
        )
    if same := len(then & now):
        raise SweepError(
            f"{same} of the {len(now)} trials of {new.name} are those of {base.name}; measure what "
            "is to be compared into --results of its own"
        )


def _drift_of_one(base: Sequence[Run], new: Run, *, by_run: bool) -> float:
    """Give the share by which one draw may be off because the machine drifted.

    If runs are the draws, their spread includes drift. The result is then 0, unless the new run
    drifted most.
    """
    *earlier, last = (run.drift or 0.0 for run in (*base, new))
    if not by_run:
        return max(*earlier, last)
    if last > max(earlier):
        return last
    return 0.0


def _launches(run: Run, names: Mapping[str, str], *, by_run: bool) -> pd.DataFrame:
    """Take rows of `measured`, with names of launches that no other run has.

    `env_id` names the machine instead of the environment.
    """
    rows = run.launches
    machine = rows["env_id"].map(names) if names else "any"
    launch = run.name if by_run else run.name + " " + rows["launch"]
    return rows.assign(env_id=machine, launch=launch)


def _joined(runs: Sequence[pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    shared = [name for name in runs[-1].columns if all(name in run.columns for run in runs)]
    return pd.concat([run[shared].astype({"env_id": object}) for run in runs], ignore_index=True)


def _broken(base: Sequence[Run], new: Run) -> pd.DataFrame:
    measured_then, measured_now = (
        set().union(*(run.launches["point_id"] for run in runs)) for runs in (base, [new])
    )
    failed = new.trials[new.trials["status"].isin(BROKEN)]
    is_broken = failed["point_id"].isin(measured_then - measured_now)
    return failed[is_broken].drop_duplicates("point_id", keep="last").reset_index(drop=True)
