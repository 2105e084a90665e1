"""The profile of some steps: intervals whose answer is seen at a glance, and real traces."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import distributed, nn
from torch.multiprocessing.spawn import spawn

from dtsweep.measure.profile import Profile, ProfileError, profiled
from dtsweep.measure.trace import CLASSES, WINDOW, breakdown, covered, innermost, split

CPU = torch.device("cpu")
SECOND = 10**9
LATEST = 30
PAIRS = st.lists(st.tuples(st.integers(0, LATEST), st.integers(0, LATEST)).map(sorted), max_size=8)


def intervals(*pairs: Any, unit: int = 1) -> np.ndarray[Any, Any]:
    return np.array(pairs, dtype=np.int64).reshape(-1, 2) * unit


def ticks(pairs: list[Any]) -> set[int]:
    """What intervals of whole numbers cover, counted one by one."""
    return {tick for start, end in pairs for tick in range(start, end)}


@given(PAIRS)
def test_what_intervals_cover_is_counted_once(pairs: list[Any]) -> None:
    assert covered(intervals(*pairs)) == len(ticks(pairs))


@given(PAIRS, PAIRS, st.tuples(st.integers(0, LATEST), st.integers(0, LATEST)).map(sorted))
def test_a_window_splits_as_counting_its_ticks_does(compute: Any, exchange: Any, window: Any) -> None:
    parts = split(intervals(*compute), intervals(*exchange), window=tuple(window))
    inside = ticks([window])
    computes, exchanges = ticks(compute) & inside, ticks(exchange) & inside
    counted = (computes, exchanges, computes & exchanges, exchanges - computes, inside - computes - exchanges)
    assert parts == {name: len(part) / SECOND for name, part in zip(CLASSES, counted, strict=True)}


def test_exchange_behind_compute_is_overlap_and_the_rest_is_exposed() -> None:
    compute = intervals((0, 4), (3, 6), unit=SECOND)
    exchange = intervals((5, 8), unit=SECOND)
    assert split(compute, exchange, window=(0, 10 * SECOND)) == {
        "compute_s": 6,
        "exchange_s": 3,
        "overlap_s": 1,
        "exposed_s": 2,
        "idle_s": 2,
    }


@given(PAIRS)
def test_nested_calls_share_out_the_time_that_they_cover_together(pairs: list[Any]) -> None:
    # Trees of calls: what overlaps without being nested is cut off where its caller ends.
    calls: list[tuple[int, int]] = []
    for start, end in sorted(map(tuple, pairs), key=lambda pair: (pair[0], -pair[1])):
        calls.append((start, min([end, *(e for s, e in calls if s <= start < e)])))
    pieces = list(innermost(calls))
    assert sum(end - start for _, start, end in pieces) == covered(intervals(*calls))
    for index, start, end in pieces:
        assert calls[index][0] <= start < end <= calls[index][1]
        assert not ticks([(start, end)]) & ticks(calls[index + 1 :])


def event(name: str, start: float, end: float, *, cat: str = "cpu_op", tid: int = 1) -> dict[str, Any]:
    """An event of a Chrome trace, in microseconds."""
    return {"ph": "X", "cat": cat, "name": name, "ts": start, "dur": end - start, "pid": 1, "tid": tid}


def window(start: float, end: float) -> dict[str, Any]:
    return event(WINDOW, start, end, cat="user_annotation")


def microseconds(table: dict[str, Any]) -> list[float]:
    return [round(1e6 * table[name], 3) for name in CLASSES]


def test_on_a_gpu_only_what_runs_on_the_device_counts() -> None:
    events = [
        {"ph": "M", "name": "process_name", "pid": 0},
        window(100, 200),
        event("aten::mm", 100, 190),
        event("nccl:all_reduce", 100, 190, cat="gpu_user_annotation", tid=7),
        event("gemm", 90, 130, cat="kernel", tid=7),
        event("gemm", 130, 150, cat="kernel", tid=7),
        event("Memcpy HtoD", 150, 160, cat="gpu_memcpy", tid=7),
        event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 140, 180, cat="kernel", tid=8),
    ]
    table = breakdown(events, steps=2, device="cuda")
    assert table["step_s"] == pytest.approx(50e-6)
    assert microseconds(table) == [30, 20, 10, 10, 10]
    assert table["overlap_share"] == pytest.approx(0.5)
    assert table["kernels"] == [
        {"name": "gemm", "class": "compute", "self_s": pytest.approx(25e-6), "calls": 1},
        {
            "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
            "class": "exchange",
            "self_s": pytest.approx(20e-6),
            "calls": 0.5,
        },
        {"name": "Memcpy HtoD", "class": "compute", "self_s": pytest.approx(5e-6), "calls": 0.5},
    ]


def test_on_a_cpu_operators_count_without_what_only_wraps_them() -> None:
    events = [
        window(0, 100),
        event("DistributedDataParallel.forward", 0, 50, cat="user_annotation"),
        event("aten::linear", 0, 20),
        event("aten::addmm", 5, 20),
        event("autograd::engine::evaluate_function: AddmmBackward0", 30, 80),
        event("AddmmBackward0", 30, 50),
        event("aten::mm", 35, 45),
        event("c10d::allreduce_", 60, 70),
        event("gloo:all_reduce", 65, 90, cat="user_annotation", tid=2),
        event("aten::copy_", 75, 85, tid=2),
    ]
    table = breakdown(events, steps=1, device="cpu")
    assert microseconds(table) == [30, 30, 0, 30, 40]
    assert {kernel["name"]: round(1e6 * kernel["self_s"]) for kernel in table["kernels"]} == {
        "gloo:all_reduce": 25,
        "aten::addmm": 15,
        "aten::mm": 10,
        "c10d::allreduce_": 10,
        "aten::linear": 5,
    }


def test_an_operator_that_calls_others_in_between_is_one_call() -> None:
    events = [window(0, 10), event("aten::addmm", 0, 10), event("aten::copy_", 4, 6)]
    addmm, copy = breakdown(events, steps=1, device="cpu")["kernels"]
    assert (addmm["name"], addmm["self_s"], addmm["calls"]) == ("aten::addmm", pytest.approx(8e-6), 1)
    assert (copy["name"], copy["self_s"], copy["calls"]) == ("aten::copy_", pytest.approx(2e-6), 1)


def test_a_device_that_was_not_seen_is_unknown_and_not_idle() -> None:
    table = breakdown([window(0, 10), event("aten::mm", 0, 5)], steps=1, device="cuda")
    assert table["step_s"] == pytest.approx(10e-6)
    assert [table[name] for name in CLASSES] == [None] * len(CLASSES)


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))


def profile_of(model: nn.Module, *, steps: int) -> Profile:
    batch = torch.ones(8, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()

    return profiled(step, steps=steps, device=CPU)


def calls(profile: Profile) -> dict[str, float]:
    return {kernel["name"]: kernel["calls"] for kernel in profile.table["kernels"]}


def assert_adds_up(table: dict[str, Any]) -> None:
    assert table["compute_s"] + table["exposed_s"] + table["idle_s"] == pytest.approx(table["step_s"])
    assert table["overlap_s"] + table["exposed_s"] == pytest.approx(table["exchange_s"])
    assert table["compute_s"] > 0
    assert table["idle_s"] > 0


@pytest.mark.parametrize("steps", [1, 5])
def test_a_step_of_one_process_has_its_operators_and_no_exchange(steps: int) -> None:
    profile = profile_of(small_model(), steps=steps)
    assert_adds_up(profile.table)
    assert (profile.table["exchange_s"], profile.table["overlap_share"]) == (0, None)
    # Two linear layers a step, however many steps: the one before the window does not count.
    assert calls(profile)["aten::addmm"] == 2
    assert {kernel["class"] for kernel in profile.table["kernels"]} == {"compute"}


def test_the_trace_is_a_small_chrome_trace_that_names_the_steps() -> None:
    profile = profile_of(small_model(), steps=5)
    names = {event["name"] for event in json.loads(gzip.decompress(profile.trace))["traceEvents"]}
    assert {WINDOW, *(f"dtsweep: step {number}" for number in range(5)), "aten::addmm"} <= names
    assert len(profile.trace) < 10**6


def test_one_step_pays_for_the_profiler_and_is_not_recorded() -> None:
    rounds: list[torch.Tensor] = []
    table = profiled(lambda: rounds.append(torch.ones(8).cumsum(0)), steps=3, device=CPU).table
    assert len(rounds) == 4
    assert {kernel["name"]: kernel["calls"] for kernel in table["kernels"]}["aten::cumsum"] == 1


def test_steps_of_which_nothing_can_be_told_say_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(ProfileError, match=r"FileNotFoundError: .*gone"):
        profile_of(small_model(), steps=1)


def profile_ddp(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    profile = profile_of(nn.parallel.DistributedDataParallel(small_model()), steps=4)
    torch.save(profile, folder / f"{rank}.pt")
    distributed.barrier()
    distributed.destroy_process_group()


def test_two_processes_exchange_each_step_once_as_their_traces_show(tmp_path: Path) -> None:
    spawn(profile_ddp, args=(tmp_path,), nprocs=2)
    for rank in range(2):
        profile = torch.load(tmp_path / f"{rank}.pt", weights_only=False)
        assert_adds_up(profile.table)
        assert profile.table["exchange_s"] > 0
        assert 0 <= profile.table["overlap_share"] < 1
        # One bucket holds the whole model. The barrier before the window is no exchange of a step.
        assert calls(profile)["gloo:all_reduce"] == 1
        assert "gloo:barrier" not in calls(profile)
