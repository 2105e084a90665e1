"""All-reduces by the size of the message: within a node, and between nodes."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import ray

from dtsweep.cluster.visit import task_answers
from dtsweep.doctor.examine import Row
from dtsweep.doctor.examine_nodes import gpus_of, rank_on
from dtsweep.errors import SweepError, error_line
from dtsweep.hardware.gpu_place import GpuPlace, pci_bus_id, shared_gpu
from dtsweep.session.node_choice import Node

SIZES = (*(8**power for power in range(1, 9)), 2**26)
"""Bytes of the messages: 8 B to 16 MiB, each 8 times the one before, and 64 MiB."""

GPU_SIZES = (2**28, 2**30)
"""Further sizes between GPUs, whose links 64 MiB don't fill."""

_LONGEST_S = 1.0
"""A size of `GPU_SIZES` that would take longer than this is left out, and those after it."""

_SECONDS_PER_SIZE = 0.2
"""Approximate duration of all-reduces of one size."""

MOST_TIMES = 2000

_TRIED_TIMES = 2
"""All-reduces of a size from whose time the number of repetitions follows."""

_GROUP_WITHIN_S = 90.0
"""Time limit of a group of ranks: its processes, torch, the group, all sizes."""


class _LinkRank:
    """An actor that is one rank of a group."""

    def gpu(self) -> GpuPlace | None:
        """Place of the GPU that torch can use here."""
        import torch

        if not torch.cuda.is_available():
            return None
        return GpuPlace(
            node=socket.gethostname(),
            node_id=ray.get_runtime_context().get_node_id(),
            pci_bus_id=pci_bus_id(torch.cuda.get_device_properties(0)),
        )

    def listen(self, ranks: int) -> tuple[str, int]:
        """Open the store at which all ranks meet; its host and port."""
        from torch.distributed import TCPStore  # type: ignore[attr-defined]  # it is not in __all__

        host = ray.util.get_node_ip_address()
        self._store = TCPStore(host, 0, ranks, is_master=True, wait_for_workers=False)
        return host, self._store.port

    def measure(self, rank: int, ranks: int, address: tuple[str, int], on_gpus: bool) -> list[Row]:
        """Time all-reduces of float32 sums with the other ranks; rows of `all_reduces`."""
        import torch
        from torch import distributed
        from torch.distributed import TCPStore  # type: ignore[attr-defined]  # it is not in __all__

        if on_gpus:
            device = torch.device("cuda", 0)
            backend = "nccl"
        else:
            device = torch.device("cpu")
            backend = "gloo"
        if rank == 0:
            store = self._store
        else:
            store = TCPStore(*address, ranks, is_master=False)
        distributed.init_process_group(
            backend,
            store=store,
            rank=rank,
            world_size=ranks,
            timeout=timedelta(seconds=_GROUP_WITHIN_S),
        )
        try:
            return [{"backend": backend, **row} for row in _timed_sizes(device)]
        finally:
            distributed.destroy_process_group()


def _timed_sizes(device: Any) -> list[Row]:
    """Time all-reduces of all sizes that this device can do in time."""
    rows = [_time_size(size, device) for size in SIZES]
    if device.type == "cuda":
        for size in GPU_SIZES:
            # All ranks have the same time, so all leave out the same sizes.
            if rows[-1]["time_s"] * size / rows[-1]["size_bytes"] > _LONGEST_S:
                break
            rows.append(_time_size(size, device))
    return rows


def _time_size(size: int, device: Any) -> Row:
    """Time all-reduces of one size: the mean over all ranks, as nccl-tests gives it."""
    import torch
    from torch import distributed

    from dtsweep.hardware.device import barrier, wait_for

    message = torch.zeros(size // 4, device=device)

    def run(times: int) -> float:
        barrier(device)
        began = time.perf_counter()
        for _ in range(times):
            distributed.all_reduce(message)
        wait_for(device)
        mean = torch.tensor(
            [(time.perf_counter() - began) / times], dtype=torch.float64, device=device
        )
        distributed.all_reduce(mean)
        return float(mean.item() / distributed.get_world_size())

    times, mean_s = time_repeated(run)
    return {"size_bytes": size, "count": size // 4, "times": times, "time_s": mean_s}


def time_repeated(run: Callable[[int], float]) -> tuple[int, float]:
    """Time an operation as often as it fits into `_SECONDS_PER_SIZE`.

    Args:
        run: runs the operation some times; the mean time in s, equal on all ranks, so that all go
            on as often.

    Returns:
        Number of repetitions, and their mean time in s.
    """
    # NCCL makes its connections in the first all-reduce of a kind.
    run(1)
    times = max(2, min(MOST_TIMES, int(_SECONDS_PER_SIZE / run(_TRIED_TIMES))))
    return times, run(times)


def with_bandwidths(row: Row, *, ranks: int) -> Row:
    """Add the bandwidths of nccl-tests, in bytes/s.

    `algbw` is bytes over time. `busbw` is what a link carries of an all-reduce, 2(n-1)/n of it.

    >>> with_bandwidths({"size_bytes": 1000, "time_s": 1e-6}, ranks=4)["busbw_bytes_per_s"]
    1500000000.0
    """
    algorithm = row["size_bytes"] / row["time_s"]
    bus = algorithm * 2 * (ranks - 1) / ranks
    return {**row, "algbw_bytes_per_s": algorithm, "busbw_bytes_per_s": bus}


def rank_groups(nodes: Sequence[Node], *, kind: str) -> list[tuple[Node, ...]]:
    """Choose the groups of ranks to measure, each as the nodes of its ranks.

    GPUs: all of each node that has several, and all of all nodes. CPUs: two ranks on the first node
    with room for them, and a rank on each of the first two nodes.
    """
    if kind == "GPU":
        each = [(node,) * gpus_of(node) for node in nodes if gpus_of(node)]
        on_gpus = [group for group in each if len(group) > 1]
        if len(each) > 1:
            on_gpus.append(tuple(node for group in each for node in group))
        return on_gpus
    rooms = [(node, node.resources.get("CPU", 0)) for node in nodes]
    groups: list[tuple[Node, ...]] = []
    roomy = [node for node, room in rooms if room >= 2]
    if roomy:
        groups.append((roomy[0], roomy[0]))
    able = [node for node, room in rooms if room >= 1]
    if len(able) > 1:
        groups.append((able[0], able[1]))
    return groups


def measure_links(
    nodes: Sequence[Node], *, tell: Callable[[str], None], link_rank: type = _LinkRank
) -> tuple[list[Row], list[str]]:
    """Measure the groups of `rank_groups`, one after the other.

    GPUs are used if two ranks can have one each.

    Returns:
        A row per group: `node_ids` of its ranks, `ranks`, `is_within`, `all_reduces` (see
        `with_bandwidths`). And why groups could not be measured.
    """
    kind = "GPU"
    groups = rank_groups(nodes, kind=kind)
    if not groups:
        kind = "CPU"
        groups = rank_groups(nodes, kind=kind)
    if not groups:
        tell("no link is timed: two ranks don't fit at once")
    rows, problems = [], []
    for group in groups:
        ids = [*dict.fromkeys(node.node_id for node in group)]
        where = f"{len(group)} ranks within node {ids[0][:8]}"
        if len(ids) > 1:
            where = f"{len(group)} ranks between nodes {', '.join(name[:8] for name in ids)}"
        tell(f"timing all-reduces of {where}")
        try:
            all_reduces = _measure_group(group, kind, link_rank)
        except (ray.exceptions.RayError, SweepError) as error:
            reason = str(error) if isinstance(error, SweepError) else error_line(error)
            problems.append(f"{where} can't all-reduce: {reason}")
            continue
        rows.append(
            {
                "node_ids": [node.node_id for node in group],
                "ranks": len(group),
                "is_within": len(ids) == 1,
                "all_reduces": all_reduces,
            }
        )
    return rows, problems


def _measure_group(group: Sequence[Node], kind: str, link_rank: type) -> list[Row]:
    """Time the all-reduces of a group.

    Raises:
        SweepError: two of its ranks have one GPU, or a rank failed.
    """
    ranks = [rank_on(node, link_rank, with_gpu=kind == "GPU") for node in group]
    try:
        # Ray hides no GPU from a rank that asked for none, and torch may be unable to use one that
        # it asked for.
        gpus = ray.get([handle.gpu.remote() for handle in ranks], timeout=_GROUP_WITHIN_S)
        on_gpus = kind == "GPU" and all(gpus)
        if on_gpus and (shared := shared_gpu(dict(enumerate(gpus)))):
            raise SweepError(shared)
        address = ray.get(ranks[0].listen.remote(len(ranks)), timeout=_GROUP_WITHIN_S)
        tasks = {
            str(rank): handle.measure.remote(rank, len(ranks), address, on_gpus)
            for rank, handle in enumerate(ranks)
        }
        answers, reasons = task_answers(tasks, timeout_s=_GROUP_WITHIN_S, of_actors=True)
        for reason in reasons.values():
            variable = "NCCL_SOCKET_IFNAME" if on_gpus else "GLOO_SOCKET_IFNAME"
            raise SweepError(f"{reason}, and which interface they take ({variable})")
        return [with_bandwidths(row, ranks=len(ranks)) for row in answers["0"]]
    finally:
        for handle in ranks:
            ray.kill(handle)
