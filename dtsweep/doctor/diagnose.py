"""Diagnosis of a cluster: examines all nodes at once and judges them, before money is spent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import ray

from dtsweep.cluster.connect import connected
from dtsweep.cluster.visit import for_ranks, task_answers
from dtsweep.doctor.examine import Row
from dtsweep.doctor.examine_nodes import ANSWER_TIMEOUT_S, examine_nodes
from dtsweep.doctor.host_problems import find_host_problems
from dtsweep.doctor.link_tests import measure_links
from dtsweep.doctor.look_around import Host, ask_clock
from dtsweep.doctor.problems import find_problems
from dtsweep.errors import StorageError, error_line
from dtsweep.provenance.versions import all_versions
from dtsweep.results.storage import Storage
from dtsweep.session.node_choice import Node
from dtsweep.session.nodes import pinned_to


@dataclass(frozen=True, kw_only=True)
class _NodesDiagnosis:
    """Examined nodes and their problems."""

    nodes: Sequence[Row]
    """One row per node that has CPUs or GPUs, by name."""
    hosts: Sequence[Row]
    """One row per node of what its host has left, by name."""
    links: Sequence[Row]
    """One row per group of ranks that all-reduced, with the times by size."""
    problems: Sequence[str]
    """One line each, with the next step."""


def diagnose(
    address: str | None, *, tell: Callable[[str], None], results: str | None = None
) -> _NodesDiagnosis:
    """Connect as a run does and examine all nodes at once, then the links between them.

    Args:
        address: `local`, `auto`, HOST:PORT or None.
        tell: takes lines about the progress.
        results: a place where results are to lie: tried.

    Raises:
        SweepError: the address names no running Ray, or the place is none of results.
    """
    place = []
    if results is not None:
        tell("listing and writing a file where results are to lie")
        try:
            storage = Storage(results)
            storage.reach()
            storage.try_writing("probe")
        except StorageError as error:
            place = [f"results: {error}"]
    with connected(address, folder=None) as cluster:
        usable = for_ranks(cluster.nodes)
        if not usable and cluster.autoscaler is not None:
            tell("no node for ranks is up: those that the autoscaler adds are not looked at")
        for note in cluster.notes:
            tell(note)
        tell(f"using {cluster.described()}; looking around on every node")
        hosts = _look_around(cluster.nodes)
        tell("trying matrix products on every node")
        nodes = _by_name(examine_nodes(usable))
        links, unmeasured = measure_links(usable, tell=tell)
    hosts, nodes = (_with_unique_names(rows, hosts) for rows in (hosts, nodes))
    links = [_named(link, nodes) for link in links]
    can_grow = cluster.autoscaler is not None
    judged = [
        *find_problems(nodes, driver_versions=all_versions(), can_grow=can_grow),
        *find_host_problems(hosts),
    ]
    # A node that gives no answer gives none to either question.
    problems = dict.fromkeys([*place, *judged, *unmeasured])
    return _NodesDiagnosis(nodes=nodes, hosts=hosts, links=links, problems=[*problems])


def _look_around(nodes: Sequence[Node]) -> list[Row]:
    """Look around on all nodes, then ask each for its time, one after the other.

    Clocks that are asked at once would wait for the driver.
    """
    driver = ray.get_runtime_context().get_node_id()
    actors = {
        node.node_id: ray.remote(num_cpus=0)(Host)
        .options(scheduling_strategy=pinned_to(node.node_id))
        .remote()
        for node in nodes
    }
    tasks = {name: host.look_around.remote() for name, host in actors.items()}
    answers, reasons = task_answers(tasks, timeout_s=ANSWER_TIMEOUT_S, of_actors=True)
    for name in answers:
        try:
            answers[name] |= ask_clock(partial(_now_of, actors[name]))
        except ray.exceptions.RayError as error:
            reasons[name] = f"{error_line(error)}; see that it stays up"
    for host in actors.values():
        ray.kill(host)
    rows = []
    for node in nodes:
        name = node.node_id
        identity = {"node_id": name, "node": name[:8]}
        if name in reasons:
            rows.append({**identity, "error": reasons[name]})
            continue
        known_to_ray = {
            "has_driver": name == driver,
            "has_ranks": bool(for_ranks([node])),
            "object_store_bytes": int(node.resources.get("object_store_memory", 0)),
        }
        rows.append({**identity, **known_to_ray, **answers[name]})
    return _by_name(rows)


def _now_of(host: Any) -> float:
    return float(ray.get(host.seconds.remote(), timeout=ANSWER_TIMEOUT_S))


def _by_name(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["node"], row["node_id"]))


def _with_unique_names(rows: Sequence[Row], hosts: Sequence[Row]) -> list[Row]:
    """Add the node's id to the name of a host that several nodes have."""
    count = Counter(row["node"] for row in hosts)
    shared = {row["node_id"] for row in hosts if count[row["node"]] > 1}
    named = []
    for row in rows:
        name = row["node"]
        if row["node_id"] in shared and "error" not in row:
            name = f"{name} {row['node_id'][:8]}"
        named.append({**row, "node": name})
    return named


def _named(link: Row, nodes: Sequence[Row]) -> Row:
    """Name the nodes and devices of a link."""
    by_id = {row["node_id"]: row for row in nodes}
    ends = [by_id[node_id] for node_id in dict.fromkeys(link["node_ids"]) if node_id in by_id]
    devices = {row["device"] for row in ends if "device" in row}
    return {
        **link,
        "backend": link["all_reduces"][0]["backend"],
        "nodes": ", ".join(row["node"] for row in ends),
        "device": ", ".join(sorted(devices)),
    }
