"""Whole runs, from results or from a history of them, paired point by point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dtsweep.analysis.generations import older_source
from dtsweep.analysis.launches import measured, without_canaries
from dtsweep.analysis.load import as_loaded, load
from dtsweep.analysis.machines import Machines, machine_changes, machines_of, same_machines, software_changes
from dtsweep.analysis.regressions import regressions
from dtsweep.errors import SweepError
from dtsweep.results.history import Entry, entry_of
from dtsweep.results.statuses import FINAL
from dtsweep.results.store import Results, frame_of

if TYPE_CHECKING:
    import pandas as pd

RUNS_FROM = 5
"""Earlier runs from which on the spread between runs decides, not that between launches inside them."""

MOST_RUNS = 20
"""Earlier runs that count: the newest ones."""

BROKEN = (FINAL - {"ok"}) | {"hang", "rank_died", "oom_host", "launch_failed"}
"""Statuses of a point that does not run any more; the others say that it was not tried, or not by its own fault."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """One run: what was measured in one go, with one version of everything."""

    name: str
    trials: pd.DataFrame
    """One row per trial, as `dtsweep.load` gives it, canaries left out."""
    machines: Mapping[str, Machines]
    """By `env_id`."""

    @cached_property
    def launches(self) -> pd.DataFrame:
        """Rows of `measured`."""
        return measured(self.trials)


def load_run(results: str | Path) -> Run:
    """Read results as one run; errors as `load` has them."""
    store = Results(results)
    trials = without_canaries(load(store)).reset_index(drop=True)
    if not (trials["status"] == "ok").any():
        raise SweepError(f"no trial of {store} ended ok, so there is nothing to compare")
    attempts = trials.loc[trials["status"] == "ok", "attempt_id"]
    ranks = frame_of(store.table("ranks", attempts=attempts.tolist()))
    return Run(name=str(store), trials=trials, machines=machines_of(trials, ranks))


def run_of(entry: Entry) -> Run:
    """Make a run of an entry of a history."""
    trials = as_loaded(frame_of(entry.trials)).sort_values("started_at", kind="stable", ignore_index=True)
    return Run(name=entry.run, trials=trials, machines=machines_of(trials, frame_of(entry.ranks)))


def entry_for(results: str | Path, run: Run, *, is_start: bool) -> Entry:
    """Make the entry of a run that `load_run` read from there: its trials that were measured."""
    attempts = run.trials.loc[run.trials["status"] == "ok", "attempt_id"]
    return entry_of(results, attempts.tolist(), is_start=is_start)


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """A later run beside one or several earlier ones."""

    base: Sequence[Run]
    """Of the machine of the new one, the oldest first; several are a history."""
    new: Run
    is_by_run: bool
    """Whether what counts as one draw is a run, and not a launch."""
    rows: pd.DataFrame
    """Of `regressions`: the question `jump` asks after the new run beside all earlier ones, `creep` after the later
    half of all runs, the new one among them, beside the earlier half."""
    broken: pd.DataFrame
    """Points that the newest earlier run measured and the new one could not: `point_id`, `status`, `reason`."""
    machine: Sequence[str]
    """In what the machines differ; empty unless that was allowed."""
    software: Sequence[str]
    """In what the software of the newest earlier run differs from that of the new one."""
    source: Sequence[str]
    """What the workload of the newest earlier run has otherwise."""

    @property
    def is_regression(self) -> bool:
        """Whether anything is told to be worse by more than the threshold, or does not run any more."""
        return bool(self.rows["is_regression"].any()) or len(self.broken) > 0


def compare_runs(
    base: Sequence[Run], new: Run, *, of: Sequence[str], threshold: float, other_machine: bool = False
) -> Comparison:
    """Compare a run with earlier ones.

    Args:
        base: earlier runs, the oldest first; those of a history that ran on another machine are left out beforehand
            (`of_machine`).
        new: the later one.
        of: rates and times to compare by.
        threshold: share by which a value must be worse to be a regression.
        other_machine: compare runs of different machines as if they were one.

    Raises:
        SweepError: machines differ, or no point was measured in both.
    """
    base = base[-MOST_RUNS:]
    names = _names_of_machines([*base, new])
    machine = _other_machines(base[-1], new, names)
    if machine and not other_machine:
        said = "; ".join(machine)
        raise SweepError(f"these runs are of different machines: {said}; --other-machine compares them all the same")
    by_run = len(base) >= RUNS_FROM
    launches = [_launches(run, {} if other_machine else names, by_run=by_run) for run in (*base, new)]
    questions = {"jump": (_joined(launches[:-1]), launches[-1])}
    if by_run:
        half = len(launches) // 2
        questions["creep"] = (_joined(launches[:half]), _joined(launches[half:]))
    rows = regressions(questions, of=of, threshold=threshold)
    if rows.empty:
        raise SweepError(f"no point was measured in both {base[-1].name} and {new.name}; give runs of one sweep")
    return Comparison(
        base=base,
        new=new,
        is_by_run=by_run,
        rows=rows,
        broken=_broken(base[-1], new),
        machine=machine,
        software=_software(base[-1], new),
        source=_source(base[-1], new),
    )


def of_machine(base: Sequence[Run], new: Run) -> list[Run]:
    """Select the runs that share a machine with the new one."""
    names = _names_of_machines([*base, new])
    own = {names[env_id] for env_id in _environments(new)}
    return [run for run in base if own & {names[env_id] for env_id in _environments(run)}]


def _environments(run: Run) -> list[str]:
    return list(run.launches["env_id"].dropna().unique())


def _names_of_machines(runs: Sequence[Run]) -> dict[str, str]:
    known = {env_id: found for run in runs for env_id, found in run.machines.items()}
    return same_machines([env_id for run in runs for env_id in _environments(run)], known)


def _other_machines(base: Run, new: Run, names: Mapping[str, str]) -> list[str]:
    """Say in what the machines of points differ that both runs measured, each on another one."""
    machines = [run.launches.assign(machine=run.launches["env_id"].map(names)) for run in (base, new)]
    pairs = machines[0].merge(machines[1], on="point_id", suffixes=("", "_new"))
    alike = pairs.loc[(pairs["machine"] == pairs["machine_new"]) | pairs["machine"].isna(), "point_id"]
    other = pairs[~pairs["point_id"].isin(alike)].drop_duplicates(["env_id", "env_id_new"])
    said = [
        change
        for one, two in other[["env_id", "env_id_new"]].to_numpy()
        for change in machine_changes(base.machines.get(one), new.machines.get(two))
    ]
    return list(dict.fromkeys(said))


def _software(base: Run, new: Run) -> list[str]:
    said = [
        change
        for one in _environments(base)
        for two in _environments(new)
        for change in software_changes(base.machines.get(one), new.machines.get(two))
    ]
    return list(dict.fromkeys(said))


def _source(base: Run, new: Run) -> list[str]:
    import pandas as pd

    columns = ["workload", "workload_digest", "sources", "started_at", "role", "status"]
    fields = [c for c in new.trials.columns if c.startswith("workload_") and c != "workload_digest"]
    runs = [run.launches.reindex(columns=[*columns, *fields]).assign(side=side) for side, run in enumerate((base, new))]
    both = pd.concat([run.astype(object) for run in runs], ignore_index=True)
    both["started_at"] = both["side"]
    said = older_source(both)[both["side"] == 0].dropna()
    return list(dict.fromkeys(said))


def _launches(run: Run, names: Mapping[str, str], *, by_run: bool) -> pd.DataFrame:
    """Rows of `measured` with names that no other run has, and the machine in the place of the environment."""
    rows = run.launches
    machine = rows["env_id"].map(names) if names else "any"
    return rows.assign(env_id=machine, launch=run.name if by_run else run.name + " " + rows["launch"])


def _joined(runs: Sequence[pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    shared = [c for c in runs[-1].columns if all(c in run.columns for run in runs)]
    return pd.concat([run[shared].astype({"env_id": object}) for run in runs], ignore_index=True)


def _broken(base: Run, new: Run) -> pd.DataFrame:
    measured_then, measured_now = (set(run.launches["point_id"]) for run in (base, new))
    failed = new.trials[new.trials["status"].isin(BROKEN)]
    gone = failed["point_id"].isin(measured_then - measured_now)
    return failed[gone].drop_duplicates("point_id", keep="last").reset_index(drop=True)
