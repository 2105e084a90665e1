from __future__ import annotations

from typing import Any

import pytest

from dtsweep.analysis import over_launches
from dtsweep.analysis.launches import by_best_peak
from tests.frames import trials


def computing(
    flops: float, *, peak: float, source: str = "measured", **fields: Any
) -> dict[str, Any]:
    """A trial whose workers do so many FLOP/s beside a peak."""
    known = {
        "peak_flops_per_s": peak,
        "peak_source": source,
        "mfu": flops / peak,
        "hfu": 1.5 * flops / peak,
    }
    return {
        "flops_per_s_per_worker": flops,
        "cpus_per_worker": 1,
        "samples_per_s": 1.0,
        **known,
        **fields,
    }


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
    rows = [computing(40, peak=80, source=source), computing(40, peak=74), {"mfu": None}]
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
