"""Which Ray is used, what it has, and which worlds fit on it."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import ray

from dtsweep.driver.shipping import shipped_modules
from dtsweep.errors import SweepError
from dtsweep.sweep.point import Point

CONNECT_S = 5.0
"""How long a cluster may take to answer."""


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
        rooms = [_room(node.resources, each) for node in nodes]
        wanted = " + ".join(f"{count:g} {kind}" for kind, count in each.items() if count)
        has = f"{len(nodes)} node{'s' * (len(nodes) != 1)} with room for {'+'.join(map(str, rooms)) or 'none'}"
        if point.placement == "strict_pack":
            fits, rule = max(rooms, default=0) >= point.workers, " on one node"
        elif point.placement == "strict_spread":
            fits, rule = sum(room > 0 for room in rooms) >= point.workers, " on a node each"
        else:
            fits, rule = sum(rooms) >= point.workers, ""
        if fits:
            return None
        return f"{point.workers} workers of {wanted}{rule} don't fit: {has}"


@contextmanager
def connected(
    address: str | None, *, folder: Path | None, environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Cluster]:
    """Use a Ray: the one named, else that of `RAY_ADDRESS`, else this machine's cluster, else a private one.

    Args:
        address: `local`, `auto`, HOST:PORT or None.
        folder: the sweep file's; what can be imported from it goes to the nodes of a cluster.
        environment: of all processes of a private Ray.

    Raises:
        SweepError: the address names no running Ray.
    """
    if ray.is_initialized():
        raise SweepError("this process uses a Ray already; call ray.shutdown() first")
    before = _ray_variables()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    wanted = address or os.environ.get("RAY_ADDRESS") or _this_machines() or "local"
    if "://" in wanted:
        source = "" if address else "RAY_ADDRESS is "
        hint = "use HOST:PORT of the head node, --address local, or ray job submit"
        raise SweepError(f"{source}{wanted!r}: dtsweep runs on a node of the cluster, not through Ray Client; {hint}")
    temporary: str | None = None
    try:
        # Ray prints a paragraph for each process that dies; the trial's row says it in a line.
        ray._private.worker.print_to_stdstream = lambda *_, **__: None
        if wanted == "local":
            temporary = tempfile.mkdtemp(prefix="dtsweep-", dir="/tmp")  # sockets need a short path
            _start_private(temporary, environment)
        else:
            _join(wanted, folder)
        yield _look_at(
            "a private Ray on this machine" if temporary else f"Ray at {ray.get_runtime_context().gcs_address}",
            is_private=bool(temporary),
        )
    finally:
        ray.shutdown()
        # Ray leaves the token of a cluster that is gone, with which no other one could be joined.
        for name in _ray_variables().keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)


def _start_private(temporary: str, environment: Mapping[str, str]) -> None:
    # Ray gives workers niceness 15 by default: other processes would slow down what is measured.
    # RAY_ADDRESS would win over address="local".
    with _environment({"RAY_worker_niceness": "0", **environment}, without="RAY_ADDRESS"):
        try:
            ray.init(
                address="local",
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                _temp_dir=temporary,
            )
        except Exception as error:  # Ray raises a bare one
            first = str(error).strip().splitlines()[0]
            raise SweepError(f"a private Ray did not start ({first}); is this machine very busy? try again") from error


def _ray_variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("RAY_")}


@contextmanager
def _environment(variables: Mapping[str, str], *, without: str) -> Iterator[None]:
    """This process's environment with some variables more and one less, for a while: what it starts keeps them."""
    before = {name: os.environ.get(name) for name in (*variables, without)}
    os.environ.update(variables)
    os.environ.pop(without, None)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _join(address: str, folder: Path | None) -> None:
    # A job that was submitted has a runtime environment of its own, which ours is added to.
    os.environ.setdefault("RAY_OVERRIDE_JOB_RUNTIME_ENV", "1")
    if address != "auto":
        _need_answer(address)
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env={"py_modules": shipped_modules(folder)},
        )
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        first = str(error).strip().splitlines()[0]
        hint = "start one, or use --address local; if it asks for a token, set RAY_AUTH_MODE=token"
        raise SweepError(f"no Ray at {address!r} ({first}); {hint}") from error


def _need_answer(address: str) -> None:
    """Ask whether anything listens there: Ray itself tries for minutes, in words of its own.

    Raises:
        SweepError: nothing does, or it is no address.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise SweepError(f"address {address!r} is no HOST:PORT; use that, auto or local")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
    except OSError as error:
        reason = error.strerror or "no answer"
        raise SweepError(f"no Ray at {address!r} ({reason}); start one, or use --address local") from error


def _this_machines() -> str | None:
    """The address of the cluster whose node this machine is: of the last `ray start`, if it still runs."""
    from ray._private import services

    address = services.find_bootstrap_address(None)
    return address if address in services.find_gcs_addresses() else None


def _look_at(name: str, *, is_private: bool) -> Cluster:
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


def _room(resources: Mapping[str, float], each: Mapping[str, float]) -> int:
    return min((int(resources.get(kind, 0) // count) for kind, count in each.items() if count), default=0)
