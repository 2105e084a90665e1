"""Machines that runs were measured on, and the software that a comparison may be about."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

Machines = Sequence[Mapping[str, Any]]
"""Each kind of machine that one environment has, as its ranks describe it."""

SOFTWARE = (
    *(f"{name}_version" for name in ("dtsweep", "torch", "ray", "python", "numpy")),
    *("packages", "torch_commit", "blas", "onednn", "parallel", "cuda", "cudnn", "nccl", "driver"),
    *("system", "image_digest", "environment"),
)
"""Keys of a rank's `machine` that can change on one and the same machine.

A comparison reports such changes and goes on. All other keys are the machine: devices with their
settings, processors, memory, network, container, threads.
"""

_SHOWN = 60


def machines_of(trials: pd.DataFrame, ranks: pd.DataFrame) -> dict[str, Machines]:
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
    machines: dict[str, Machines] = {}
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


def machine_changes(then: Machines | None, now: Machines | None) -> list[str]:
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


def software_changes(then: Machines | None, now: Machines | None) -> list[str]:
    """Say in what the software of two environments differs.

    >>> then = [{"cpus": 2, "torch_version": "2.13"}]
    >>> software_changes(then, [{"cpus": 4, "torch_version": "2.14"}])
    ['torch 2.13 → 2.14']
    """
    if len(then or ()) != len(now or ()):
        return []
    return _changes(then or (), now or (), is_software=True)


def _changes(then: Machines, now: Machines, *, is_software: bool) -> list[str]:
    changes = []
    for old, new in zip(then, now, strict=True):
        shared = [name for name in old if name in new and (name in SOFTWARE) == is_software]
        changes += [
            f"{name.removesuffix('_version')} {_text(old[name])} → {_text(new[name])}"
            for name in shared
            if old[name] != new[name]
        ]
    return list(dict.fromkeys(changes))


def _text(value: Any) -> str:
    if isinstance(value, str):
        text = value
    else:
        text = json.dumps(value)
    if len(text) <= _SHOWN:
        return text
    return f"{text[:_SHOWN]}…"


def same_machines(environments: Iterable[str], machines: Mapping[str, Machines]) -> dict[str, str]:
    """Name for each environment the first one that is the same machine, whatever its software.

    Args:
        environments: values of `env_id`, in the order in which they are preferred.
        machines: by `env_id`, as `machines_of` gives them.
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
