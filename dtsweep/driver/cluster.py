"""What a Ray has: its nodes, what an autoscaler can add, and which worlds fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from dtsweep.session.node_choice import can_hold, room_for
from dtsweep.sweep.point import Point


@dataclass(frozen=True, kw_only=True)
class Node:
    """A machine of the cluster."""

    node_id: str
    resources: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The Ray that is used, as it was when the run began."""

    name: str
    """How it is named to the user."""

    is_private: bool
    """Whether it was started for this run and ends with it."""

    nodes: Sequence[Node]
    node_types: Sequence[Mapping[str, float]]
    """Resources of each node type that an autoscaler can add; empty without one."""

    def has_gpus(self) -> bool:
        """Whether a node, or one that can be added, has a GPU."""
        return any(kind.get("GPU", 0) for kind in (*(node.resources for node in self.nodes), *self.node_types))

    def described(self) -> str:
        """One line for the user: name, nodes, devices."""
        total = {kind: sum(node.resources.get(kind, 0) for node in self.nodes) for kind in ("CPU", "GPU")}
        size = ", ".join(f"{int(count)} {kind}{'s' * (count != 1)}" for kind, count in total.items() if count)
        more = f", grows by {len(self.node_types)} node types" if self.node_types else ""
        return f"{self.name}: {len(self.nodes)} node{'s' * (len(self.nodes) != 1)}, {size or 'no CPU'}{more}"

    def misfit(self, point: Point, *, each: Mapping[str, float], nodes: Sequence[Node] | None = None) -> str | None:
        """Say why a world can't be held, or None; where nodes can be added, that shows only by waiting.

        Args:
            point: its workers and placement.
            each: resources of one worker.
            nodes: those of a lane; all by default.
        """
        if self.node_types:
            return None
        nodes = self.nodes if nodes is None else nodes
        rooms = [room_for(node.resources, each) for node in nodes]
        wanted = " + ".join(f"{count:g} {kind}" for kind, count in each.items() if count)
        has = f"{len(nodes)} node{'s' * (len(nodes) != 1)} with room for {'+'.join(map(str, rooms)) or 'none'}"
        if can_hold(rooms, workers=point.workers, placement=point.placement):
            return None
        rule = {"strict_pack": " on one node", "strict_spread": " on a node each"}.get(point.placement, "")
        return f"{point.workers} workers of {wanted}{rule} don't fit: {has}"


def look_at(name: str, *, is_private: bool) -> Cluster:
    """The Ray to which this process is connected."""
    nodes = [Node(node_id=node["NodeID"], resources=node["Resources"]) for node in ray.nodes() if node["Alive"]]
    return Cluster(name=name, is_private=is_private, nodes=nodes, node_types=[] if is_private else _node_types())


def _node_types() -> list[Mapping[str, float]]:
    """What an autoscaler can add: from the cluster's own configuration, else from that of this head node."""
    from ray._private.state import state

    config = state.get_cluster_config()
    if config is not None and config.node_group_configs:
        return [dict(group.resources) for group in config.node_group_configs if group.max_count]
    for command in _commands():
        gcs = any(ray.get_runtime_context().gcs_address in word for word in command)
        for word in command:
            if gcs and word.startswith("--autoscaling-config="):
                return _types_in(Path(word.partition("=")[2]))
    return []


def _commands() -> Iterator[list[str]]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().decode(errors="replace").split("\0")
        except OSError:  # the process has ended
            continue


def _types_in(path: Path) -> list[Mapping[str, float]]:
    import yaml

    types: Mapping[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8")).get("available_node_types", {})
    return [kind.get("resources", {}) for kind in types.values() if kind.get("max_workers", 1)]
