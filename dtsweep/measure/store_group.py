"""Agreement of ranks through a key-value store, where they may have no process group."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from torch.distributed.distributed_c10d import Store


class StoreGroup:
    """Ranks that exchange small values through a store; all ranks make the same calls in order.

    A training loop of a user may make, use and destroy process groups as it likes. Nothing here is
    a collective of such a group.
    """

    def __init__(
        self, store: Store | None, *, rank: int, workers: int, timeout_s: float = 600.0
    ) -> None:
        """Take part.

        Args:
            store: with keys of this group alone; None for one rank.
            rank: of this process.
            workers: how many ranks there are.
            timeout_s: how long a rank waits for another, in seconds.
        """
        self.store = store
        self.rank = rank
        self.workers = workers
        self._timeout = timedelta(seconds=timeout_s)
        self._calls = 0

    def gathered(self, value: Any) -> list[Any]:
        """The values of all ranks in their order; each is JSON.

        Raises:
            RuntimeError: a rank gave none in time.
        """
        if self.store is None:
            return [value]
        self._calls += 1
        keys = [f"{self._calls}/{rank}" for rank in range(self.workers)]
        self.store.set(keys[self.rank], json.dumps(value))
        self.store.wait(keys, self._timeout)
        return [json.loads(self.store.get(key)) for key in keys]

    def largest(self, *values: float) -> list[float]:
        """The largest of each value over all ranks."""
        of_ranks: Sequence[Sequence[float]] = self.gathered([float(value) for value in values])
        return [max(column) for column in zip(*of_ranks, strict=True)]

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        self.gathered(None)
