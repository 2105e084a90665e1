from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from dtsweep.compare.regressions import regressions
from dtsweep.errors import SweepError

BOTH = ("samples_per_s", "latency_s")
WITHIN = 0.003
"""Standard error of a window, as a share."""


def run(logs: Any) -> pd.DataFrame:
    """Launches of a run, as `measured` returns them.

    Args:
        logs: (points, launches) logarithms of rates, nan where a launch did not measure a point.
    """
    logs = np.asarray(logs, dtype=np.float64)
    points, launches = (~np.isnan(logs)).nonzero()
    rates = np.exp(logs[points, launches])
    values = {"samples_per_s": rates, "latency_s": 10 / rates}
    errors = {f"{name}_error": WITHIN * value for name, value in values.items()}
    names = {"point_id": points.astype(str), "launch": launches.astype(str)}
    return pd.DataFrame(names | values | errors).assign(env_id="a1b2", hosts=1, caution="")


def drawn(
    rng: np.random.Generator, sigmas: Any, *, launches: int, slower: float = 0.0
) -> pd.DataFrame:
    """A run whose launches shift all points together and each by itself.

    The first may be slower.
    """
    sigma = np.asarray(sigmas)[:, None]
    own, shared = rng.normal(0, 1, (len(sigma), launches)), rng.normal(0, 1, launches)
    logs = sigma * (own + shared) / 2**0.5 + rng.normal(0, WITHIN, own.shape)
    logs[0] -= slower
    return run(logs)


def compared(base: pd.DataFrame, new: pd.DataFrame, **options: Any) -> pd.DataFrame:
    return regressions(base, new, **{"of": BOTH, "threshold": 0.02} | options)


def test_what_is_slower_is_named_in_both_quantities_and_nothing_else() -> None:
    rng = np.random.default_rng(0)
    base, new = (drawn(rng, [0.01] * 4, launches=4, slower=slower) for slower in (0, 0.1))
    rows = compared(base, new)
    assert rows[rows["is_regression"]][["point_id", "of"]].to_numpy().tolist() == [
        ["0", "samples_per_s"],
        ["0", "latency_s"],
    ]
    ratios = rows[rows["point_id"] == "0"].set_index("of")["ratio"]
    assert ratios["samples_per_s"] == pytest.approx(1 / ratios["latency_s"])
    back = compared(new, base)
    assert back[back["point_id"] == "0"]["verdict"].tolist() == ["faster", "faster"]
    assert not back["is_regression"].any()


def test_what_is_slower_by_less_than_the_threshold_is_no_regression() -> None:
    base, new = run([[0.0, 0.0001, -0.0001]]), run([[-0.05, -0.0501, -0.0499]])
    for threshold, is_one in ((0.02, True), (0.04, True), (0.06, False)):
        rows = compared(base, new, threshold=threshold)
        assert rows["verdict"].tolist() == ["slower", "slower"]
        assert rows["is_regression"].tolist() == [is_one] * 2


def test_one_launch_each_is_unknown_and_never_unchanged() -> None:
    rows = compared(run([[0.0], [0.0]]), run([[-1.0], [0.0]]))
    assert set(rows["verdict"]) == {"unknown"}
    assert set(rows["verdict_reason"]) == {"one_launch_each"}
    assert not rows["is_regression"].any()
    assert rows["p_adjusted"].isna().all()


def test_a_point_with_one_launch_borrows_what_launches_add_from_the_others() -> None:
    others = np.full((6, 13), np.nan)
    others[0, 0] = 0
    for point in range(1, 6):
        others[point, [2 * point, 2 * point + 1]] = [0.01, -0.01]
    moved = others.copy()
    moved[0, 0] -= 0.2
    rows = compared(run(others), run(moved), of="samples_per_s")
    assert rows.set_index("point_id")["verdict"]["0"] == "slower"


def test_what_neither_run_has_a_value_of_is_said_to_be_so() -> None:
    base, new = (
        run([[0.0, 0.01]]).assign(step_p99_s=np.nan, step_p99_s_error=np.nan) for _ in "ab"
    )
    rows = compared(base, new, of="step_p99_s")
    assert rows[["verdict", "verdict_reason"]].to_numpy().tolist() == [["unknown", "not_measured"]]
    assert rows[["launches_base", "launches_new"]].to_numpy().tolist() == [[0, 0]]
    with pytest.raises(SweepError, match="launches can't be compared by 'mfu'"):
        compared(base, new, of=["mfu"])


def test_the_more_is_compared_the_more_a_difference_must_stand_out() -> None:
    rng = np.random.default_rng(3)
    few, many = (
        compared(drawn(rng, [0.01] * points, launches=3), drawn(rng, [0.01] * points, launches=3))
        for points in (1, 20)
    )
    assert few["detectable_ratio"].median() < many["detectable_ratio"].median()
    adjusted = many.sort_values("p_value")
    assert adjusted["p_adjusted"].is_monotonic_increasing
    assert adjusted["p_adjusted"].iloc[0] == pytest.approx(min(1, 40 * adjusted["p_value"].iloc[0]))


def test_points_of_other_machines_or_hosts_are_not_paired() -> None:
    base = run([[0.0, 0.01], [0.0, 0.01]])
    assert compared(base, base.assign(env_id="other")).empty
    assert compared(base, base.assign(hosts=2)).empty
    assert set(compared(base, base[base["point_id"] == "1"])["point_id"]) == {"1"}


def test_drift_widens_the_interval_of_single_launches_alone() -> None:
    rng = np.random.default_rng(5)
    base, one, several = (drawn(rng, [0.01] * 6, launches=count, slower=0.2) for count in (8, 1, 3))
    without, within = (compared(base, one, of="samples_per_s", drift=drift) for drift in (0.0, 0.5))
    assert (within["ratio_low"] / without["ratio_low"]).to_numpy() == pytest.approx(1 / 1.5)
    assert (within["detectable_ratio"] / without["detectable_ratio"]).to_numpy() == pytest.approx(
        1.5
    )
    assert (within["p_value"] == 1).all()
    pd.testing.assert_frame_equal(compared(base, several, drift=0.5), compared(base, several))


def test_noise_between_runs_is_no_regression_and_a_tenth_is_one() -> None:
    logs = np.random.default_rng(0).normal(0, 0.01, (12, 3)) + np.linspace(0, 1, 12)[:, None]
    first_alone = np.zeros((12, 1))
    first_alone[0] = np.log(1.1)
    # Two runs whose levels differ by 2 % each: up to 1.96 · 0.02 · √2, 5.5 %, is noise.
    for slower, is_one in ((0.05, False), (np.log(1.1), True)):
        rows = compared(run(logs), run(logs - slower), run_sigma=0.02)
        assert rows["is_regression"].any() == is_one
    rows = compared(run(logs), run(logs - first_alone), run_sigma=0.02)
    assert rows[rows["is_apart"]]["point_id"].unique().tolist() == ["0"]
    narrow = compared(run(logs), run(logs - first_alone))
    widths = [np.log(table["ratio_high"] / table["ratio_low"]) / 2 for table in (rows, narrow)]
    assert np.hypot(widths[1], 1.96 * 2**0.5 * 0.02).tolist() == pytest.approx(widths[0].tolist())
    assert compared(run(logs), run(logs - 0.05))["is_regression"].all()
