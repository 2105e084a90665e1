from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dtsweep.analysis import launch_sigma, over_launches, without_canaries
from dtsweep.analysis.launches import by_best_peak
from dtsweep.inference.variance import pool_unpaired
from tests.frames import trials


def rate(value: float, half: float | None = 0.0, **fields: Any) -> dict[str, Any]:
    """A trial with so many samples/s, known to ± half within its launch."""
    known = {"samples_per_s": value, **fields}
    if half is None:
        return known
    return {"samples_per_s_low": value - half, "samples_per_s_high": value + half, **known}


def two_launches(
    point_id: str, *values: float, half: float | None = 0.0, **fields: Any
) -> list[dict[str, Any]]:
    return [
        rate(value, half, point_id=point_id, repeat=n, **fields)
        for n, value in enumerate(values, 1)
    ]


def test_launch_sigma_is_what_launches_differ_by_beyond_their_steps() -> None:
    # 99 and 101 are 1 % off their mean: a variance of 2 · 0.01² with 1 degree of freedom, 0.01² of
    # it from the steps.
    frame = trials(*two_launches("a", 99, 101, half=1.96), *two_launches("b", 198, 202, half=3.92))
    ((_, found),) = launch_sigma(frame).iterrows()
    assert found["spread"] == pytest.approx(0.01 * 2**0.5)
    assert found["launch_sigma"] == pytest.approx(0.01, rel=1e-3)
    assert found["degrees"] == 2


def test_launch_sigma_takes_standard_errors_before_intervals() -> None:
    # The interval is wider than 1.96 standard errors say: it is made with Student's t, and has a
    # least width.
    rows = two_launches("a", 99, 101, half=6) + two_launches("b", 99, 101, half=6)
    known = launch_sigma(trials(*(row | {"samples_per_s_error": 1.0} for row in rows)))
    assert known["launch_sigma"].tolist() == pytest.approx([0.01], rel=1e-3)
    assert launch_sigma(trials(*rows))["launch_sigma"].tolist() == [0]


def test_a_point_is_unlike_the_others_where_its_launches_vary_much_more() -> None:
    squares = np.array([2.0, 2.0, 60.0, 2.0, 2.0, 2.0])
    degrees, within = np.full(6, 2.0), np.full(6, 1e-12)
    pool = pool_unpaired(squares, degrees, within, launch_degrees=12).of_all(
        np.array([True] * 6 + [False] * 2)
    )
    every = np.arange(8)
    assert pool.is_unlike(every).nonzero()[0].tolist() == [2]
    pairs = pool.is_unlike(*np.ix_(every, every))
    # Points 6 and 7 have one launch each, which says nothing of how much they vary.
    assert not pairs[6, 7]
    assert pairs[2, [0, 1, 3, 4, 5, 6, 7]].all()
    assert not np.delete(np.delete(pairs, 2, 0), 2, 1).any()


def test_one_drifting_launch_says_nothing_of_the_error_within_and_spoils_no_other() -> None:
    rows = [
        row | {"samples_per_s_error": 1.0} for row in two_launches("a", 99, 101, 100, half=None)
    ]
    rows[1] = rows[1] | {"samples_per_s_error": None}
    ((_, found),) = launch_sigma(trials(*rows)).iterrows()
    # The variance of 99, 101, 100 is 1, that within too.
    assert found["launch_sigma"] == 0
    assert launch_sigma(trials(*(rows[:1] + rows[2:])))["launch_sigma"].notna().all()


def test_launch_sigma_says_how_many_points_have_no_value() -> None:
    known = [{"step_p99_s": value, "step_p99_s_error": 0.01} for value in (0.99, 1.01)]
    rows = [row | {"point_id": point} for point in "ab" for row in known]
    rows += [{"point_id": "c"}, {"point_id": "c"}, {"point_id": "d"} | known[0], {"point_id": "d"}]
    frame = trials(*rows, {})
    found = launch_sigma(frame, of="step_p99_s")
    assert found[["points", "left_out"]].to_numpy().tolist() == [[2, 2]]
    none = launch_sigma(frame, of="step_p95_s")
    assert none[["points", "left_out"]].to_numpy().tolist() == [[0, 4]]
    assert none[["spread", "launch_sigma"]].isna().all(axis=None)


def test_launch_sigma_is_never_below_zero_and_unknown_where_no_launch_has_an_interval() -> None:
    wide = launch_sigma(trials(*two_launches("a", 99, 101, half=50)))
    assert wide["launch_sigma"].tolist() == [0]
    found = launch_sigma(trials(*two_launches("a", 99, 101, half=None)))
    assert found["launch_sigma"].isna().all()
    assert found["spread"].notna().all()
    assert launch_sigma(trials(rate(99), rate(101))).empty


def test_environments_have_their_own_launch_sigma() -> None:
    quiet = two_launches("a", 99, 101, env_id="quiet")
    found = launch_sigma(trials(*quiet, *two_launches("a", 90, 110, env_id="loud")))
    assert found["launch_sigma"]["loud"] == pytest.approx(10 * found["launch_sigma"]["quiet"])


def test_points_of_the_same_launches_say_once_what_the_launches_differ_by() -> None:
    rows = [
        rate(value, point_id=point, session=session)
        for point in "abcd"
        for session, value in [("first", 99), ("second", 101)]
    ]
    assert launch_sigma(trials(*rows))["degrees"].tolist() == [1]
    apart = [row | {"session": f"{row['session']} of {row['point_id']}"} for row in rows]
    assert launch_sigma(trials(*apart))["degrees"].tolist() == [4]


def test_one_launch_is_widened_by_what_launches_differ_by() -> None:
    several = [row for point in "abcd" for row in two_launches(point, 99, 101)]
    points = over_launches(trials(*several, rate(200, 3, point_id="one"))).set_index("point_id")
    # The launches' spread is 1.414 %, Student's t 2.776 with 4 degrees of freedom: 3.93 %, next to
    # 1.5 % of the window, on the logarithmic scale.
    for end, window in (("high", np.log(203 / 200)), ("low", np.log(197 / 200))):
        log = np.sign(window) * np.hypot(0.03926, window)
        assert points.loc["one", f"samples_per_s_{end}"] == pytest.approx(
            200 * np.exp(log), abs=1e-2
        )
    assert points["interval"].tolist() == ["pooled"] * 5


def test_no_interval_of_a_rate_or_a_time_reaches_below_zero() -> None:
    point = over_launches(trials(*two_launches("a", 60_000, 71_000))).iloc[0]
    rate, low, high = (point[f"samples_per_s{end}"] for end in ("", "_low", "_high"))
    assert 0 < low < 60_000
    assert high > 71_000
    assert rate**2 == pytest.approx(low * high)


def test_one_launch_keeps_its_interval_where_the_sweep_hardly_knows_more() -> None:
    single = rate(200, 3, point_id="one")
    points = over_launches(trials(*two_launches("a", 99, 101), single)).set_index("point_id")
    kept = points.loc["one", ["samples_per_s_low", "samples_per_s_high", "interval"]]
    assert kept.tolist() == [197, 203, "launch"]


def test_a_point_with_many_launches_is_judged_by_its_own_spread() -> None:
    many = two_launches("a", *[99, 101] * 4)
    others = [row for point in "bcdefghijklmnopqrst" for row in two_launches(point, 50, 150)]
    points = over_launches(trials(*many, *others)).set_index("point_id")
    assert points.loc["a", "interval"] == "launches"
    assert points.loc["a", "samples_per_s_high"] < 102


def test_the_exchange_share_is_averaged_over_launches_with_its_interval() -> None:
    shares = [{"point_id": "a", "comm_share": share, "mfu": 0.5} for share in (0.1, 0.2)]
    point = over_launches(trials(*shares)).iloc[0]
    assert point["comm_share"] == pytest.approx(0.15)
    # Half of 0.1 is 0.05; Student's t is 12.706 with 1 degree of freedom.
    assert point["comm_share_high"] == pytest.approx(0.15 + 12.706 * 0.05, abs=1e-3)
    assert point["mfu"] == 0.5


def test_a_stored_latency_goes_before_the_step_times_and_local_updates_have_the_mean_step() -> None:
    steps = {"step_p50_s": 0.1, "step_p50_s_low": 0.09, "step_p50_s_high": 0.11}
    steps |= {"step_mean_s": 0.2, "step_mean_s_low": 0.18, "step_mean_s_high": 0.22}
    stored = {"latency_s": 0.3, "latency_s_low": 0.2, "latency_s_high": 0.4}
    for row, expected in (
        (steps, [0.09, 0.1, 0.11]),
        (steps | {"semantics": "local"}, [0.18, 0.2, 0.22]),
        (steps | stored, [0.2, 0.3, 0.4]),
    ):
        point = over_launches(trials(row)).iloc[0]
        assert point[["latency_s_low", "latency_s", "latency_s_high"]].tolist() == expected


def test_launches_on_other_numbers_of_hosts_are_another_point() -> None:
    hosts = enumerate(zip((1, 2, 1, 2), (100, 60, 102, 62), strict=True))
    frame = trials(*(rate(r, 1, point_id="a", repeat=n, hosts=count) for n, (count, r) in hosts))
    points = over_launches(frame)
    assert points["hosts"].tolist() == [1, 2]
    assert points["launches"].tolist() == [2, 2]
    assert points["samples_per_s"].tolist() == [101, 61]
    spread = (1 / 101**2 + 1 / 61**2) ** 0.5
    assert launch_sigma(frame)["spread"].tolist() == pytest.approx([spread], rel=1e-6)


def test_canaries_are_no_launches_of_a_point() -> None:
    roles = ((100, None), (200, "trial"), (9, "canary"))
    frame = trials(*(rate(value, point_id="a", role=role) for value, role in roles))
    (point,) = over_launches(frame).to_dict("records")
    assert (point["launches"], point["samples_per_s"], len(without_canaries(frame))) == (2, 150, 2)


# Utilization by the best peak


def computing(flops: float, *, peak: float, **fields: Any) -> dict[str, Any]:
    """A trial whose workers do so many FLOP/s beside a peak."""
    shares = {"mfu": flops / peak, "hfu": 1.5 * flops / peak}
    peaks = {"peak_flops_per_s": peak, "peak_source": "measured", "cpus_per_worker": 1}
    return {"flops_per_s_per_worker": flops, "samples_per_s": 1.0, **peaks, **shares, **fields}


def test_points_that_compute_alike_have_the_same_mfu_whatever_peak_their_process_had_measured() -> (
    None
):
    found = by_best_peak(
        trials(computing(40, peak=80), computing(40, peak=74), computing(37, peak=74))
    )
    assert found["mfu"].tolist() == pytest.approx([0.5, 0.5, 0.4625])
    assert found["hfu"].tolist() == pytest.approx([0.75, 0.75, 0.69375])
    assert found["peak_flops_per_s"].tolist() == [80, 74, 74]


@pytest.mark.parametrize(
    ("field", "values"),
    [("env_id", "ab"), ("precision", ["fp32", "bf16"]), ("cpus_per_worker", [1, 2])],
)
def test_another_device_precision_or_number_of_threads_has_a_peak_of_its_own(
    field: str, values: Any
) -> None:
    one, other = (
        computing(40, peak=peak, **{field: value})
        for peak, value in zip((80, 50), values, strict=True)
    )
    assert by_best_peak(trials(one, other))["mfu"].tolist() == pytest.approx([0.5, 0.8])


@pytest.mark.parametrize("source", ["table", "given"])
def test_a_peak_that_is_not_measured_stays_the_measure(source: str) -> None:
    rows = [computing(40, peak=80, peak_source=source), computing(40, peak=74), {"mfu": None}]
    found = by_best_peak(trials(*rows))["mfu"]
    assert found.tolist()[:2] == pytest.approx([0.5, 40 / 74])
    assert found.isna().tolist() == [False, False, True]


def test_a_point_has_the_mean_of_comparable_shares() -> None:
    launches = [
        computing(40, peak=peak, point_id="a", session=session)
        for peak, session in ((80, "s"), (74, "t"))
    ]
    alone = computing(40, peak=76, point_id="b")
    assert over_launches(trials(*launches, alone))["mfu"].tolist() == pytest.approx([0.5, 0.5])
