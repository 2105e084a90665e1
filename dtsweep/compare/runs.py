"""Runs of results, and their differences in machine, software and source."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dtsweep.analysis.canaries import significant_drift
from dtsweep.analysis.launches import without_canaries
from dtsweep.analysis.load import older_source, trials_in
from dtsweep.analysis.study import Study
from dtsweep.results.frames import attempts_of, frame_of, trials_of
from dtsweep.results.statuses import FINAL
from dtsweep.results.store import Results

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_Machines = Sequence[Mapping[str, Any]]
"""Each kind of machine that one environment has, as its ranks describe it."""

_SOFTWARE = (
    *(f"{name}_version" for name in ("dtsweep", "torch", "ray", "python", "numpy")),
    "packages",
    "torch_commit",
    "blas",
    "onednn",
    "parallel",
    "cuda",
    "cudnn",
    "nccl",
    "driver",
    "system",
    "image_digest",
    "environment",
)
"""Keys of a rank's `machine` that can change on one and the same machine.

A comparison reports such changes and goes on. All other keys are the machine: devices with their
settings, processors, memory, network, container, threads.
"""

_SHOWN = 60

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
    machines: Mapping[str, _Machines]
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


def load_run(store: Results) -> Run:
    """Read results as one run; errors as `load` has them."""
    return _run_of(store, trials_in(store, canaries=True), name=str(store))


def load_runs(store: Results) -> list[Run]:
    """Read the runs of results, the oldest first; the last one also if it measured nothing.

    A row is of the newest run that had begun when its attempt did.

    Raises:
        SweepError: Nothing is stored there.
        StorageError: It can't be read.
    """
    attempts = attempts_of(store)
    records = [stored.record for stored in store.run_records()]
    names = [str(store), *(record.run_id for record in records)]
    numbers = _run_numbers(attempts, [record.started_at for record in records])
    runs = []
    for number in sorted(set(numbers)):
        rows = attempts.filter([other == number for other in numbers])
        run = _run_of(store, trials_of(rows, canaries=True), name=names[number])
        if len(run.tried):
            runs.append(run)
    return [run for run in runs[:-1] if len(run.launches)] + runs[-1:]


def _run_numbers(attempts: pa.Table, starts: Sequence[float]) -> list[int]:
    """Number of each attempt's run, from 1; 0 if it began before the first record of a run.

    An attempt without a start, such as a skipped trial, is of the run of the attempt before it.
    """
    numbers = []
    number = 0
    for began in attempts["started_at"].to_pylist():
        if began is not None:
            number = bisect_right(starts, began.timestamp())
        numbers.append(number)
    return numbers


def _run_of(store: Results, frame: pd.DataFrame, *, name: str) -> Run:
    attempts = frame.loc[frame["status"].isin({"ok", *BROKEN}), "attempt_id"]
    ranks = frame_of(store.table("ranks", attempts=attempts.tolist()))
    return Run(name=name, frame=frame, machines=_machines_of(frame, ranks))


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


def _machines_of(trials: pd.DataFrame, ranks: pd.DataFrame) -> dict[str, _Machines]:
    """Describe each environment of a run by the ranks of its newest trial that has any.

    A failed trial counts, too.

    Args:
        trials: the oldest first.
        ranks: rows of the table of ranks, of these trials.

    Returns:
        By `env_id`; environments whose ranks are gone, or described nothing, are left out.
    """
    described = ranks[ranks["machine"].notna()]
    described_trials = trials[
        trials["env_id"].notna() & trials["attempt_id"].isin(described["attempt_id"])
    ]
    newest = described_trials.drop_duplicates("env_id", keep="last")
    harnesses = newest.set_index("attempt_id")[["env_id", "harness"]]
    newest_ranks = described[described["attempt_id"].isin(harnesses.index)]
    machines: dict[str, _Machines] = {}
    for attempt, rows in newest_ranks.groupby("attempt_id"):
        env_id, harness = harnesses.loc[str(attempt)]
        # The driver's own process, with its other threads, is another machine than a worker's.
        where = "workers"
        if harness == "in_process":
            where = "in this process"
        kinds = {
            json.dumps(
                {"device": device, "threads": threads, "process": where, **json.loads(machine)},
                sort_keys=True,
            )
            for device, threads, machine in rows[["device", "threads", "machine"]]
            .astype(object)
            .to_numpy()
        }
        machines[str(env_id)] = [json.loads(kind) for kind in sorted(kinds)]
    return machines


def machine_changes(then: _Machines | None, now: _Machines | None) -> list[str]:
    """Say how the machines of two environments differ; empty if they are one machine.

    A key that one of them lacks is not a difference.

    >>> then = [{"cpus": 2, "smt": False, "torch_version": "2.13"}]
    >>> machine_changes(then, [{"cpus": 4, "torch_version": "2.14"}])
    ['cpus 2 → 4']
    """
    if then is None or now is None:
        return ["what they ran on is not stored, and their env_id differ"]
    if len(then) != len(now):
        return [f"{len(then)} → {len(now)} kinds of machines"]
    return _changes(then, now, is_software=False)


def software_changes(then: _Machines | None, now: _Machines | None) -> list[str]:
    """Say in what the software of two environments differs.

    >>> then = [{"cpus": 2, "torch_version": "2.13"}]
    >>> software_changes(then, [{"cpus": 4, "torch_version": "2.14"}])
    ['torch 2.13 → 2.14']
    """
    if len(then or ()) != len(now or ()):
        return []
    return _changes(then or (), now or (), is_software=True)


def _changes(then: _Machines, now: _Machines, *, is_software: bool) -> list[str]:
    changes = []
    for old, new in zip(then, now, strict=True):
        shared = [name for name in old if name in new and (name in _SOFTWARE) == is_software]
        for name in shared:
            changes += _changes_of(name.removesuffix("_version"), old[name], new[name])
    return list(dict.fromkeys(changes))


def _changes_of(name: str, then: Any, now: Any) -> list[str]:
    """Say how a fact differs, of a dict key by key.

    >>> _changes_of("gpu", {"nvlinks": 4, "ecc": True}, {"nvlinks": 4})
    ['gpu.ecc true → null']
    """
    if then == now:
        return []
    if not (isinstance(then, dict) and isinstance(now, dict)):
        return [f"{name} {_text(then)} → {_text(now)}"]
    return [
        change
        for key in sorted({**then, **now})
        for change in _changes_of(f"{name}.{key}", then.get(key), now.get(key))
    ]


def _text(value: Any) -> str:
    if isinstance(value, str):
        text = value
    else:
        text = json.dumps(value)
    if len(text) <= _SHOWN:
        return text
    return f"{text[:_SHOWN]}…"


def same_machines(environments: Iterable[str], machines: Mapping[str, _Machines]) -> dict[str, str]:
    """Name for each environment the first one that is the same machine, whatever its software.

    Args:
        environments: values of `env_id`, in the order in which they are preferred.
        machines: by `env_id`, as `_machines_of` gives them.
    """
    names: dict[str, str] = {}
    for env_id in environments:
        equal = (
            name
            for name in names.values()
            if not machine_changes(machines.get(name), machines.get(env_id))
        )
        names.setdefault(env_id, next(equal, env_id))
    return names
