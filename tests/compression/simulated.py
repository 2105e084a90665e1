"""Workers as threads of this process, which bring tensors together in its memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

from dtsweep.compression.exchange import Wait

LONGEST_S = 20
"""Who waits longer for the others has left step with them."""

Result = TypeVar("Result")


class Simulated:
    """The collectives of one rank."""

    def __init__(
        self, rank: int, ranks: int, slots: list[Tensor], barrier: threading.Barrier
    ) -> None:
        self.rank, self.ranks, self._slots, self._barrier = rank, ranks, slots, barrier
        self.sent: list[tuple[str, int]] = []

    def all_reduce(self, values: Tensor) -> Wait:
        rows = self._everyones("all_reduce", values)
        values.copy_(torch.stack(rows).sum(dim=0))
        return lambda: values

    def all_gather(self, payload: Tensor) -> Wait:
        rows = torch.stack(self._everyones("all_gather", payload))
        return lambda: rows

    def all_to_all(self, payloads: Tensor) -> Wait:
        rows = torch.stack([given[self.rank] for given in self._everyones("all_to_all", payloads)])
        return lambda: rows

    def _everyones(self, kind: str, given: Tensor) -> list[Tensor]:
        self.sent.append((kind, given.nbytes))
        self._slots[self.rank] = given.clone()
        self._barrier.wait(LONGEST_S)
        rows = list(self._slots)
        self._barrier.wait(LONGEST_S)
        return rows


def on_ranks(ranks: int, work: Callable[[Simulated], Result]) -> list[Result]:
    """Do the same on as many workers, all at once; by rank what came of it."""
    slots, barrier = [torch.empty(0)] * ranks, threading.Barrier(ranks)
    with ThreadPoolExecutor(ranks) as pool:
        return list(
            pool.map(work, [Simulated(rank, ranks, slots, barrier) for rank in range(ranks)])
        )
