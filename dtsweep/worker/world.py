"""The process group of a session's process, made again for each world without a restart."""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from ipaddress import ip_address
from types import FunctionType
from typing import Any

from torch import distributed
from torch.distributed import distributed_c10d
from torch.distributed.distributed_c10d import Store

from dtsweep.hardware.variables import variables_set
from dtsweep.sync.groups import forget_groups, position
from dtsweep.sync.meshes import wait_up_to

FIRST = 0
"""Number of the world that Ray Train sets up: all ranks of the session."""

FAILED_S = 2.0
"""A rank whose part failed waits so long for the others to end theirs."""


class ProcessGroups:
    """One process group at a time, for worlds made of some of a session's processes."""

    def __init__(self) -> None:
        """Keep what the group that there is was made with."""
        # Kept: a later world's default store is a part of this one, and a process without a world
        # has none.
        self._root = distributed_c10d._get_default_store()
        self._backend = distributed.get_backend()
        self._timeout: timedelta = self._root.timeout  # type: ignore[attr-defined]  # missing in torch's stub
        self._world = FIRST

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
def without_group(name: str) -> Iterator[distributed_c10d.Store | None]:
    """Give this process's group up for a while; called by all its ranks.

    Code that makes a process group of its own finds none, and what `torchrun` sets in the
    environment: a group that it makes by `init_process_group()` has the same ranks. At the end that
    group is destroyed if it is still there, and the earlier one is made again. Where a rank fails
    while others go on or wait for it, no rank gets its group back: the failure would not be known
    before they end.

    Args:
        name: of this time alone, equal on all ranks.

    Yields:
        The store of the earlier group, with keys of this time alone; None without a group.
    """
    if not distributed.is_initialized():
        with variables_set(torchrun_variables(None, rank=0, workers=1)):
            yield None
        return
    store = distributed_c10d._get_default_store()
    backend, timeout = distributed.get_backend(), store.timeout  # type: ignore[attr-defined]  # missing in torch's stub
    rank, workers = distributed.get_rank(), distributed.get_world_size()
    own_store = distributed_c10d.PrefixStore(name, store)
    _leave_group()
    wait_s = FAILED_S
    # Each new group wraps it in another function.
    hook = sys.excepthook
    try:
        with variables_set(torchrun_variables(own_store, rank=rank, workers=workers)):
            yield own_store
        wait_s = timeout.total_seconds()
    finally:
        if distributed.is_initialized():
            _leave_group()
        sys.excepthook = hook
        if _have_all_ended(own_store, workers=workers, wait_s=wait_s):
            again = distributed_c10d.PrefixStore("again", own_store)
            distributed.init_process_group(
                backend, store=again, rank=rank, world_size=workers, timeout=timeout
            )
            sys.excepthook = hook


@contextmanager
def own_group(name: str) -> Iterator[distributed_c10d.Store | None]:
    """Be in another group of the same ranks for a while; called by all of them.

    What is made from it, or left of it, ends with it.

    Yields:
        As `without_group`.
    """
    ranks: dict[str, Any] = {}
    if distributed.is_initialized():
        ranks["backend"] = distributed.get_backend()
        ranks["rank"], ranks["world_size"] = distributed.get_rank(), distributed.get_world_size()
    with without_group(name) as store:
        if store is not None:
            timeout = store.timeout  # type: ignore[attr-defined]  # missing in torch's stub
            own_store = distributed_c10d.PrefixStore("own", store)
            distributed.init_process_group(store=own_store, timeout=timeout, **ranks)
        yield store


def _have_all_ended(store: distributed_c10d.Store, *, workers: int, wait_s: float) -> bool:
    """True if all ranks have called this before one of them had waited too long; equal on all."""
    if store.add("ended", 1) == workers:
        store.compare_set("all ended", "", "yes")
    # Each kind of store has an error of its own.
    with suppress(RuntimeError):
        store.wait(["all ended"], timedelta(seconds=wait_s))
    # The first of the two answers stays.
    return bool(store.compare_set("all ended", "", "no") == b"yes")


def _leave_group() -> None:
    """Destroy this process's group and all that is made from it."""
    # Before the groups go: what still refers to one would keep its threads and sockets.
    forget_groups()
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
