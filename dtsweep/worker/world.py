"""The process group of a session's process, made again for each world without a restart."""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from ipaddress import ip_address
from types import FunctionType

from torch import distributed
from torch.distributed import distributed_c10d
from torch.distributed.distributed_c10d import Store

from dtsweep.sync.groups import forget_groups, position
from dtsweep.sync.meshes import wait_up_to

_FIRST = 0
"""Number of the world that Ray Train sets up: all ranks of the session."""

_parts: dict[tuple[str, int], distributed.ProcessGroup] = {}
"""Groups of the first ranks of a world, by its name and their number."""


class ProcessGroups:
    """One process group at a time, for worlds made of some of a session's processes."""

    def __init__(self) -> None:
        """Keep what the group that there is was made with."""
        # Kept: a later world's default store is a part of this one, and a process without a world
        # has none.
        self._root = distributed_c10d._get_default_store()
        self._backend = distributed.get_backend()
        self._timeout: timedelta = self._root.timeout  # type: ignore[attr-defined]  # missing in torch's stub
        self._world = _FIRST

    @property
    def position(self) -> int:
        """Number of collectives this process has begun in its world, in whichever of its groups."""
        if not distributed.is_initialized():
            return 0
        return position()

    def wait_up_to(self, seconds: float) -> None:
        """Set the timeout of collectives and store reads, in this world and later ones."""
        self._timeout = timedelta(seconds=seconds)
        self._root.set_timeout(self._timeout)
        if distributed.is_initialized():
            wait_up_to(self._timeout)

    def enter(
        self,
        world: int,
        *,
        rank: int | None,
        workers: int,
        local_rank: int,
        local_workers: int,
        node_rank: int,
    ) -> bool:
        """Change to another world, where this is another; called by all processes of the session.

        Nothing of the last world's model may be held any more.

        Args:
            world: its number in the session.
            rank: of this process in it; None leaves this process out.
            workers: how many it has.
            local_rank: of this process among those of its node.
            local_workers: how many of them are on this node.
            node_rank: number of this node among theirs.

        Returns:
            Whether it was another.
        """
        if world == self._world:
            return False
        self._world = world
        if distributed.is_initialized():
            _leave_group()
        if rank is None:
            return True
        local = {
            "LOCAL_RANK": local_rank,
            "LOCAL_WORLD_SIZE": local_workers,
            "NODE_RANK": node_rank,
        }
        os.environ.update(
            {n: str(value) for n, value in {"RANK": rank, "WORLD_SIZE": workers, **local}.items()}
        )
        store = distributed_c10d.PrefixStore(f"world {world}", self._root)
        distributed.init_process_group(
            self._backend, store=store, rank=rank, world_size=workers, timeout=self._timeout
        )
        return True


@contextmanager
def smaller_world(workers: int) -> Iterator[None]:
    """Have the first ranks of this world be a world of their own, for a while.

    Called on those ranks, after `part_of_world` on all. Models of both worlds stay.
    """
    world = distributed_c10d._get_default_group()
    if workers == world.size():
        yield
        return
    group = part_of_world(workers)
    names = ("WORLD_SIZE", "LOCAL_WORLD_SIZE")
    before = {name: os.environ[name] for name in names if name in os.environ}
    first_here = world.rank() - int(os.environ.get("LOCAL_RANK", world.rank()))
    os.environ["WORLD_SIZE"] = str(workers)
    if "LOCAL_WORLD_SIZE" in before:
        local_workers = min(int(before["LOCAL_WORLD_SIZE"]), workers - first_here)
        os.environ["LOCAL_WORLD_SIZE"] = str(local_workers)
    distributed_c10d._update_default_pg(group)
    try:
        yield
    finally:
        distributed_c10d._update_default_pg(world)
        del os.environ["WORLD_SIZE"]
        os.environ.update(before)


def part_of_world(workers: int) -> distributed.ProcessGroup:
    """Group of the first ranks of this world; made once, by all of its ranks."""
    world = distributed_c10d._get_default_group()
    key = (world.group_name, workers)
    if workers == world.size():
        return world
    if key not in _parts:
        # Else what has the world as a default would use it in a smaller one.
        _by_default_none(world)
        _parts[key] = distributed.new_group(range(workers))
        # A new group has torch's own timeout, not that of the world.
        timeout: timedelta = distributed_c10d._get_default_store().timeout  # type: ignore[attr-defined]  # missing in torch's stub
        wait_up_to(timeout)
    return _parts[key]


def _leave_group() -> None:
    """Destroy this process's group and all that is made from it."""
    # Before the groups go: what still refers to one would keep its threads and sockets.
    forget_groups()
    _parts.clear()
    _by_default_none(distributed_c10d._get_default_group())
    gc.collect()
    distributed.destroy_process_group()


def _by_default_none(group: distributed.ProcessGroup) -> None:
    """Let `torch.distributed` functions use the current group, instead of the one at their import.

    Those whose default it is would exchange with ranks that have left, and keep its threads and
    sockets.
    """
    for name, module in list(sys.modules.items()):
        if not name.startswith("torch.distributed"):
            continue
        members = list(vars(module).values())
        # By the type itself: a deprecated member warns when it is asked for its class.
        classes = [member for member in members if issubclass(type(member), type)]
        for function in (*members, *(method for kind in classes for method in vars(kind).values())):
            if type(function) is not FunctionType:
                continue
            defaults = function.__defaults__ or ()
            if any(value is group for value in defaults):
                function.__defaults__ = tuple(
                    None if value is group else value for value in defaults
                )


def torchrun_variables(store: Store | None, *, rank: int, workers: int) -> dict[str, str]:
    """Variables of a rank as `torchrun` sets them; called by all ranks.

    Rank 0 says in the store, which has keys of this call alone, where it will listen.
    """
    local = {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(workers), "NODE_RANK": "0"}
    named = (os.environ.get("RANK"), os.environ.get("WORLD_SIZE"))
    if named == (str(rank), str(workers)):
        # This process was started as that rank, maybe on one of several nodes.
        local |= {name: os.environ[name] for name in local if name in os.environ}
        local["NODE_RANK"] = os.environ.get("GROUP_RANK", local["NODE_RANK"])
    place = _agreed_place(store, node=local["NODE_RANK"], rank=rank, workers=workers)
    host, port, nodes = place
    variables = {
        "RANK": rank,
        "WORLD_SIZE": workers,
        "LOCAL_RANK": local["LOCAL_RANK"],
        "LOCAL_WORLD_SIZE": local["LOCAL_WORLD_SIZE"],
        "NODE_RANK": local["NODE_RANK"],
        "GROUP_RANK": local["NODE_RANK"],
        "GROUP_WORLD_SIZE": nodes,
        "ROLE_NAME": "default",
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": workers,
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
        "TORCHELASTIC_RUN_ID": "none",
        # Else init_process_group looks for the store of torchrun's agent.
        "TORCHELASTIC_USE_AGENT_STORE": False,
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }
    return {name: str(value) for name, value in variables.items()}


def _agreed_place(
    store: Store | None, *, node: str, rank: int, workers: int
) -> tuple[str, int, int]:
    """Host and free port at which rank 0 is reached, and the number of nodes."""
    if store is None:
        return _own_host(), _free_port(), 1
    store.set(f"node/{rank}", node)
    if rank == 0:
        nodes = {store.get(f"node/{other}") for other in range(workers)}
        store.set("place", json.dumps([_own_host(), _free_port(), len(nodes)]))
    host, port, count = json.loads(store.get("place"))
    return host, port, count


def _own_host() -> str:
    """Address of this host on the way to the one where the session's first rank listens.

    In a smaller world rank 0 may be on another host.
    """
    first = os.environ.get("MASTER_ADDR", "127.0.0.1")
    try:
        family, kind, *_, address = socket.getaddrinfo(first, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            # Sends nothing.
            probe.connect(address)
            own = str(probe.getsockname()[0])
    except OSError:
        return first
    # A name of this host that stands for its loopback: others know it by another address.
    return first if ip_address(own).is_loopback else own


def _free_port() -> int:
    with socket.create_server(("", 0)) as free:
        return int(free.getsockname()[1])
