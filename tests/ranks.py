"""Processes of tests that are forked from a server which has imported their modules already.

The server has no threads of Python's, and imports once for all tests of a process: that saves each
forked process some seconds. It has the environment that the first call finds.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import distributed
from torch.multiprocessing.spawn import start_processes

from dtsweep.sync.groups import forget_groups

PRELOADED = ["tests.preloaded"]


def spawn(function: Callable[..., None], *, args: tuple[Any, ...], nprocs: int) -> None:
    """Run `function(rank, *args)` in processes of their own, as `torch.multiprocessing.spawn` does.

    They have the environment of the server.
    """
    multiprocessing.set_forkserver_preload(PRELOADED)
    start_processes(function, args=args, nprocs=nprocs, start_method="forkserver")


def results_of(work: Callable[..., Any], *given: Any, workers: int) -> list[Any]:
    """Results of `work(rank, *given)` on each rank of a world of gloo, by rank."""
    with TemporaryDirectory() as folder:
        spawn(_leave_result, args=(work, given, workers, *free_ports(1), folder), nprocs=workers)
        places = [Path(folder) / f"{rank}.pt" for rank in range(workers)]
        return [torch.load(place, weights_only=False) for place in places]


def results_by_case(
    train: Callable[..., Any], cases: Iterable[Any], *, workers: int
) -> list[dict[Any, Any]]:
    """Results of `train(case, rank)`, one case after another, by rank and case."""
    return results_of(_train_all, train, [*cases], workers=workers)


def _train_all(rank: int, train: Callable[..., Any], cases: Sequence[Any]) -> dict[Any, Any]:
    return {case: train(case, rank) for case in cases}


def _leave_result(
    rank: int, work: Callable[..., Any], given: Sequence[Any], workers: int, port: int, folder: str
) -> None:
    join(rank, workers=workers, port=port)
    torch.save(work(rank, *given), Path(folder) / f"{rank}.pt")
    leave()


def join(rank: int, *, workers: int, port: int) -> None:
    """Be one of the ranks that meet at this port, on one thread; waits end in two minutes."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=workers,
        timeout=timedelta(seconds=120),
    )


@contextmanager
def alone() -> Iterator[None]:
    """Be the only rank of a world, in this process."""
    store = distributed.HashStore()  # type: ignore[attr-defined]  # missing in torch's stub
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        yield
    finally:
        forget_groups()
        distributed.destroy_process_group()


def leave() -> None:
    """End the world, when all ranks have come here."""
    distributed.barrier()
    forget_groups()
    distributed.destroy_process_group()


def torchrun_variables(rank: int, *, workers: int, port: int) -> dict[str, str]:
    """What `torchrun` tells the processes of one node, which meet at this port."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(workers),
        "LOCAL_WORLD_SIZE": str(workers),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    with ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def run_forked(
    arguments: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    said: str = "",
    timeout_s: float = 120,
) -> subprocess.CompletedProcess[str]:
    """Run `python -m dtsweep …` in a folder, as `subprocess.run` does, but for its imports.

    Args:
        arguments: of the command.
        folder: where it runs.
        environment: all of it.
        said: what it reads.
        timeout_s: when it is killed.

    Raises:
        TimeoutExpired: it was killed.
    """
    multiprocessing.set_forkserver_preload(PRELOADED)
    with TemporaryDirectory() as place:
        streams = [Path(place) / name for name in ("in", "out", "err")]
        streams[0].write_text(said)
        process = multiprocessing.get_context("forkserver").Process(
            target=_be_the_command, args=(arguments, folder, environment, streams)
        )
        process.start()
        process.join(timeout_s)
        out, err = (stream.read_text() for stream in streams[1:])
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired([*arguments], timeout_s, out, err)
        return subprocess.CompletedProcess([*arguments], process.exitcode, out, err)


def _be_the_command(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], streams: Sequence[Path]
) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    flags = [os.O_RDONLY, *[os.O_WRONLY | os.O_CREAT | os.O_APPEND] * 2]
    for descriptor, stream in enumerate(streams):
        os.dup2(os.open(stream, flags[descriptor]), descriptor)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", 1)
    sys.argv = ["dtsweep", *arguments]
    sys.path.insert(0, str(folder))
    runpy.run_module("dtsweep", run_name="__main__")
