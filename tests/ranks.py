"""Rank processes of tests."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

from torch.multiprocessing.spawn import start_processes

PRELOADED = [
    "torch",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "dtsweep.worker.attempt",
]
"""Modules that the server imports once; each rank is forked from it."""


def spawn(function: Callable[..., None], *, args: tuple[Any, ...], nprocs: int) -> None:
    """Run `function(rank, *args)` in processes of their own, as `torch.multiprocessing.spawn` does.

    Ranks are forked from a server without threads that has imported torch already, which saves
    seconds for each of them. They have the environment that the first call finds.
    """
    multiprocessing.set_forkserver_preload(PRELOADED)
    start_processes(function, args=args, nprocs=nprocs, start_method="forkserver")
