"""`gossip`: every worker trains alone, and averages its parameters with its neighbours only."""

from __future__ import annotations

import torch
from torch import distributed, nn
from torch.distributed import P2POp

from dtsweep.compression.exchange import Mark
from dtsweep.sync.buckets import set_values, trained_by_type, values_of
from dtsweep.sync.groups import send_and_receive
from dtsweep.sync.local_steps import LocalStepsMode
from dtsweep.sync.mode import Job, MakeOptimizer


class Gossip(LocalStepsMode):
    """Update, then mix: x_i <- sum over j of w_ij (x_j - update of j), with equal weights w_ij.

    Messages are point to point; no worker waits for one that is not its neighbour.
    """

    def __init__(self, job: Job) -> None:
        """Take the trial as one rank sees it."""
        super().__init__(job)
        self._rounds = 0

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Start all workers from the same weights."""
        super().prepare(model, make_optimizer)
        self._by_type = trained_by_type(model)

    def combine(self, mark: Mark) -> None:
        """Average the parameters with the neighbours of this round."""
        to, sources = self._neighbours(self._rounds)
        self._rounds += 1
        if not to:
            mark("sync")
            return
        for parameters in self._by_type:
            values = values_of(parameters)
            received = [torch.empty_like(values) for _ in sources]
            sends = [P2POp(distributed.isend, values, rank) for rank in to]
            receives = [
                P2POp(distributed.irecv, buffer, rank)
                for buffer, rank in zip(received, sources, strict=True)
            ]
            send_and_receive([*sends, *receives])
            for buffer in received:
                values.add_(buffer)
            set_values(parameters, values.div_(1 + len(received)))
        mark("sync")

    def expected_bytes(self) -> float | None:
        """All parameters to each neighbour, every period."""
        to, _ = self._neighbours(0)
        whole_bytes = sum(p.nbytes for parameters in self._by_type for p in parameters)
        return len(to) * whole_bytes / self._job.point.period

    def _neighbours(self, turn: int) -> tuple[list[int], list[int]]:
        point = self._job.point
        return _neighbours(point.topology, rank=self._job.rank, ranks=point.workers, turn=turn)


def _neighbours(
    topology: str | None, *, rank: int, ranks: int, turn: int
) -> tuple[list[int], list[int]]:
    """Ranks that a worker sends to in a round, and ranks that it receives from.

    Args:
        topology: `ring`, or `exponential`: the one-peer exponential graph.
        rank: of the worker.
        ranks: number of workers.
        turn: number of the round, from 0.

    >>> _neighbours("ring", rank=0, ranks=4, turn=0)
    ([1, 3], [1, 3])
    >>> [_neighbours("exponential", rank=0, ranks=4, turn=turn) for turn in range(3)]
    [([1], [3]), ([2], [2]), ([1], [3])]
    """
    if ranks == 1:
        return [], []
    if topology == "ring":
        # Two workers are each other's only neighbour.
        both = sorted({(rank + 1) % ranks, (rank - 1) % ranks})
        return both, both
    # log2 of the number of workers, rounded up.
    turns = (ranks - 1).bit_length()
    hop = 2 ** (turn % turns)
    return [(rank + hop) % ranks], [(rank - hop) % ranks]
