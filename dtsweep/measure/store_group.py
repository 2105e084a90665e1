"""Agreement of ranks through a key-value store, where they may have no process group."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from torch.distributed.distributed_c10d import Store

_VERDICT, _GAVE_UP = "verdict", "gave up"


class GaveUpError(RuntimeError):
    """Another rank can't go on; its reason is the message."""


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

    def wait_up_to(self, seconds: float) -> None:
        """Wait no longer than this for another rank from now on."""
        self._timeout = timedelta(seconds=seconds)

    def gathered(self, value: Any) -> list[Any]:
        """The values of all ranks in their order; each is JSON.

        Raises:
            GaveUpError: a rank did.
            RuntimeError: a rank gave none in time.
        """
        if self.store is None:
            return [value]
        self._calls += 1
        keys = [f"{self._calls}/{rank}" for rank in range(self.workers)]
        self.store.set(keys[self.rank], json.dumps([value]))
        self.store.wait(keys, self._timeout)
        return [_read(self.store, key) for key in keys]

    def decided(self, value: Any, judge: Callable[[list[Any]], Any]) -> Any:
        """Return the decision of rank 0 by the values of all ranks; both are JSON.

        Large values travel to rank 0 alone, and do not stay in the store.

        Args:
            value: of this rank.
            judge: decides; called on rank 0.

        Raises:
            GaveUpError: a rank did.
            RuntimeError: a rank gave none in time.
        """
        if self.store is None:
            return judge([value])
        self._calls += 1
        verdict = f"{self._calls}/{_VERDICT}"
        if self.rank:
            self.store.set(f"{self._calls}/{self.rank}", json.dumps([value]))
            self.store.wait([verdict], self._timeout)
            return _read(self.store, verdict)
        keys = [f"{self._calls}/{rank}" for rank in range(1, self.workers)]
        try:
            self.store.wait(keys, self._timeout)
            decision = judge([value, *(_read(self.store, key) for key in keys)])
        except Exception as error:
            self.store.set(verdict, json.dumps({_GAVE_UP: str(error)}))
            raise
        self.store.set(verdict, json.dumps([decision]))
        for key in keys:
            self.store.delete_key(key)
        return decision

    def give_up(self, reason: str) -> None:
        """Let the others not wait for this rank: their next call raises `GaveUpError`.

        Args:
            reason: in words.
        """
        if self.store is None:
            return
        self._calls += 1
        for name in (self.rank, _VERDICT)[: 1 if self.rank else 2]:
            self.store.set(f"{self._calls}/{name}", json.dumps({_GAVE_UP: reason}))

    def largest(self, *values: float) -> list[float]:
        """The largest of each value over all ranks."""
        of_ranks: Sequence[Sequence[float]] = self.gathered([float(value) for value in values])
        return [max(column) for column in zip(*of_ranks, strict=True)]

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        self.gathered(None)


def _read(store: Store, key: str) -> Any:
    """A value of the store.

    Raises:
        GaveUpError: its rank gave up instead.
    """
    written = json.loads(store.get(key))
    if isinstance(written, dict):
        raise GaveUpError(written[_GAVE_UP])
    (value,) = written
    return value
