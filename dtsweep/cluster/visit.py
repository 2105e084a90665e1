"""Tasks on all nodes in parallel, with answers in bounded time, and their versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray

from dtsweep.cluster.capacity import Cluster
from dtsweep.errors import SweepError, error_line
from dtsweep.provenance.versions import all_versions, mismatches
from dtsweep.session.node_choice import Node
from dtsweep.session.nodes import pinned_to

_VERSIONS_WITHIN_S = 20.0
"""Time limit for nodes to report their versions: a process starts and code is shipped."""


def sent_to(node_id: str, function: Callable[..., Any], *arguments: Any, **resources: Any) -> Any:
    """Start a function as a task on a node, without CPUs by default; its answer comes later."""
    options = {"num_cpus": 0, **resources}
    task = ray.remote(function).options(
        **options, max_retries=0, scheduling_strategy=pinned_to(node_id)
    )
    return task.remote(*arguments)


def task_answers(
    tasks: Mapping[str, Any], *, timeout_s: float, of_actors: bool = False
) -> tuple[dict[str, Any], dict[str, str]]:
    """Wait for tasks, which then end.

    Args:
        tasks: by node.
        timeout_s: for all of them together.
        of_actors: whether they are methods of actors; Ray ends none by force, so their owner
            does.

    Returns:
        Answers by node; and why there is none, by node.
    """
    nodes = {task: node for node, task in tasks.items()}
    if nodes:
        done, late = ray.wait([*nodes], num_returns=len(nodes), timeout=timeout_s)
    else:
        done, late = ([], [])
    answers, reasons = {}, {}
    for task in done:
        try:
            answers[nodes[task]] = ray.get(task)
        except ray.exceptions.RayError as error:
            cause = error_line(getattr(error, "cause", None) or error)
            reasons[nodes[task]] = f"{cause}; see that dtsweep and torch run there"
    for task in late:
        ray.cancel(task, force=not of_actors)
        reasons[nodes[task]] = (
            f"no answer in {timeout_s:.0f} s; wait for the jobs that hold it (ray status), or "
            "restart it"
        )
    return answers, reasons


def for_ranks(nodes: Sequence[Node]) -> list[Node]:
    """Those of a cluster's nodes on which ranks can be."""
    return [node for node in nodes if node.resources.get("CPU") or node.resources.get("GPU")]


def refuse_other_versions(cluster: Cluster, *, tell: Callable[[str], None]) -> None:
    """See that all nodes have the driver's versions, at the cost of a task on each and no launch.

    A node that does not answer is not a reason to refuse: its ranks give their versions when they
    come up.

    Raises:
        SweepError: a node has another release of a package than this process.
    """
    tasks = {
        node.node_id: sent_to(node.node_id, _tell_versions) for node in for_ranks(cluster.nodes)
    }
    answers, reasons = task_answers(tasks, timeout_s=_VERSIONS_WITHIN_S)
    for node_id, reason in reasons.items():
        tell(f"node {node_id[:8]} did not tell its versions: {reason}")
    driver_versions = all_versions()
    problems = [
        f"{name}: {problem}"
        for name, node_versions in answers.values()
        for problem in mismatches(node_versions, driver_versions)
    ]
    if problems:
        suffix = ""
        if len(problems) > 1:
            suffix = f" (and {len(problems) - 1} more, which dtsweep doctor names)"
        raise SweepError(f"nothing was started: {problems[0]}{suffix}")


def _tell_versions() -> tuple[str, dict[str, str]]:
    """Run on a node: its name and its versions."""
    import socket

    return socket.gethostname(), all_versions()
