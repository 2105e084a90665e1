"""Diagnosis of a cluster: examines all nodes at once and judges them, before money is spent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ray

from dtsweep.doctor.examine import Row, examine
from dtsweep.doctor.problems import find_problems
from dtsweep.driver.cluster import Node
from dtsweep.driver.connect import connected
from dtsweep.errors import error_line
from dtsweep.provenance.versions import slow_import, versions
from dtsweep.session.nodes import pinned_to

ANSWER_TIMEOUT_S = 120.0
"""How long a node may take, the start of a process and of torch included."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Examined nodes and their problems."""

    nodes: Sequence[Row]
    """One row per node that has CPUs or GPUs, by name."""
    problems: Sequence[str]
    """One line each, with the next step."""


def diagnose(address: str | None, *, tell: Callable[[str], None]) -> Diagnosis:
    """Connect as a run does and examine all nodes at once.

    Args:
        address: `local`, `auto`, HOST:PORT or None.
        tell: takes lines about the progress.

    Raises:
        SweepError: the address names no running Ray.
    """
    with connected(address, folder=None) as cluster:
        tell(f"using {cluster.described()}; trying matrix products on every node")
        rows = _visit([node for node in cluster.nodes if node.resources.get("CPU") or node.resources.get("GPU")])
    problems = [*filter(None, [slow_import()]), *find_problems(rows, here=versions())]
    return Diagnosis(nodes=rows, problems=problems)


def _visit(nodes: Sequence[Node]) -> list[Row]:
    tasks = {}
    for node in nodes:
        with_gpu = node.resources.get("GPU", 0) >= 1
        task = ray.remote(examine).options(
            num_cpus=min(1, node.resources.get("CPU", 0)),
            num_gpus=int(with_gpu),
            max_retries=0,
            scheduling_strategy=pinned_to(node.node_id),
        )
        tasks[task.remote(with_gpu=with_gpu)] = node.node_id
    done, late = ray.wait(list(tasks), num_returns=len(tasks), timeout=ANSWER_TIMEOUT_S) if tasks else ([], [])
    rows = [_collect(task, tasks[task]) for task in done]
    for task in late:
        ray.cancel(task, force=True)
        message = f"no answer in {ANSWER_TIMEOUT_S:.0f} s; wait for the jobs that hold it (ray status), or restart it"
        rows.append({"node_id": tasks[task], "node": tasks[task][:8], "error": message})
    return sorted(rows, key=lambda row: (row["node"], row["node_id"]))


def _collect(task: Any, node_id: str) -> Row:
    try:
        return {"node_id": node_id, **ray.get(task)}
    except ray.exceptions.RayError as error:
        message = error_line(getattr(error, "cause", None) or error)
        return {"node_id": node_id, "node": node_id[:8], "error": f"{message}; see that dtsweep and torch run there"}
