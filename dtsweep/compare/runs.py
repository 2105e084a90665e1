"""Runs from results or from a history, and their differences in machine, software and source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dtsweep.analysis.canaries import significant_drift
from dtsweep.analysis.launches import without_canaries
from dtsweep.analysis.load import load
from dtsweep.analysis.study import Study
from dtsweep.analysis.superseded import older_source
from dtsweep.compare.history import Entry, entry_of
from dtsweep.compare.machines import (
    Machines,
    machine_changes,
    machines_of,
    same_machines,
    software_changes,
)
from dtsweep.errors import SweepError
from dtsweep.results.statuses import FINAL
from dtsweep.results.store import ORDER, Results, frame_of

if TYPE_CHECKING:
    import pandas as pd

BROKEN = (FINAL - {"ok"}) | {"hang", "rank_died", "oom_host", "launch_failed"}
"""Statuses of a point that no longer runs.

Other statuses mean that it was not tried, or that the fault was not its own.
"""


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
    def study(self) -> Study:
        """The tables of the run, each prepared once."""
        return Study(self.frame)

    @property
    def launches(self) -> pd.DataFrame:
        """Rows of `measured`."""
        return self.study.trials

    @cached_property
    def tried(self) -> pd.DataFrame:
        """Trials that were measured, and those of points that broke."""
        is_measured = self.trials["attempt_id"].isin(self.launches["attempt_id"])
        return self.trials[is_measured | self.trials["status"].isin(BROKEN)]

    @cached_property
    def drift(self) -> float | None:
        """Of the machine, as `significant_drift` says."""
        return significant_drift(self.study.canaries)


def load_run(results: str | Path) -> Run:
    """Read results as one run; errors as `load` has them."""
    store = Results(results)
    frame = load(store, canaries=True)
    attempts = frame.loc[frame["status"].isin({"ok", *BROKEN}), "attempt_id"]
    ranks = frame_of(store.table("ranks", attempts=attempts.tolist()))
    return Run(name=str(store), frame=frame, machines=machines_of(frame, ranks))


def run_of(entry: Entry) -> Run:
    """Make a run of an entry of a history."""
    frame = frame_of(entry.trials).sort_values(ORDER, kind="stable", ignore_index=True)
    return Run(name=entry.run, frame=frame, machines=machines_of(frame, frame_of(entry.ranks)))


def entry_for(results: str | Path, run: Run, *, is_start: bool) -> Entry:
    """Make the entry of a run that `load_run` read from `results`.

    The entry has the trials and canaries that were measured.

    Raises:
        SweepError: there are none.
    """
    if run.launches.empty:
        raise SweepError(nothing_in(run))
    attempts = run.frame.loc[run.frame["status"] == "ok", "attempt_id"]
    return entry_of(results, attempts.tolist(), is_start=is_start)


def nothing_in(run: Run) -> str:
    """Say that a run has nothing to compare."""
    return f"no trial of {run.name} ended ok, so there is nothing to compare"


def of_machine(base: Sequence[Run], new: Run) -> list[Run]:
    """Select the runs that share a machine with the new one.

    All are selected if the new one failed before it stored its machine.
    """
    names = names_of_machines([*base, new])
    machines = {names[env_id] for env_id in _environments(new)}
    if not machines:
        return list(base)
    return [run for run in base if machines & {names[env_id] for env_id in _environments(run)}]


def _environments(run: Run) -> list[str]:
    return list(run.tried["env_id"].dropna().unique())


def names_of_machines(runs: Sequence[Run]) -> dict[str, str]:
    """Name the machine of each `env_id`, as `same_machines` does."""
    machines = {env_id: ranks for run in runs for env_id, ranks in run.machines.items()}
    return same_machines([env_id for run in runs for env_id in _environments(run)], machines)


def other_machines(base: Run, new: Run, names: Mapping[str, str]) -> list[str]:
    """Say how the machines differ for points that each run measured on another one."""
    places = [run.tried[["point_id", "env_id"]].astype(object) for run in (base, new)]
    pairs = places[0].merge(places[1], on="point_id", suffixes=("", "_new")).dropna()
    is_equal = pairs["env_id"].map(names) == pairs["env_id_new"].map(names)
    differ = pairs[~pairs["point_id"].isin(pairs.loc[is_equal, "point_id"])]
    changes = [
        change
        for then, now in differ[["env_id", "env_id_new"]].drop_duplicates().to_numpy()
        for change in machine_changes(base.machines.get(then), new.machines.get(now))
    ]
    return list(dict.fromkeys(changes))


def other_software(base: Run, new: Run) -> list[str]:
    """Say how the software differs."""
    changes = [
        change
        for then in _environments(base)
        for now in _environments(new)
        for change in software_changes(base.machines.get(then), new.machines.get(now))
    ]
    return list(dict.fromkeys(changes))


def other_source(base: Run, new: Run) -> list[str]:
    """Say how the workload's source differs in the earlier run."""
    import pandas as pd

    columns = ["workload", "workload_digest", "sources", "started_at", "role", "status"]
    fields = [
        name
        for name in new.trials.columns
        if name.startswith("workload_") and name != "workload_digest"
    ]
    runs = [
        run.launches.reindex(columns=[*columns, *fields]).assign(side=side)
        for side, run in enumerate((base, new))
    ]
    rows = pd.concat([run.astype(object) for run in runs], ignore_index=True)
    # The new run counts as the newer one, whenever the two were measured.
    rows["started_at"] = rows["side"]
    changes = older_source(rows)[rows["side"] == 0].dropna()
    return list(dict.fromkeys(changes))
