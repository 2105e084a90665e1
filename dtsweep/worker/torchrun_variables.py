"""Environment variables that `torchrun` sets for its workers, for a script that reads them."""

from __future__ import annotations

import json
import os
import socket
from ipaddress import ip_address

from torch.distributed.distributed_c10d import Store


def torchrun_variables(store: Store | None, *, rank: int, workers: int) -> dict[str, str]:
    """Variables of a rank as `torchrun` sets them; called by all ranks.

    Args:
        store: with keys of this call alone; rank 0 says there where it will listen.
        rank: of this process.
        workers: how many ranks there are.
    """
    local = {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(workers), "NODE_RANK": "0"}
    if (os.environ.get("RANK"), os.environ.get("WORLD_SIZE")) == (str(rank), str(workers)):
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
