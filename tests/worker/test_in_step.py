"""Work after a window that fails on one of several ranks."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import distributed
from torch.distributed import P2POp
from torch.distributed.distributed_c10d import PrefixStore, _get_default_store

from dtsweep.sync.groups import send_and_receive
from dtsweep.worker.in_step import StepError, together
from tests.ranks import spawn

WORKERS = 3


def fail_after_messages(rank: int, folder: Path) -> None:
    """Send from rank 0 to rank 1, as a branch of a tree; then rank 1 fails by itself."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORKERS
    )
    if rank == 0:
        send_and_receive([P2POp(distributed.isend, torch.ones(1), 1)])
    if rank == 1:
        send_and_receive([P2POp(distributed.irecv, torch.ones(1), 0)])

    def work() -> None:
        if rank == 1:
            raise ValueError("the third layer is missing")

    try:
        together(work, store=PrefixStore("work", _get_default_store()))
    except StepError as error:
        (folder / f"{rank}").write_text(str(error))
    except Exception as error:  # noqa: BLE001  # what it is, the test reads
        (folder / f"{rank}").write_text(repr(error))
    distributed.barrier()
    distributed.destroy_process_group()


def test_ranks_that_sent_different_numbers_of_messages_are_in_step(tmp_path: Path) -> None:
    spawn(fail_after_messages, args=(tmp_path,), nprocs=WORKERS)
    words = {(tmp_path / f"{rank}").read_text() for rank in range(WORKERS)}
    assert words == {
        "a step after the window failed on rank 1: ValueError: the third layer is missing"
    }
