"""Requests of a slot to an autoscaler, next to other slots; no Ray runs here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import ray

from dtsweep.session import request
from dtsweep.session.claims import NodeClaims
from dtsweep.session.node_choice import NodeChoice
from dtsweep.session.node_watch import NodeWatch
from dtsweep.session.request import NodeRequests
from dtsweep.sweep.point import World
from tests.session.test_slot import settings

NODES = [
    {"NodeID": name, "NodeManagerAddress": name, "Resources": {"CPU": 1.0}} for name in ("a", "b")
]


@dataclass(eq=False)
class Group:
    """A placement group of Ray, which is met at once."""

    node: str

    def wait(self, timeout_seconds: float) -> bool:
        return True


@dataclass
class Method:
    """Method of an actor, called in this process."""

    call: Callable[..., Any]

    async def _answer(self, arguments: Collection[Any]) -> Any:
        return self.call(*arguments)

    def remote(self, *arguments: Any) -> Awaitable[Any]:
        return self._answer(arguments)


@dataclass
class Claims:
    """Actor with the claims of slots."""

    claims: NodeClaims = field(default_factory=NodeClaims)

    def __getattr__(self, name: str) -> Method:
        return Method(getattr(self.claims, name))


class AnyNodes(NodeWatch):
    """Nodes of which none is left out."""

    async def choose(self, world: World, *, within_s: float) -> NodeChoice:
        return NodeChoice(leaving=[], failing=[])


def test_a_slot_that_claims_too_late_keeps_nothing_of_the_nodes_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[Group] = []
    claims = Claims()
    # Another slot claims node a after this one has asked which nodes are taken.
    came = iter("ab")

    def ask(*arguments: Any, **options: Any) -> Group:
        if not claims.claims.of_others("this"):
            claims.claims.claim("other", ["a"])
        kept = options["bundle_label_selector"]
        node = kept[0]["ray.io/node-id"] if options.get("strategy") is None else next(came)
        groups.append(Group(node))
        return groups[-1]

    monkeypatch.setattr(request, "placement_group", ask)
    monkeypatch.setattr(request, "remove_placement_group", groups.remove)
    monkeypatch.setattr(
        request, "placement_group_table", lambda group: {"bundles_to_node_id": {0: group.node}}
    )
    monkeypatch.setattr(ray, "nodes", lambda: NODES)
    monkeypatch.setattr(request, "_own_name", lambda: "this")
    of_slot = replace(settings(tmp_path), is_autoscaled=True, claims=claims)
    requests = NodeRequests(of_slot, AnyNodes(of_slot), say=pytest.fail)
    world = World(workers=1, placement="pack", environment=())
    nodes = asyncio.run(requests.come(world, None))
    assert nodes.places == {"b": 1}
    assert [group.node for group in groups] == ["b"]
    requests.let_go()
    assert groups == []
