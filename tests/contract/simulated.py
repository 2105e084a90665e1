"""Workers as threads of this process, which bring tensors together in its memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from dtsweep.compression.exchange import Wait

LONGEST_S = 60
"""A worker that waits longer for the others is out of step with them."""

Result = TypeVar("Result")


@dataclass(eq=False)
class Simulated:
    """The collectives of one rank."""

    rank: int
    ranks: int
    slots: list[Tensor]
    """What each brings."""
    barrier: threading.Barrier
    sent: list[tuple[str, int]] = field(default_factory=list)
    """Kinds of its collectives, and their bytes."""

    def all_reduce(self, values: Tensor) -> Wait:
        """Add values up, in place."""
        rows = self._everyones("all_reduce", values)
        values.copy_(torch.stack(rows).sum(dim=0))
        return lambda: values

    def all_gather(self, payload: Tensor) -> Wait:
        """Bring every payload everywhere."""
        rows = torch.stack(self._everyones("all_gather", payload))
        return lambda: rows

    def all_to_all(self, payloads: Tensor) -> Wait:
        """Bring row i of all payloads to rank i."""
        rows = torch.stack([given[self.rank] for given in self._everyones("all_to_all", payloads)])
        return lambda: rows

    def _everyones(self, kind: str, given: Tensor) -> list[Tensor]:
        self.sent.append((kind, given.nbytes))
        self.slots[self.rank] = given.clone()
        self.barrier.wait(LONGEST_S)
        rows = list(self.slots)
        self.barrier.wait(LONGEST_S)
        return rows


def on_ranks(ranks: int, work: Callable[[Simulated], Result]) -> list[Result]:
    """Run a function on as many workers, all at once; its results by rank."""
    slots, barrier = [torch.empty(0)] * ranks, threading.Barrier(ranks)
    with ThreadPoolExecutor(ranks) as pool:
        workers = [Simulated(rank, ranks, slots, barrier) for rank in range(ranks)]
        return list(pool.map(work, workers))
