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
            assert pd.isna(found["bound_share"])
        else:
            assert found["bound_share_low"] <= found["bound_share"] <= found["bound_share_high"]


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
    # Late updates that all workers make together have a wait of their own.
    together_late = together(0.3, 0.4) | {"semantics": "stale", "global_batch": 8}
    assert judged(together_late)["waiting_share"] > 0
    # With one worker there is a server as well.
    assert judged(alone(workers=1, **stale, **shares))["bound"] == "exchange"


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
    assert {"bound", "bound_reason", "input_share", "work_share"} <= set(found.columns)
