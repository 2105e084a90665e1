"""The time of NCCL's collectives, from dumps of torch's flight recorder as it writes them."""

from __future__ import annotations

import itertools
import pickle
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

from dtsweep.measure.nccl_time import (
    EMPTY,
    OVERWRITTEN,
    PAUSE_S,
    TRIES,
    UNTIMED,
    VARIABLE,
    NcclTime,
    nccl_time,
    recorded_time,
)
from tests.ranks import spawn

RECORDER = torch._C._distributed_c10d

STEP_NS = 1000
START_NS = 1_795_638_317_000_000_000


def launched(steps: int) -> list[int]:
    """Steps of `STEP_NS`, and the end of the last."""
    return [START_NS + STEP_NS * step for step in range(steps + 1)]


def entry(number: int, *, at: int, duration_ms: float | None, **fields: Any) -> dict[str, Any]:
    """An entry of the recorder, called `at` nanoseconds after the first step's begin."""
    timed = {} if duration_ms is None else {"duration_ms": duration_ms}
    return {
        "record_id": number,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number + 1,
        "p2p_seq_id": 0,
        "op_id": number + 1,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": START_NS + at,
        **timed,
        "state": "scheduled" if duration_ms is None else "completed",
        "retired": duration_ms is not None,
        "is_p2p": False,
        **fields,
    }


def test_collectives_of_all_process_groups_add_up_and_those_outside_the_window_are_left_out() -> (
    None
):
    entries = [
        entry(0, at=-1, duration_ms=100.0),
        entry(1, at=0, duration_ms=3.0),
        entry(2, at=1999, duration_ms=5.0, pg_id=1, process_group=("1", "nodes")),
        entry(3, at=2000, duration_ms=100.0),
        entry(4, at=2500, duration_ms=None),
    ]
    assert nccl_time(entries, launched(2)) == NcclTime(seconds=0.004, steps=2)


def test_steps_without_collectives_have_no_time_in_them() -> None:
    entries = [entry(0, at=-500, duration_ms=1.0)]
    assert nccl_time(entries, launched(2)) == NcclTime(seconds=0.0, steps=2)


def test_operations_of_a_batch_have_the_time_of_the_batch_once() -> None:
    """As torch writes `batch_isend_irecv`: operations without a time, then their batch."""
    batch = {"collective_seq_id": 1, "p2p_seq_id": 1, "is_p2p": True}
    entries = [
        entry(0, at=10, duration_ms=None, profiling_name="nccl:send 0->1", **batch),
        entry(1, at=11, duration_ms=None, profiling_name="nccl:recv 0<-1", **batch),
        entry(2, at=12, duration_ms=7.0, profiling_name="nccl:coalesced", **batch),
    ]
    assert nccl_time(entries, launched(1)) == NcclTime(seconds=0.007, steps=1)
    # Numbers of another group are other ones.
    assert nccl_time([*entries[:2], {**entries[2], "pg_id": 1}], launched(1)).reason == UNTIMED


def test_a_collective_without_a_duration_makes_the_time_unknown() -> None:
    entries = [entry(0, at=10, duration_ms=1.0), entry(1, at=20, duration_ms=None)]
    assert nccl_time(entries, launched(1)) == NcclTime(reason=UNTIMED)


def ring(steps: int, *, size: int) -> list[dict[str, Any]]:
    """What a ring holds of two collectives a step, of 1 ms in even steps and 2 ms in odd ones."""
    calls = itertools.product(range(steps), (100, 600))
    entries = [
        entry(number, at=STEP_NS * step + at, duration_ms=1.0 + step % 2)
        for number, (step, at) in enumerate(calls)
    ]
    return entries[-size:]


def test_where_the_ring_has_lost_the_first_steps_the_last_whole_ones_count() -> None:
    # All of the last two steps, and the second half of the one before.
    assert nccl_time(ring(6, size=5), launched(6)) == NcclTime(seconds=0.003, steps=2)
    # As far as the recorder tells, there may have been another before the oldest entry.
    assert nccl_time(ring(6, size=4), launched(6)) == NcclTime(seconds=0.004, steps=1)
    assert nccl_time(ring(6, size=12), launched(6)) == NcclTime(seconds=0.003, steps=6)


def test_whole_sync_periods_count() -> None:
    assert nccl_time(ring(6, size=9), launched(6), period=2) == NcclTime(seconds=0.003, steps=4)
    assert nccl_time(ring(6, size=7), launched(6), period=2) == NcclTime(seconds=0.003, steps=2)


def test_a_ring_without_a_whole_step_or_an_entry_says_so() -> None:
    assert nccl_time(ring(6, size=2), launched(6)) == NcclTime(reason=OVERWRITTEN)
    assert nccl_time(ring(6, size=5), launched(6), period=3) == NcclTime(reason=OVERWRITTEN)
    assert nccl_time([], launched(6)) == NcclTime(reason=EMPTY)


def test_the_recorder_is_read_until_torch_s_watchdog_has_been_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    dumps = iter([None, None, 2.0])
    pauses: list[float] = []

    def read() -> Sequence[dict[str, Any]]:
        return [entry(0, at=0, duration_ms=next(dumps))]

    found = recorded_time(launched(1), period=1, read=read, pause=pauses.append)
    assert found == NcclTime(seconds=0.002, steps=1)
    assert pauses == [PAUSE_S] * 2


def test_a_collective_that_is_never_timed_is_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    pauses: list[float] = []
    never = [entry(0, at=0, duration_ms=None)]
    found = recorded_time(launched(1), period=1, read=lambda: never, pause=pauses.append)
    assert found == NcclTime(reason=UNTIMED)
    assert len(pauses) == TRIES


def test_entries_with_other_fields_are_a_reason_and_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    found = recorded_time(launched(1), period=1, read=lambda: [{"record_id": 0}])
    assert found is not None
    assert found.seconds is None
    assert str(found.reason).startswith("the flight recorder can't be read: KeyError")


@pytest.mark.parametrize("value", [None, "0", ""])
def test_nothing_is_read_where_torch_times_no_collectives(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)

    def read() -> Sequence[dict[str, Any]]:
        raise AssertionError

    assert recorded_time(launched(1), period=1, read=read) is None


def test_torch_s_dump_is_read_without_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    def dump(*, includeStackTraces: bool) -> bytes:  # noqa: N803  # torch's name
        assert not includeStackTraces
        return pickle.dumps({"version": "2.10", "entries": [entry(0, at=0, duration_ms=2.0)]})

    monkeypatch.setenv(VARIABLE, "1")
    monkeypatch.setattr(RECORDER, "_dump_nccl_trace", dump, raising=False)
    assert recorded_time(launched(1), period=1) == NcclTime(seconds=0.002, steps=1)


def record_with_gloo(_: int, folder: Path) -> None:
    """Gloo's entries have no durations, but the same fields and the same clock."""
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=0, world_size=1
    )
    launched_ns = [time.time_ns()]
    distributed.all_reduce(torch.ones(1))
    launched_ns.append(time.time_ns())
    entries = pickle.loads(RECORDER._dump_fr_trace(includeStackTraces=False))["entries"]
    assert nccl_time(entries, launched_ns) == NcclTime(reason=UNTIMED)
    (entry,) = entries
    timed = [{**entry, "duration_ms": 2.0}]
    assert nccl_time(timed, launched_ns) == NcclTime(seconds=0.002, steps=1)
    distributed.destroy_process_group()


@pytest.mark.skipif(
    not hasattr(RECORDER, "_dump_fr_trace"), reason="this torch records no collectives of gloo"
)
def test_torch_s_entries_have_the_fields_and_the_clock_that_are_read(tmp_path: Path) -> None:
    spawn(record_with_gloo, args=(tmp_path,), nprocs=1)
