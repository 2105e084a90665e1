"""All-reduces of two ranks by the size of the message: within a node, and between two."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import ray

from dtsweep.doctor.fit import alpha_beta
from dtsweep.driver.cluster import Node
from dtsweep.errors import error_line
from dtsweep.session.nodes import pinned_to

SIZES = (*(8**power for power in range(1, 9)), 2**26)
"""Bytes of the messages: 8 B to 16 MiB, each 8 times the one before, and 64 MiB."""

SECONDS_PER_SIZE = 0.2
"""Approximate duration of all-reduces of one size."""

MOST_TIMES = 2000
WARM_TIMES = 3

PAIR_WITHIN_S = 90.0
"""Time limit of a pair of ranks: its processes, torch, the group, all sizes."""

OTHER_WITHIN_S = 5.0
"""Time that the second rank of a pair may take after the first."""

Row = dict[str, Any]


class LinkRank:
    """An actor that is one of two ranks."""

    def has_gpu(self) -> bool:
        """True if torch can use a GPU here."""
        import torch

        return torch.cuda.is_available()

    def listen(self) -> tuple[str, int]:
        """Open the store at which both ranks meet; its host and port."""
        from torch.distributed import TCPStore  # type: ignore[attr-defined]  # it is not in __all__

        host = ray.util.get_node_ip_address()
        self._store = TCPStore(host, 0, 2, is_master=True, wait_for_workers=False)
        return host, self._store.port

    def measure(self, rank: int, host: str, port: int, *, on_gpus: bool) -> list[Row]:
        """Time all-reduces of float32 sums with the other rank; rows of `all_reduces`."""
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
            store = TCPStore(host, port, 2, is_master=False)
        distributed.init_process_group(
            backend, store=store, rank=rank, world_size=2, timeout=timedelta(seconds=PAIR_WITHIN_S)
        )
        try:
            return [{"backend": backend, **_time_size(size, device)} for size in SIZES]
        finally:
            distributed.destroy_process_group()


def _time_size(size: int, device: Any) -> Row:
    """Time all-reduces of one size: the mean over both ranks, as nccl-tests gives it."""
    import torch
    from torch import distributed

    message = torch.zeros(size // 4, device=device)

    def run(times: int) -> Any:
        distributed.barrier()
        began = time.perf_counter()
        for _ in range(times):
            distributed.all_reduce(message)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        mean = torch.tensor(
            [(time.perf_counter() - began) / times], dtype=torch.float64, device=device
        )
        distributed.all_reduce(mean)
        return mean.item() / 2

    # Both ranks have the same number from the sum, so both go on as often.
    times = max(2, min(MOST_TIMES, int(SECONDS_PER_SIZE / run(WARM_TIMES))))
    return {"size_bytes": size, "count": size // 4, "times": times, "time_s": run(times)}


def with_bandwidths(row: Row, *, ranks: int = 2) -> Row:
    """Add the bandwidths of nccl-tests, in bytes/s.

    `algbw` is bytes over time. `busbw` is what a link carries of an all-reduce, 2(n-1)/n of it.

    >>> with_bandwidths({"size_bytes": 1000, "time_s": 1e-6}, ranks=4)["busbw_bytes_per_s"]
    1500000000.0
    """
    algorithm = row["size_bytes"] / row["time_s"]
    bus = algorithm * 2 * (ranks - 1) / ranks
    return {**row, "algbw_bytes_per_s": algorithm, "busbw_bytes_per_s": bus}


def pairs_of(nodes: Sequence[Node], *, kind: str) -> list[tuple[Node, Node]]:
    """Choose the pairs of nodes to measure; a pair may be one node twice.

    These are the first node with room for two ranks, and the first two nodes with room for one.

    Args:
        nodes: of the cluster.
        kind: `GPU` or `CPU`: what a rank takes one of.
    """
    rooms = [min(node.resources.get(kind, 0), node.resources.get("CPU", 0)) for node in nodes]
    inside = [(node, node) for node, room in zip(nodes, rooms, strict=True) if room >= 2]
    able = [node for node, room in zip(nodes, rooms, strict=True) if room >= 1]
    return [*inside[:1], *([(able[0], able[1])] if len(able) > 1 else [])]


def measure_links(
    nodes: Sequence[Node], *, tell: Callable[[str], None]
) -> tuple[list[Row], list[str]]:
    """Measure the pairs of `pairs_of`, one after the other.

    GPUs are used if two ranks can have one each.

    Returns:
        A row per pair: `node_ids`, `is_within`, `all_reduces` (see `with_bandwidths`), `latency_s`
        and `bandwidth_bytes_per_s` of `alpha_beta`. And why pairs could not be measured.
    """
    of_kind = {kind: pairs_of(nodes, kind=kind) for kind in ("GPU", "CPU")}
    kind = "CPU"
    if of_kind["GPU"]:
        kind = "GPU"
    if not of_kind[kind]:
        tell("no link is timed: two ranks don't fit at once")
    rows, problems = [], []
    for pair in of_kind[kind]:
        within = pair[0] is pair[1]
        tell(f"timing all-reduces {'within a node' if within else 'between two nodes'}")
        try:
            all_reduces = [
                with_bandwidths(row) for row in _measure_pair([node.node_id for node in pair], kind)
            ]
        except (ray.exceptions.RayError, TimeoutError) as error:
            where = "two ranks of one node"
            if not within:
                where = f"nodes {pair[0].node_id[:8]} and {pair[1].node_id[:8]}"
            reason = error_line(getattr(error, "cause", None) or error)
            variable = "GLOO_SOCKET_IFNAME"
            if kind == "GPU":
                variable = "NCCL_SOCKET_IFNAME"
            hint = (
                "see that nothing holds their resources, and which interface they take "
                f"({variable})"
            )
            problems.append(f"{where} could not all-reduce: {reason}; {hint}")
            continue
        latency, bandwidth = alpha_beta(
            [row["size_bytes"] for row in all_reduces], [row["time_s"] for row in all_reduces]
        )
        fitted = {"latency_s": latency, "bandwidth_bytes_per_s": bandwidth}
        rows.append(
            {
                "node_ids": [n.node_id for n in pair],
                "is_within": within,
                "all_reduces": all_reduces,
                **fitted,
            }
        )
    return rows, problems


def _measure_pair(node_ids: Sequence[str], kind: str) -> list[Row]:
    actor = ray.remote(LinkRank)
    resources = {"num_cpus": 1, "num_gpus": int(kind == "GPU"), "max_restarts": 0}
    ranks = [
        actor.options(**resources, scheduling_strategy=pinned_to(node)).remote()
        for node in node_ids
    ]
    try:
        # Ray hides no GPU from a rank that asked for none, and torch may be unable to use one that
        # it asked for.
        able = ray.get([handle.has_gpu.remote() for handle in ranks], timeout=PAIR_WITHIN_S)
        on_gpus = kind == "GPU" and all(able)
        host, port = ray.get(ranks[0].listen.remote(), timeout=PAIR_WITHIN_S)
        tasks = [
            handle.measure.remote(rank, host, port, on_gpus=on_gpus)
            for rank, handle in enumerate(ranks)
        ]
        return _rows_of(tasks)
    finally:
        for handle in ranks:
            ray.kill(handle)


def _rows_of(tasks: Sequence[Any]) -> list[Row]:
    """Return the rows that both ranks measured, or raise the error of one.

    Each rank is asked, since Ray prints errors that nobody asks for.
    """
    # Where one fails, the other may wait for it.
    ray.wait(tasks, timeout=PAIR_WITHIN_S)
    ended, late = ray.wait(tasks, num_returns=len(tasks), timeout=OTHER_WITHIN_S)
    rows: list[Row] = []
    errors = []
    for task in ended:
        try:
            rows = ray.get(task)
        except ray.exceptions.RayError as error:
            errors.append(error)
    if errors:
        raise errors[0]
    if late:
        raise TimeoutError(f"no answer in {PAIR_WITHIN_S:.0f} s")
    return rows
