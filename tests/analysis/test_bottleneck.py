"""The limit of a point: named with its number where it is significant, else unknown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dtsweep
from dtsweep.analysis import bottleneck, over_launches
from dtsweep.analysis.bottleneck import parts_of
from dtsweep.analysis.next_axes import BF16_DEVICES, NextAxis
from dtsweep.hardware.peaks import peak_flops
from dtsweep.sweep.modes import MODES
from dtsweep.sweep.point_axes import AXES
from tests.frames import trials
from tests.pages import ROOT


def known(name: str, share: float, half: float = 0.01) -> dict[str, float]:
    """A share with its interval."""
    ends = {f"{name}_low": share - half, f"{name}_high": share + half}
    return {name: share, f"{name}_error": half / 2, **ends}


def alone(**other: Any) -> dict[str, Any]:
    """One worker, whose device computes for nearly all of the step."""
    shares = {"compute_share": 0.6, "memory_share": 0.1, "launch_share": 0.02}
    usual = {"step_mean_s": 0.1, "optimizer_s": 0.001, **shares, **known("data_share", 0.02, 0.002)}
    return usual | other


def together(exchange: float, wait: float, half: float = 0.01, **other: Any) -> dict[str, Any]:
    """Two workers that exchange and wait for so much of a step."""
    shares = {"comm_share": exchange + wait, "exchange_share": exchange, "wait_share": wait}
    row = alone(workers=2, overlap=True, comm_method="difference")
    for name, share in shares.items():
        row |= known(name, share, half)
    return row | other


def judged_each(*rows: dict[str, Any]) -> list[pd.Series[Any]]:
    """The points of rows that are one each, in their order."""
    found = bottleneck(trials(*rows)).set_index("point_id")
    return [found.loc[f"point{number}"] for number in range(len(rows))]


def judged(*rows: dict[str, Any]) -> pd.Series[Any]:
    """The only point of some rows."""
    ((_, found),) = bottleneck(trials(*rows)).iterrows()
    return found


def axes(found: pd.Series[Any]) -> list[str]:
    return [each.axis for each in found["next_axes"]]


LATE = {"straggler": "rank 1 on b"}
UNCOUNTED = {"compute_share": None, "memory_share": None, "launch_share": None}
NO_DATA = dict.fromkeys(("data_share", "data_share_low", "data_share_high"))
MIXED = "can't tell which of its parts limits it"

BOUNDS: list[tuple[dict[str, Any], str | None, str]] = [
    (together(0.55, 0.02, 0.03), "exchange", "exposed exchange 55 ± 3 % of the step"),
    (alone(**known("data_share", 0.7)), "input", "loading batches 70 ± 1 % of the step"),
    (together(0.05, 0.45, **LATE), "straggler", "waiting for rank 1 on b 90 ± 2 % of the step"),
    (alone(), "compute", "peak 60 %, moving bytes 10 %, launching operations 2 %"),
    (alone(compute_share=0.05, memory_share=0.8), "memory", "device work 98 % of the step: arith"),
    (alone(compute_share=0.01, launch_share=0.4), "host", "launching operations 40 %"),
    # A GPU that was seen without work.
    (
        alone(compute_share=0.4, device_idle_low=0.55, device_idle_high=0.6),
        "host",
        "launching operations 2 %, GPU without work 55 to 60 %",
    ),
    (
        alone(launch_share=0.5, device_idle_low=0.0, device_idle_high=0.02),
        "compute",
        "launching operations 50 %, GPU without work 0 to 2 %",
    ),
    (
        alone(compute_share=0.05, launch_share=None, device_idle_low=0.3, device_idle_high=0.4),
        "host",
        "GPU without work 30 to 40 %",
    ),
    # Parts that noise does not tell apart.
    (
        together(0.55, 0.0, 0.08),
        None,
        "can't tell exposed exchange 55 ± 8 % from device work 43 ± 8 %",
    ),
    # Of device work, a limit is twice each other one, and a fifth of it.
    (alone(compute_share=0.3, memory_share=0.15), "compute", ""),
    (alone(compute_share=0.3, memory_share=0.29), None, MIXED),
    (alone(compute_share=0.3, memory_share=0.45), None, MIXED),
    (alone(compute_share=0.3, memory_share=0.7), "memory", ""),
    (
        alone(compute_share=0.1, memory_share=0.03),
        None,
        "nothing that is known explains it (arithmetic at the peak 10 %",
    ),
    # Without counted operations the utilization stands for them.
    (alone(**UNCOUNTED, mfu=0.6), "compute", ""),
    (alone(**UNCOUNTED, mfu=0.4, hfu=0.6), "compute", ""),
    (alone(**UNCOUNTED, mfu=0.4), None, ""),
    (alone(**UNCOUNTED), None, "nothing is known of its operations"),
    # Workers that take turns in being slowest.
    (together(0.02, 0.7, straggler=None), None, "of the step: none stands out"),
    (
        together(0.3, 0.2, compute_share=0.1) | NO_DATA,
        None,
        "the loading of batches was not measured: its limit is unknown",
    ),
    # Numbers that contradict each other.
    (alone(flags=["implausible"]), None, ""),
    (
        together(0.3, 0.3, **known("data_share", 0.6)),
        None,
        "what was measured of the step adds up to 120 % of it",
    ),
]


def test_each_bound_is_named_with_its_number_or_it_is_said_why_there_is_none() -> None:
    points = judged_each(*(row for row, _, _ in BOUNDS))
    for found, (_, bound, reason) in zip(points, BOUNDS, strict=True):
        assert found["bound"] == bound, found["bound_reason"]
        assert reason in found["bound_reason"]
        if bound is None:
            assert found["next_axes"] == []
            assert pd.isna(found["bound_share"])
        else:
            assert found["bound_share_low"] <= found["bound_share"] <= found["bound_share_high"]
            assert 1 <= len(found["next_axes"]) <= 3


def test_a_share_of_unknown_noise_must_be_far_ahead() -> None:
    rows = [
        together(share, 0.0) | {f"exchange_share_{end}": None for end in ("low", "high")}
        for share in (0.8, 0.6)
    ]
    frame = trials(*rows, exchange_share_error=None)
    assert bottleneck(frame)["bound"].tolist() == ["exchange", None]


def test_the_slow_worker_of_four_is_measured_against_the_others() -> None:
    # Own work 1, 1, 1, 3 in a step of 3: the mean is 1.5, the wait half of the step; without it two
    # thirds are saved.
    row = together(0.0, 0.5, workers=4, straggler="rank 3 on b", compute_share=0.1)
    found = judged(row)
    assert found["bound"] == "straggler"
    assert found["bound_share"] == pytest.approx(2 / 3)
    assert found["work_share"] == pytest.approx(1 / 3 - 0.02)


def test_a_straggler_counts_where_most_launches_name_it() -> None:
    row = together(0.05, 0.6, workers=4, point_id="p")
    names = ["rank 1 on b", "rank 1 on b", None]
    rows = [
        row | {"straggler": name, "repeat": n, "session": str(n)} for n, name in enumerate(names)
    ]
    assert judged(*rows)["bound"] == "straggler"
    assert judged(*rows[1:])["bound"] is None


def named_of(launches: int, *, points: int) -> tuple[int, int]:
    """Points with a bound, and with a wrong one, of points that each session measured.

    Work takes 60 % of each step and the exchange 30 %, known to 16 points by a window.
    """
    rng = np.random.default_rng(0)
    rows = [
        together(0.30 + noise, 0.05, 1.96 * 0.08, compute_share=0.3)
        | {"point_id": str(point), "session": str(launch)}
        for point in range(points)
        for launch, noise in enumerate(rng.normal(0, 0.08, launches))
    ]
    bounds = bottleneck(trials(*rows))["bound"]
    return int(bounds.notna().sum()), int((bounds.dropna() != "compute").sum())


def test_three_launches_name_more_bounds_than_one() -> None:
    one, three = (named_of(launches, points=60) for launches in (1, 3))
    assert three[0] > one[0]
    assert three[1] == 0


def test_what_was_not_measured_of_the_exchange_leaves_it_open() -> None:
    why = "a step after the window does not fit into memory"
    row = alone(workers=2, comm_reason=why, compute_share=0.3)
    found = judged(row)
    assert found["bound"] is None
    assert found["bound_reason"] == f"{why}: its limit is unknown"
    assert pd.isna(found[["exchange_share", "waiting_share", "work_share"]]).all()
    # Whatever the exchange takes, it is less than what arithmetic or batches surely take.
    assert judged(row | {"compute_share": 0.6})["bound"] == "compute"
    assert judged(row | known("data_share", 0.65))["bound"] == "input"


def test_pushes_of_an_asynchronous_worker_are_its_exchange() -> None:
    shares = known("comm_share", 0.7)
    stale: dict[str, Any] = {"sync": "parameter_server", "shards": 1, "semantics": "stale"}
    stale |= {"overlap": None, "global_batch": None}
    found = judged(alone(workers=2, **stale, **shares))
    assert found["bound"] == "exchange"
    assert (found["exchange_share"], found["waiting_share"]) == (0.7, 0.0)
    assert axes(found) == ["push_period", "shards", "accumulation"]
    # Late updates that all workers make together have a wait of their own.
    together_late = together(0.3, 0.4) | {"semantics": "stale", "global_batch": 8}
    assert judged(together_late)["waiting_share"] > 0
    # With one worker there is a server as well.
    assert judged(alone(workers=1, **stale, **shares))["bound"] == "exchange"


LOCAL = {"sync": "local_sgd", "semantics": "local", "sync_period": 8, "overlap": None}
OWN_LOOP = {"sync": "as_written", "overlap": None, "micro_batch": None, "precision": None}
WAITING = {**LATE, "overlap": None}
MOVING = alone(compute_share=0.1, memory_share=0.9, optimizer_s=0.03)

READING = alone(backend="gloo", **known("data_share", 0.65))

AXES_OF: list[tuple[dict[str, Any], list[str]]] = [
    (together(0.6, 0.0), ["accumulation", "compression", "bucket_bytes"]),
    (together(0.6, 0.0, overlap=False), ["overlap", "accumulation", "compression"]),
    (together(0.6, 0.0, **LOCAL), ["sync_period", "accumulation", "compression"]),
    (together(0.6, 0.0, sync="fsdp", overlap=None), ["micro_batch", "sync"]),
    (
        together(0.6, 0.0, compression="topk", semantics="lossy", compress_s=0.05),
        ["compression", "accumulation", "bucket_bytes"],
    ),
    (together(0.05, 0.45, **WAITING), ["workers", "sync"]),
    (
        together(0.05, 0.45, **WAITING, sync="parameter_server", staleness=0),
        ["drop_slowest", "workers", "staleness"],
    ),
    (together(0.05, 0.45, **LATE, **LOCAL), ["workers", "sync_period"]),
    # A training loop of the user has no modes or compressions to try.
    (together(0.6, 0.0, **OWN_LOOP), ["accumulation"]),
    (alone(**OWN_LOOP, **known("data_share", 0.65)), ["loader.num_workers", "workload"]),
    (READING, ["loader_workers", "workload", "micro_batch"]),
    (READING | {"loader_workers": 1, "prefetch": 2}, ["loader_workers", "prefetch", "workload"]),
    (READING | {"backend": "nccl"}, ["loader_workers", "copy_ahead", "pin_memory"]),
    (READING | {"sync": "federated"}, ["workload", "micro_batch"]),
    # Devices without a known rate of bf16 are not offered it, nor CPUs of one host more workers.
    (MOVING | {"devices": "NVIDIA A100-SXM4-80GB"}, ["accumulation", "precision", "workload"]),
    (MOVING | {"backend": "nccl", "devices": "Tesla T4"}, ["accumulation", "workload", "workers"]),
    (MOVING | {"backend": "gloo"}, ["accumulation", "workload"]),
    (MOVING | {"backend": "gloo", "hosts": 2}, ["accumulation", "workload", "workers"]),
]


def test_the_axes_to_try_fit_the_bound_the_mode_and_the_device() -> None:
    points = judged_each(*(row for row, _ in AXES_OF))
    assert [axes(found) for found in points] == [expected for _, expected in AXES_OF]


def test_bf16_is_tried_on_the_devices_that_the_table_of_peaks_has_a_rate_for() -> None:
    names = ("NVIDIA H100 80GB HBM3", "NVIDIA GB200", "NVIDIA A10G", "NVIDIA L40S", "AMD MI300X")
    others = ("Tesla V100-SXM2-16GB", "Tesla T4", "AMD EPYC 7B13", "Intel(R) Xeon(R) 8481C")
    for name in (*names, *others):
        has_rate = peak_flops(name, "bf16") is not None
        assert (BF16_DEVICES.search(name) is not None, has_rate) == (name in names, name in names)


def test_a_share_that_was_not_measured_gives_no_advice() -> None:
    unknown = dict.fromkeys(("comm_share", "exchange_share", "wait_share"))
    found = judged(alone(workers=2, compute_share=0.9, **unknown))
    assert (found["bound"], axes(found)) == ("compute", [])


def test_every_mode_has_axes_for_its_exchange_that_it_reads() -> None:
    rows = []
    for name, mode in MODES.items():
        own = {key: (value if value is not None else 1) for key, value in mode.reads.items()}
        fields = {"sync": name, "semantics": mode.semantics(own), "overlap": None}
        rows.append(together(0.6, 0.0, **fields | own))
    for found, mode in zip(judged_each(*rows), MODES.values(), strict=True):
        assert found["bound"] == "exchange"
        assert len(found["next_axes"]) >= 2 - mode.shares_memory
        for each in found["next_axes"]:
            assert each.axis in AXES
            is_of_modes = any(each.axis in other.reads for other in MODES.values())
            assert not is_of_modes or each.axis in mode.reads


def test_an_axis_attacks_no_more_than_its_share_of_the_step() -> None:
    found = judged(alone(compute_share=0.05, memory_share=1.3, optimizer_s=0.03))
    assert found["bound"] == "memory"
    # More bytes than the step has time for: rates were measured at another moment.
    shares = {each.axis: each[1] for each in found["next_axes"]}
    assert shares == pytest.approx({"accumulation": 0.3, "workload": 0.98, "workers": 0.98})


def test_a_point_far_below_the_peak_is_told_to_make_larger_products() -> None:
    far, near = judged_each(
        *(alone(compute_share=share, memory_share=0.01) for share in (0.3, 0.7))
    )
    larger = "larger products come nearer the device's peak"
    assert NextAxis("micro_batch", pytest.approx(0.68), larger) in far["next_axes"]
    assert "micro_batch" not in axes(near)


shares = st.none() | st.floats(0, 1)


@given(
    st.fixed_dictionaries(
        {f"{name}_share": shares for name in ("exchange", "wait", "data", "comm", "compute")}
    ),
    st.sampled_from(["exact", "stale", "local"]),
    st.integers(1, 9),
    st.booleans(),
)
def test_the_parts_of_a_step_add_up_to_it(
    shares: dict[str, float | None], semantics: str, workers: int, is_late: bool
) -> None:
    row: dict[str, Any] = {f"{name}{end}": None for name in shares for end in ("_low", "_high")}
    row |= shares | {"sync": "ddp", "shards": None, "semantics": semantics, "workers": workers}
    row["straggler"] = "rank 1 on b" if is_late and workers > 1 else None
    parts = parts_of(row)
    assert all(part.low <= part.high or part.share is None for part in parts)
    if all(part.share is not None for part in parts):
        assert sum(part.share or 0.0 for part in parts) == pytest.approx(1)
    else:
        assert parts[-1].share is None
        assert parts[-1].low == (row["compute_share"] or 0.0)


def test_of_real_rows_the_parts_add_up_and_are_those_that_were_stored() -> None:
    frame = dtsweep.load(ROOT / "tests" / "data" / "three_modes")
    found, points = bottleneck(frame), over_launches(frame)
    assert found["point_id"].tolist() == points["point_id"].tolist()
    parts = ["input_share", "exchange_share", "waiting_share", "work_share"]
    assert found[parts].sum(axis=1).tolist() == pytest.approx([1] * 6)
    stale = points["semantics"] == "stale"
    comm = found["exchange_share"] + found["waiting_share"]
    # No straggler stands out, so waiting is as it was stored.
    assert comm.tolist() == pytest.approx(points["comm_share"].fillna(0.0).tolist())
    assert stale.any()


def test_no_trials_give_no_rows_but_all_columns() -> None:
    found = bottleneck(trials({"status": "oom_device"}))
    assert len(found) == 0
    assert {"bound", "bound_reason", "next_axes", "input_share", "work_share"} <= set(found.columns)
