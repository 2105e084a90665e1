"""Whole runs, from results or from a history of them, paired point by point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dtsweep.analysis.canaries import canaries, told_drift
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
    frame: pd.DataFrame
    """One row per trial, as `dtsweep.load` gives it, canaries included."""
    machines: Mapping[str, Machines]
    """By `env_id`."""

    @cached_property
    def trials(self) -> pd.DataFrame:
        """The rows without canaries."""
        return without_canaries(self.frame).reset_index(drop=True)

    @cached_property
    def launches(self) -> pd.DataFrame:
        """Rows of `measured`."""
        return measured(self.frame)

    @cached_property
    def tried(self) -> pd.DataFrame:
        """Trials that were measured, and those of points that broke."""
        is_measured = self.trials["attempt_id"].isin(self.launches["attempt_id"])
        return self.trials[is_measured | self.trials["status"].isin(BROKEN)]

    @cached_property
    def drift(self) -> float | None:
        """Of the machine, as `told_drift` says."""
        return told_drift(canaries(self.frame))


def load_run(results: str | Path) -> Run:
    """Read results as one run; errors as `load` has them."""
    store = Results(results)
    frame = load(store, canaries=True)
    attempts = frame.loc[frame["status"].isin({"ok", *BROKEN}), "attempt_id"]
    ranks = frame_of(store.table("ranks", attempts=attempts.tolist()))
    return Run(name=str(store), frame=frame, machines=machines_of(frame, ranks))


def run_of(entry: Entry) -> Run:
    """Make a run of an entry of a history."""
    frame = as_loaded(frame_of(entry.trials)).sort_values("started_at", kind="stable", ignore_index=True)
    return Run(name=entry.run, frame=frame, machines=machines_of(frame, frame_of(entry.ranks)))


def entry_for(results: str | Path, run: Run, *, is_start: bool) -> Entry:
    """Make the entry of a run that `load_run` read from there: its trials and canaries that were measured.

    Raises:
        SweepError: there are none.
    """
    if run.launches.empty:
        raise SweepError(_nothing_in(run))
    attempts = run.frame.loc[run.frame["status"] == "ok", "attempt_id"]
    return entry_of(results, attempts.tolist(), is_start=is_start)


def _nothing_in(run: Run) -> str:
    return f"no trial of {run.name} ended ok, so there is nothing to compare"


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
    drift: float
    """Of the machine, as a share: what is less is not told of a point with one draw."""
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
        SweepError: machines differ, trials are the same in both, or no point was measured in both.
    """
    base = base[-MOST_RUNS:]
    for run in base:
        _check_apart(run, new)
    names = _names_of_machines([*base, new])
    machine = _other_machines(base[-1], new, names)
    if machine and not other_machine:
        said = "; ".join(machine)
        raise SweepError(f"these runs are of different machines: {said}; --other-machine compares them all the same")
    by_run, broken = len(base) >= RUNS_FROM, _broken(base[-1], new)
    launches = [_launches(run, {} if other_machine else names, by_run=by_run) for run in (*base, new)]
    questions = {"jump": (_joined(launches[:-1]), launches[-1])}
    if by_run:
        half = len(launches) // 2
        questions["creep"] = (_joined(launches[:half]), _joined(launches[half:]))
    drift = _drift_of_one(base, new, by_run=by_run)
    rows = regressions(questions, of=of, threshold=threshold, drift=drift)
    if rows.empty and broken.empty:
        nothing = [_nothing_in(run) for run in (base[-1], new) if run.launches.empty]
        none = f"no point was measured in both {base[-1].name} and {new.name}; give runs of one sweep"
        raise SweepError(nothing[0] if nothing else none)
    return Comparison(
        base=base,
        new=new,
        is_by_run=by_run,
        rows=rows,
        drift=drift,
        broken=broken,
        machine=machine,
        software=_software(base[-1], new),
        source=_source(base[-1], new),
    )


def _check_apart(base: Run, new: Run) -> None:
    """Refuse to compare trials with themselves."""
    then, now = (set(run.launches["attempt_id"]) for run in (base, new))
    if then and then == now:
        raise SweepError(f"{base.name} and {new.name} are the same run: give another one to compare with")
    if same := len(then & now):
        said = f"{same} of the {len(now)} trials of {new.name} are those of {base.name}"
        raise SweepError(f"{said}; measure what is to be compared into --results of its own")


def _drift_of_one(base: Sequence[Run], new: Run, *, by_run: bool) -> float:
    """What one draw may be off by because the machine drifted; runs show that, unless the new one drifted most."""
    drifts = [run.drift or 0.0 for run in (*base, new)]
    if by_run:
        return drifts[-1] if drifts[-1] > max(drifts[:-1]) else 0.0
    return max(drifts)


def of_machine(base: Sequence[Run], new: Run) -> list[Run]:
    """Select the runs that share a machine with the new one; all where it failed before it said which it has."""
    names = _names_of_machines([*base, new])
    own = {names[env_id] for env_id in _environments(new)}
    return [run for run in base if not own or own & {names[env_id] for env_id in _environments(run)}]


def _environments(run: Run) -> list[str]:
    return list(run.tried["env_id"].dropna().unique())


def _names_of_machines(runs: Sequence[Run]) -> dict[str, str]:
    known = {env_id: found for run in runs for env_id, found in run.machines.items()}
    return same_machines([env_id for run in runs for env_id in _environments(run)], known)


def _other_machines(base: Run, new: Run, names: Mapping[str, str]) -> list[str]:
    """Say in what the machines of points differ that both runs measured, each on another one."""
    places = [run.tried[["point_id", "env_id"]].astype(object) for run in (base, new)]
    pairs = places[0].merge(places[1], on="point_id", suffixes=("", "_new")).dropna()
    alike = pairs.loc[pairs["env_id"].map(names) == pairs["env_id_new"].map(names), "point_id"]
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
