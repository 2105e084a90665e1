"""The last exchanges of a rank: of gloo by a group, of NCCL by a dump in its format."""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed

from dtsweep.sync.groups import positions
from dtsweep.worker.flight_recorder import SHOWN, last_exchanges, recorded


def test_the_last_exchanges_of_each_group_of_gloo_are_written() -> None:
    store = distributed.HashStore()  # type: ignore[attr-defined]  # missing in torch's stub
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        other = distributed.new_group([0])
        for _ in range(SHOWN + 2):
            distributed.all_reduce(torch.ones(2, 3))
        distributed.all_reduce(torch.ones(4, dtype=torch.int64), group=other)
        begun = positions()
        lines = last_exchanges(recorded(), begun)
    finally:
        distributed.destroy_process_group()
    assert sorted(begun.values()) == [1, SHOWN + 2]
    world = lines[: SHOWN + 1]
    assert world[0].endswith(": 7 exchanges begun; the last of them:")
    assert world[1] == "  3 gloo:all_reduce of Float[2, 3]: ended"
    assert world[-1] == "  7 gloo:all_reduce of Float[2, 3]: ended"
    assert lines[-1] == "  1 gloo:all_reduce of Long[4]: ended"


def entry(**other: Any) -> dict[str, Any]:
    """One of a dump's exchanges; the fields that are not read are left out."""
    return {
        "process_group": ["0", "default_pg"],
        "collective_seq_id": 41,
        "p2p_seq_id": 3,
        "is_p2p": False,
        "profiling_name": "nccl:all_reduce",
        "input_sizes": [[1048576]],
        "input_dtypes": ["Float"],
        "state": "completed",
        "retired": True,
        **other,
    }


def test_before_the_first_exchange_nothing_is_recorded() -> None:
    assert last_exchanges({"version": "2.10"}, {"0": 0}) == [
        "group 0: 0 exchanges begun; the last of them:",
        "  none recorded",
    ]


def test_what_nccl_waits_for_is_told_from_what_has_ended() -> None:
    waits = entry(collective_seq_id=42, state="scheduled", retired=False)
    sends = entry(is_p2p=True, profiling_name="nccl:send 0->1", state="started", retired=False)
    dump = {"entries": [entry(), waits, sends], "pg_status": {}}
    assert last_exchanges(dump, {"0": 42, "1": 0}) == [
        "group 0: 42 exchanges begun; the last of them:",
        "  41 nccl:all_reduce of Float[1048576]: ended",
        "  42 nccl:all_reduce of Float[1048576]: scheduled",
        "  3 nccl:send 0->1 of Float[1048576]: started",
        "group 1: 0 exchanges begun; the last of them:",
        "  none recorded",
    ]
