"""Nodes of sessions that run at the same time on an autoscaling cluster: each node has one session.

Which nodes come for a request is known only once they are there, and two requests may get parts of
one node. So a slot claims the nodes that came, and asks again if another slot was faster.
"""

from __future__ import annotations

from collections.abc import Collection


class NodeClaims:
    """An actor without CPUs on the driver's node; it handles one call after the other."""

    def __init__(self) -> None:
        """Begin without claims."""
        self._nodes: dict[str, frozenset[str]] = {}

    def of_others(self, slot: str) -> list[str]:
        """Nodes that other slots have claimed.

        >>> claims = NodeClaims()
        >>> claims.claim("a", ["n1", "n2"]), claims.claim("b", ["n2", "n3"])
        ([], ['n2'])
        >>> claims.of_others("b"), claims.of_others("a")
        (['n1', 'n2'], [])
        """
        others = (nodes for name, nodes in self._nodes.items() if name != slot)
        return sorted(frozenset[str]().union(*others))

    def claim(self, slot: str, nodes: Collection[str]) -> list[str]:
        """Claim nodes for a slot, in place of those that it had.

        Returns:
            Those that other slots have. If there are any, nothing is claimed.
        """
        taken = sorted(set(nodes) & set(self.of_others(slot)))
        if not taken:
            self._nodes[slot] = frozenset(nodes)
        return taken

    def release(self, slot: str) -> None:
        """Give the nodes of a slot back."""
        self._nodes.pop(slot, None)
