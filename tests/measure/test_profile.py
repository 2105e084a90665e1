"""The profile of some steps: intervals, counted tick by tick, and real traces of a CPU."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dtsweep.measure.profile import Profile, ProfileError, profiled
from dtsweep.measure.trace import CLASSES, WINDOW, breakdown, split_window
from tests.ranks import results_of

CPU = torch.device("cpu")
SECOND = 10**9
LATEST = 30
PAIRS = st.lists(st.tuples(st.integers(0, LATEST), st.integers(0, LATEST)).map(sorted), max_size=8)


def intervals(pairs: Any) -> np.ndarray[Any, Any]:
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def ticks(pairs: list[Any]) -> set[int]:
    """What intervals of whole numbers cover, counted one by one."""
    return {tick for start, end in pairs for tick in range(start, end)}


@given(PAIRS, PAIRS, st.tuples(st.integers(0, LATEST), st.integers(0, LATEST)).map(sorted))
def test_a_window_splits_as_counting_its_ticks_does(
    compute: Any, exchange: Any, window: Any
) -> None:
    spent = split_window(intervals(compute), intervals(exchange), window=tuple(window))
    inside = ticks([window])
    computes, exchanges = ticks(compute) & inside, ticks(exchange) & inside
    counted = (
        computes,
        exchanges,
        computes & exchanges,
        exchanges - computes,
        inside - computes - exchanges,
    )
    assert spent == {name: len(part) / SECOND for name, part in zip(CLASSES, counted, strict=True)}


def event(name: str, start: float, end: float, *, cat: str = "cpu_op") -> dict[str, Any]:
    """An event of a Chrome trace, in microseconds."""
    return {"ph": "X", "cat": cat, "name": name, "ts": start, "dur": end - start}


def window(start: float, end: float) -> dict[str, Any]:
    return event(WINDOW, start, end, cat="user_annotation")


def microseconds(table: dict[str, Any]) -> list[float]:
    return [round(1e6 * table[name], 3) for name in CLASSES]


def test_only_what_runs_on_the_device_inside_the_steps_counts() -> None:
    events = [
        {"ph": "M", "name": "process_name", "pid": 0},
        window(100, 200),
        event("aten::mm", 100, 190),
        event("nccl:all_reduce", 100, 190, cat="gpu_user_annotation"),
        event("gemm", 90, 130, cat="kernel"),
        event("gemm", 130, 150, cat="kernel"),
        event("Memcpy HtoD", 150, 160, cat="gpu_memcpy"),
        event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 140, 180, cat="kernel"),
    ]
    table = breakdown(events, steps=2)
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


KERNELS = {
    "exchange": """
        ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)
        ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16
        Memcpy PtoP (Device -> Device)
        void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)
        void (anonymous namespace)::one_shot_all_reduce_kernel<float, 16, 8>(float**)
        void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<float, 16, 2>(float**)
    """,
    "compute": """
        Memcpy DtoD (Device -> Device)
        Memcpy HtoD (Pageable -> Device)
        Memset (Device)
        void at::native::reduce_kernel<512, 1, float>(float)
        my_ncclike_kernel
    """,
}


@pytest.mark.parametrize("kind", KERNELS)
def test_what_moves_values_between_gpus_is_exchange(kind: str) -> None:
    for name in KERNELS[kind].strip().splitlines():
        cat = {"Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}.get(name.split()[0], "kernel")
        table = breakdown([window(0, 10), event(name.strip(), 2, 5, cat=cat)], steps=1)
        assert [kernel["class"] for kernel in table["kernels"]] == [kind], name
        assert (table[f"{kind}_s"], table["idle_s"]) == pytest.approx((3e-6, 7e-6))


def test_a_device_that_was_not_seen_is_unknown_and_not_idle() -> None:
    table = breakdown([window(0, 10), event("aten::mm", 0, 5)], steps=1)
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


def events_inside(profile: Profile) -> Counter[str]:
    """How often what began between the first and the last profiled step."""
    events = json.loads(gzip.decompress(profile.trace))["traceEvents"]
    timed = [event for event in events if event["ph"] == "X"]
    (steps,) = (event for event in timed if event["name"] == WINDOW)
    # Not until it ended: a thread of gloo may note that only after the step has gone on.
    return Counter(
        event["name"] for event in timed if 0 <= event["ts"] - steps["ts"] < steps["dur"]
    )


def test_on_a_cpu_there_is_a_small_chrome_trace_that_names_the_steps_and_no_table() -> None:
    profile = profile_of(small_model(), steps=5)
    assert profile.table is None
    # Two linear layers a step; the one before the window does not count.
    inside = events_inside(profile)
    assert inside["aten::addmm"] == 2 * 5
    assert {WINDOW, *(f"dtsweep: step {number}" for number in range(5))} <= inside.keys()
    assert len(profile.trace) < 10**6


def test_one_step_pays_for_the_profiler_and_is_not_recorded() -> None:
    rounds: list[torch.Tensor] = []
    profile = profiled(lambda: rounds.append(torch.ones(8).cumsum(0)), steps=3, device=CPU)
    assert len(rounds) == 4
    assert events_inside(profile)["aten::cumsum"] == 3


def test_steps_of_which_nothing_can_be_told_say_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(ProfileError, match=r"FileNotFoundError: .*gone"):
        profile_of(small_model(), steps=1)


def profile_ddp(_: int) -> Profile:
    return profile_of(nn.parallel.DistributedDataParallel(small_model()), steps=4)


def test_two_processes_exchange_each_step_once_as_their_traces_show() -> None:
    for profile in results_of(profile_ddp, workers=2):
        events = events_inside(profile)
        # One bucket holds the whole model. The barrier before the window is no exchange of a step.
        assert events["gloo:all_reduce"] == 4
        assert "gloo:barrier" not in events
