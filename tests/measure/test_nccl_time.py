"""The time of NCCL's collectives, from dumps of torch's flight recorder as it writes them."""

from __future__ import annotations

import itertools
import pickle
import time
from collections.abc import Sequence
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
from tests.ranks import results_of

RECORDER = torch._C._distributed_c10d

STEP_NS = 1000
START_NS = 1_795_638_317_000_000_000


def launched(steps: int) -> list[int]:
    """Steps of `STEP_NS`, and the end of the last."""
    return [START_NS + STEP_NS * step for step in range(steps + 1)]


def entry(number: int, at: int, duration_ms: float | None, **fields: Any) -> dict[str, Any]:
    """What is read of an entry of the recorder, called `at` ns after the first step's begin."""
    timed = {} if duration_ms is None else {"duration_ms": duration_ms}
    numbers = {"record_id": number, "pg_id": 0, "collective_seq_id": number + 1, "p2p_seq_id": 0}
    return {**numbers, "time_created_ns": START_NS + at, **timed, **fields}


def test_collectives_of_all_process_groups_add_up_and_those_outside_the_window_are_left_out() -> (
    None
):
    inside = [entry(1, 0, 3.0), entry(2, 1999, 5.0, pg_id=1)]
    entries = [entry(0, -1, 100.0), *inside, entry(3, 2000, 100.0), entry(4, 2500, None)]
    assert nccl_time(entries, launched(2)) == NcclTime(seconds=0.004, steps=2)
    # Steps without collectives have no time in them.
    assert nccl_time(entries[:1], launched(2)) == NcclTime(seconds=0.0, steps=2)


def test_operations_of_a_batch_have_the_time_of_the_batch_once_and_others_need_their_own() -> None:
    """As torch writes `batch_isend_irecv`: operations without a time, then their batch."""
    batch = {"collective_seq_id": 1, "p2p_seq_id": 1}
    operations = [entry(number, 10 + number, None, **batch) for number in (0, 1)]
    whole = entry(2, 12, 7.0, **batch)
    assert nccl_time([*operations, whole], launched(1)) == NcclTime(seconds=0.007, steps=1)
    # Numbers of another group are other ones.
    other = whole | {"pg_id": 1}
    assert nccl_time([*operations, other], launched(1)) == NcclTime(reason=UNTIMED)


def ring(steps: int, *, size: int) -> list[dict[str, Any]]:
    """What a ring holds of two collectives a step, of 1 ms in even steps and 2 ms in odd ones."""
    calls = itertools.product(range(steps), (100, 600))
    entries = [
        entry(number, STEP_NS * step + at, 1.0 + step % 2)
        for number, (step, at) in enumerate(calls)
    ]
    return entries[-size:]


def test_where_the_ring_has_lost_the_first_steps_the_last_whole_ones_count() -> None:
    # All of the last two steps, and the second half of the one before.
    assert nccl_time(ring(6, size=5), launched(6)) == NcclTime(seconds=0.003, steps=2)
    # As far as the recorder tells, there may have been another before the oldest entry.
    assert nccl_time(ring(6, size=4), launched(6)) == NcclTime(seconds=0.004, steps=1)
    assert nccl_time(ring(6, size=12), launched(6)) == NcclTime(seconds=0.003, steps=6)
    # Whole sync periods count.
    assert nccl_time(ring(6, size=9), launched(6), period=2) == NcclTime(seconds=0.003, steps=4)
    assert nccl_time(ring(6, size=7), launched(6), period=2) == NcclTime(seconds=0.003, steps=2)
    # A ring without a whole step or an entry says so.
    assert nccl_time(ring(6, size=2), launched(6)) == NcclTime(reason=OVERWRITTEN)
    assert nccl_time(ring(6, size=5), launched(6), period=3) == NcclTime(reason=OVERWRITTEN)
    assert nccl_time([], launched(6)) == NcclTime(reason=EMPTY)


@pytest.fixture
def timing(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch times collectives."""
    monkeypatch.setenv(VARIABLE, "1")


@pytest.mark.usefixtures("timing")
@pytest.mark.parametrize(
    ("dumps", "expected", "pauses"),
    [
        ([None, None, 2.0], NcclTime(seconds=0.002, steps=1), 2),
        # One that is never timed is not waited for without end.
        ([None] * 100, NcclTime(reason=UNTIMED), TRIES),
    ],
)
def test_the_recorder_is_read_until_torch_s_watchdog_has_been_there(
    dumps: Sequence[float | None], expected: NcclTime, pauses: int
) -> None:
    durations, paused = iter(dumps), list[float]()
    found = recorded_time(
        launched(1), period=1, read=lambda: [entry(0, 0, next(durations))], pause=paused.append
    )
    assert (found, paused) == (expected, [PAUSE_S] * pauses)


@pytest.mark.usefixtures("timing")
def test_entries_with_other_fields_are_a_reason_and_no_error() -> None:
    found = recorded_time(launched(1), period=1, read=lambda: [{"record_id": 0}])
    assert found is not None
    assert found.seconds is None
    assert str(found.reason).startswith("the flight recorder can't be read: KeyError")


@pytest.mark.parametrize("value", ["0", ""])
def test_nothing_is_read_where_torch_times_no_collectives(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, value)
    assert recorded_time(launched(1), period=1, read=lambda: [{}]) is None


@pytest.mark.usefixtures("timing")
def test_torch_s_dump_is_read_without_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    def dump(*, includeStackTraces: bool) -> bytes:  # noqa: N803  # torch's name
        assert not includeStackTraces
        return pickle.dumps({"version": "2.10", "entries": [entry(0, 0, 2.0)]})

    monkeypatch.setattr(RECORDER, "_dump_nccl_trace", dump, raising=False)
    assert recorded_time(launched(1), period=1) == NcclTime(seconds=0.002, steps=1)


def record_with_gloo(_: int) -> None:
    """Gloo's entries have no durations, but the same fields and the same clock."""
    launched_ns = [time.time_ns()]
    distributed.all_reduce(torch.ones(1))
    launched_ns.append(time.time_ns())
    entries = pickle.loads(RECORDER._dump_fr_trace(includeStackTraces=False))["entries"]
    assert nccl_time(entries, launched_ns) == NcclTime(reason=UNTIMED)
    (entry,) = entries
    timed = [{**entry, "duration_ms": 2.0}]
    assert nccl_time(timed, launched_ns) == NcclTime(seconds=0.002, steps=1)


@pytest.mark.skipif(
    not hasattr(RECORDER, "_dump_fr_trace"), reason="this torch records no collectives of gloo"
)
def test_torch_s_entries_have_the_fields_and_the_clock_that_are_read() -> None:
    results_of(record_with_gloo, workers=1)
