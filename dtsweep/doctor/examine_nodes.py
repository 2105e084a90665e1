"""Examination of all nodes at once, each GPU of a node in a process of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ray

from dtsweep.cluster.visit import task_answers
from dtsweep.doctor.examine import Row, examine
from dtsweep.session.node_choice import Node
from dtsweep.session.nodes import pinned_to

ANSWER_TIMEOUT_S = 120.0
"""Time within which a node has to answer, with the start of processes and of torch."""


class _Examiner:
    """An actor that holds one device of a node, so that no other examines the same one."""

    def examine(self, with_gpu: bool) -> Row:
        """Examine the device; see `examine`. A GPU that NVML doesn't number has Ray's id."""
        row = examine(with_gpu)
        for gpu in row["gpus"]:
            if gpu["gpu"] is None:
                (gpu["gpu"],) = ray.get_runtime_context().get_accelerator_ids()["GPU"]
        return row


def examine_nodes(nodes: Sequence[Node], *, examiner: type = _Examiner) -> list[Row]:
    """Examine all GPUs of all nodes at once, and one device of a node without GPUs.

    Returns:
        A row per node, as `node_row` gives it, with its `node_id`.
    """
    actors = {
        f"{node.node_id}/{index}": rank_on(node, examiner, with_gpu=gpus_of(node) > 0)
        for node in nodes
        for index in range(max(1, gpus_of(node)))
    }
    has_gpu = {node.node_id: gpus_of(node) > 0 for node in nodes}
    tasks = {
        name: actor.examine.remote(has_gpu[name.partition("/")[0]])
        for name, actor in actors.items()
    }
    answers, reasons = task_answers(tasks, timeout_s=ANSWER_TIMEOUT_S, of_actors=True)
    for actor in actors.values():
        ray.kill(actor)
    rows = []
    for node in nodes:
        names = [name for name in tasks if name.startswith(f"{node.node_id}/")]
        row = node_row(
            [answers[name] for name in names if name in answers],
            reasons=[reasons[name] for name in names if name in reasons],
        )
        rows.append({"node_id": node.node_id, "node": node.node_id[:8], **row})
    return rows


def rank_on(node: Node, actor: type, *, with_gpu: bool) -> Any:
    """Start an actor on a node with the CPUs of a rank, and with a GPU."""
    return (
        ray.remote(actor)
        .options(
            num_cpus=_cpus_of_rank(node),
            num_gpus=int(with_gpu),
            scheduling_strategy=pinned_to(node.node_id),
        )
        .remote()
    )


def gpus_of(node: Node) -> int:
    """Number of whole GPUs that Ray has on a node."""
    return int(node.resources.get("GPU", 0))


def _cpus_of_rank(node: Node) -> float:
    """CPUs of a rank where each GPU of the node has one: one, or less where there are fewer.

    >>> _cpus_of_rank(Node(node_id="a", resources={"CPU": 3, "GPU": 8}))
    0.375
    """
    cpus = node.resources.get("CPU", 0)
    # Ray counts in ten-thousandths.
    return min(1, math.floor(cpus / max(1, gpus_of(node)) * 10_000) / 10_000)


def node_row(rows: Sequence[Row], *, reasons: Sequence[str] = ()) -> Row:
    """Row of a node, from those of its devices.

    Returns:
        The row of the first device, with the median of all devices of its model in `rates`;
        `gpus`, all of them; `unexamined`, a line if some were not examined; `error` alone where
        none was.
    """
    if not rows:
        return {"error": reasons[0]}
    unexamined = []
    if reasons:
        count = len(rows) + len(reasons)
        unexamined.append(f"{len(reasons)} of {count} GPUs were not examined: {reasons[0]}")
    gpus = [gpu for row in rows for gpu in row["gpus"]]
    alike = [row for row in rows if row["device"] == rows[0]["device"]]
    nvml = [row["nvml"] for row in rows if row["nvml"] is not None]
    return {
        **rows[0],
        "misses_gpu": any(row["misses_gpu"] for row in rows),
        "nvml": all(nvml) if nvml else None,
        "rates": {name: _median(alike, name) for name in rows[0]["rates"]},
        "gpus": sorted(gpus, key=lambda gpu: str(gpu["gpu"]).zfill(4)),
        "unexamined": unexamined,
    }


def _median(rows: Sequence[Row], precision: str) -> Row:
    """Rate of the median device; the lower one of two."""
    speeds: list[Row] = [row["rates"][precision] for row in rows if precision in row["rates"]]
    speeds.sort(key=lambda speed: speed["measured_flops_per_s"])
    return speeds[(len(speeds) - 1) // 2]
