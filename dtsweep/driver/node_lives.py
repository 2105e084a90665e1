"""Lives of the nodes of a run: from when until when each was up, and its type."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class NodeLife:
    """Start, end and type of a node, in seconds since the epoch by the clock of its head."""

    node_id: str
    node_type: str
    began: float
    ended: float | None = None
    """None while it is up."""

    room: int = 1
    """Number of workers that it can hold; 0 for a head without room for one."""

    @property
    def holds_workers(self) -> bool:
        """True if it can hold a worker."""
        return self.room > 0

    def within(self, began: float, ended: float) -> tuple[float, float]:
        """Part of it between two times; both ends are equal where there is none.

        >>> NodeLife(node_id="a", node_type="cpu", began=3.0, ended=None).within(1.0, 6.0)
        (3.0, 6.0)
        """
        first = max(self.began, began)
        last = ended
        if self.ended is not None:
            last = min(self.ended, ended)
        return first, max(first, last)


def life_of_this_process(began: float) -> Callable[[], list[NodeLife]]:
    """Make the function that gives this machine as the only node, for a run without Ray."""
    life = NodeLife(node_id=socket.gethostname(), node_type="this-machine", began=began)
    return lambda: [life]
