"""Goals of cost, and prices that are given later."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dtsweep
from dtsweep import Goal, Resources, Sweep, SweepError, workloads
from dtsweep.analysis import Study, recommend
from dtsweep.analysis.decision import asks_for_cost, check_goal, decide
from dtsweep.plan.plan import policy_of
from dtsweep.plan.prices import PricedType, Prices
from dtsweep.report.later_prices import priced, without_price
from dtsweep.results.frames import trials_of_rows
from dtsweep.results.pack import attempt_files
from dtsweep.results.store import Results
from dtsweep.sweep.goal import GOALS, LAUNCHES
from dtsweep.sweep.values import column_types
from tests.measured import Machine

PRICES = Prices(types={"gpu": PricedType(name="gpu", usd_per_hour=36.0)})
TIMES = {"startup_s": 30.0, "nodes_wait_s": 10.0, "trial_s": 80.0, "overhead_s": 10.0}
"""A hundred seconds on the nodes, in which 36 USD an hour are a dollar."""


def store_rows(folder: Path, *rows: dict[str, Any]) -> None:
    store = Results(folder)
    for number, row in enumerate(rows):
        named = dict.fromkeys(("attempt_id", "trial_id", "point_id"), f"{number:032x}")
        defaults = {"role": "trial", "harness": "ray", "row_number": number + 1, "repeat": 1}
        store.write(attempt_files({**named, **defaults, **TIMES, "status": "ok", **row}))


def test_prices_that_are_given_later_hold_for_all_rows(tmp_path: Path) -> None:
    known = {"usd_per_hour": 1.0, "cost_usd": 7.0}
    types = ({"node_types": "gpu:2"}, {"node_types": "gpu:0.5"} | known)
    store_rows(tmp_path, *types, {"node_types": "other:1"} | known, {})
    frame = priced(dtsweep.load(tmp_path), PRICES)
    assert frame["usd_per_hour"].fillna(-1).tolist() == [72.0, 18.0, -1, -1]
    assert frame["cost_usd"].fillna(-1).tolist() == [2.0, 0.5, -1, -1]
    assert without_price(frame, PRICES) == ["other"]


@functools.cache
def study_with_prices(*prices: float | None) -> tuple[Machine, Study]:
    """Points of 1, 2 and 4 workers at 100, 190 and 300 samples/s, on nodes of these prices."""
    rates = {1: 100.0, 2: 190.0, 4: 300.0}
    price = dict(zip(rates, prices, strict=True))
    axes = {"workers": [*rates]}
    sweep = Sweep(
        workload=workloads.Gpt(), axes=axes, goal="cost", resources=Resources(gpus_per_worker=0)
    )
    machine = Machine(sweep, lambda point: rates[point.workers], noise=0.001)
    machine.columns = lambda point: {"usd_per_hour": price[point.workers]}
    machine.finish(policy_of(sweep))
    types = column_types(sweep.workload)
    return machine, Study(trials_of_rows(machine.rows, workload_types=types))


def test_the_cheapest_samples_are_found_and_a_sweep_asks_until_they_are() -> None:
    machine, study = study_with_prices(3.6, 7.2, 7.2)
    cheapest = study.points.set_index("workers")["usd_per_million_samples"]
    # 3.60 USD an hour are 0.1 cents a second, for 100 samples: 10 USD for a million.
    assert cheapest.to_dict() == pytest.approx({1: 10.0, 2: 10.53, 4: 6.667}, rel=0.01)
    (answer,) = recommend(study, GOALS["cost"])
    assert answer.point["workers"] == 4
    # Few launches decide it: no point is open, and none was launched as often as is allowed.
    assert decide(study, GOALS["cost"]).open_points == frozenset()
    assert max(row["repeat"] for row in machine.rows) < LAUNCHES
    # The interval is that of the rate, the other way round.
    trial = study.trials.iloc[0]
    cost = trial["usd_per_million_samples"]
    for end, other in (("low", "high"), ("high", "low")):
        share = trial["samples_per_s"] / trial[f"samples_per_s_{other}"]
        assert trial[f"usd_per_million_samples_{end}"] == pytest.approx(cost * share)
    share = trial["samples_per_s_error"] / trial["samples_per_s"]
    assert trial["usd_per_million_samples_error"] == pytest.approx(cost * share)


@pytest.mark.slow
def test_a_condition_on_the_cost_leaves_out_points_of_unknown_cost() -> None:
    _, study = study_with_prices(3.6, None, 7.2)
    (answer,) = recommend(study, Goal(maximize="samples_per_s", where="cost <= 11"))
    assert answer.point["workers"] == 4
    held = study.condition("usd_per_million_samples <= 8").holds(study.points)
    by_workers = dict(zip(study.points["workers"], held, strict=True))
    assert (by_workers[1], by_workers[4]) == (False, True)
    assert by_workers[2] is pd.NA


def test_a_goal_of_cost_is_known_before_anything_is_measured() -> None:
    for name in ("usd_per_million_samples", "usd_per_hour", "cost_usd"):
        check_goal(Goal(minimize=name))
    assert asks_for_cost(GOALS["cost"])
    assert asks_for_cost(Goal(maximize="samples_per_s", where="usd_per_hour <= 3"))
    assert asks_for_cost(Goal(maximize="samples_per_s", where="cost <= 3 and workers <= 2"))
    assert not asks_for_cost(GOALS["throughput"])
    sweep = Sweep(workload=workloads.Gpt(), axes={"workers": [1]}, goal="cost")
    with pytest.raises(
        SweepError, match="the goal asks for a cost, and nodes have no price: add --prices"
    ):
        dtsweep.run(sweep, in_process=True)
    with pytest.raises(
        SweepError, match="a limit of cost needs the prices of nodes: add --prices FILE, or"
    ):
        dtsweep.run(sweep, in_process=True, max_cost=3)
