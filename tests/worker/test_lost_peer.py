"""Messages of a rank whose peer has ended or stands still: real processes, really killed."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch import distributed, multiprocessing

from dtsweep.worker.attempt import status_of

LARGE = 2**24
"""Elements of an exchange that is still under way when the peer is killed."""

WAIT_S = {"frozen": 5.0, "after a timeout": 5.0}
"""Timeouts of moments that are seen by one; others have a minute."""


def exchange(rank: int, folder: Path, moment: str) -> None:
    """Exchange until the peer, rank 1, has gone at this moment; rank 0 writes what that came to."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=WAIT_S.get(moment, 60.0)),
    )
    distributed.all_reduce(torch.ones(1))
    (folder / f"{rank}.joined").touch()
    try:
        _exchange_on(rank, moment)
    except RuntimeError as error:
        (folder / f"{rank}.error").write_text(f"{status_of(error)}\n{error}")
    os._exit(0)


def _exchange_on(rank: int, moment: str) -> None:
    if moment == "before" and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if moment == "frozen" and rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    if moment == "after a timeout":
        if rank == 1:
            time.sleep(60)
        with pytest.raises(RuntimeError, match="Timed out"):
            distributed.all_reduce(torch.ones(1))
    while True:
        distributed.all_reduce(torch.ones(LARGE if moment == "within" else 1))


def told(folder: Path, moment: str) -> dict[int, tuple[str, str]]:
    """Status and words of the ranks that raised."""
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=exchange, args=(rank, folder, moment)) for rank in range(2)]
    for process in ranks:
        process.start()
    if moment == "within":
        while not (folder / "1.joined").exists():
            time.sleep(0.01)
        time.sleep(0.3)
        ranks[1].kill()
    ranks[0].join(120)
    for process in ranks:
        process.kill()
        process.join()
    said = {rank: folder / f"{rank}.error" for rank in range(2)}
    return {
        rank: (words.partition("\n")[0], words.partition("\n")[2])
        for rank, path in said.items()
        if path.exists() and (words := path.read_text())
    }


@pytest.mark.parametrize(
    "moment",
    [
        *("before", "within"),
        pytest.param("frozen", marks=pytest.mark.slow),
        pytest.param("after a timeout", marks=pytest.mark.slow),
    ],
)
def test_a_rank_that_lost_its_peer_is_not_at_fault(tmp_path: Path, moment: str) -> None:
    status, words = told(tmp_path, moment)[0]
    assert status == "collateral", words
