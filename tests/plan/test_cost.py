"""Prices of nodes, and the expected cost of a plan by the nodes of its worlds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dtsweep import Measure, Resources, Sweep, SweepError, workloads
from dtsweep.plan.cost import Nodes, Range, nodes_of_prices, planned_cost
from dtsweep.plan.estimate import session_times
from dtsweep.plan.plan import Plan, make_plan
from dtsweep.plan.prices import (
    PricedType,
    Prices,
    prices_of,
    read_prices,
    read_types,
    written_types,
)
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.point import World
from tests.pages import ROOT

PRICES = Prices(
    types={
        "gpu": PricedType(name="gpu", usd_per_hour=80.0, gpus=8.0, cpus=96.0),
        "cpu": PricedType(name="cpu", usd_per_hour=1.0, cpus=4.0),
        "head": PricedType(name="head", usd_per_hour=0.5),
    }
)


def sweep_of(workers: list[int], **resources: Any) -> Sweep:
    return Sweep(
        workload=workloads.Gpt(),
        axes={"workers": workers},
        measure=Measure(repeats=1, nested=False),
        resources=Resources(**resources),
    )


def plan_of(sweep: Sweep) -> Plan:
    return make_plan(sweep, candidates(sweep), [])


def world(workers: int, placement: str = "pack") -> World:
    return World(workers=workers, placement=placement, environment=())


def test_a_world_takes_as_many_nodes_of_a_type_as_hold_its_workers() -> None:
    nodes = nodes_of_prices(sweep_of([1], gpus_per_worker=1), PRICES)
    assert nodes.of_world(world(8)) == Range(80.0, 80.0)
    assert nodes.of_world(world(9)) == Range(160.0, 160.0)
    assert nodes.of_world(world(9, "strict_pack")) is None
    assert nodes.of_world(world(3, "strict_spread")) == Range(240.0, 240.0)
    assert nodes.staying_usd_per_hour == 0.5
    assert "a worker has 1 CPU and 1 GPU, on nodes of gpu" in nodes.assumptions


def test_several_types_or_an_unknown_size_give_a_range() -> None:
    nodes = nodes_of_prices(sweep_of([1], gpus_per_worker=0, cpus_per_worker=1), PRICES)
    assert nodes.of_world(world(8)) == Range(2.0, 80.0)
    assert "a worker has 1 CPU, on nodes of gpu or cpu" in nodes.assumptions
    # Nodes of unknown size hold one worker or all.
    unknown = nodes_of_prices(sweep_of([1]), Prices(every_node=2.0))
    assert unknown.of_world(world(4)) == Range(2.0, 8.0)
    assert unknown.of_world(world(4, "strict_pack")) == Range(2.0, 2.0)
    assert unknown.of_world(world(4, "strict_spread")) == Range(8.0, 8.0)


def test_the_cost_is_that_of_each_world_for_its_time_with_starts_and_idle_nodes() -> None:
    sweep = sweep_of([1, 9], gpus_per_worker=1)
    plan = plan_of(sweep)
    seconds = {world.workers: time_s for world, time_s in session_times(sweep, plan.to_run, [])}
    assert sum(seconds.values()) == pytest.approx(plan.duration.middle_s)
    cost = planned_cost(sweep, plan, nodes_of_prices(sweep, PRICES))
    assert cost is not None
    busy = seconds[1] * 80.0 + seconds[9] * 160.0 + sum(seconds.values()) * 0.5
    assert cost.middle_usd == pytest.approx((busy + 300 * 160.0) / 3600)
    factor = plan.duration.high_s / plan.duration.middle_s
    assert cost.low_usd == pytest.approx((busy / factor + 300 * 160.0) / 3600)
    assert cost.high_usd == pytest.approx((busy * factor + 300 * 160.0) / 3600)
    assert cost.assumptions[0] == "starts of sessions are included"


def test_nodes_that_stay_cost_the_same_whatever_runs() -> None:
    sweep = sweep_of([1, 2])
    plan = plan_of(sweep)
    nodes = Nodes(of_world=lambda _: Range(0.0, 0.0), staying_usd_per_hour=36.0)
    cost = planned_cost(sweep, plan, nodes)
    assert cost is not None
    assert cost.middle_usd == pytest.approx(plan.duration.middle_s / 100)


def test_sessions_that_no_priced_node_can_hold_are_left_out_and_said() -> None:
    sweep = Sweep(
        workload=workloads.Gpt(),
        axes={"workers": [2, 9], "placement": ["strict_pack"]},
        measure=Measure(repeats=1, nested=False),
        resources=Resources(gpus_per_worker=1),
    )
    cost = planned_cost(sweep, plan_of(sweep), nodes_of_prices(sweep, PRICES))
    assert cost is not None
    assert "1 session left out, which no node with a price can hold" in cost.assumptions
    large = sweep_of([2], gpus_per_worker=0, cpus_per_worker=128)
    assert planned_cost(large, plan_of(large), nodes_of_prices(large, PRICES)) is None


# Prices of nodes: what a file may say


def written(folder: Path, text: str) -> Path:
    path = folder / "prices.toml"
    path.write_text(text)
    return path


def test_the_example_of_the_docs_is_read(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "decide.md").read_text("utf-8")
    example = page.partition("```toml\n")[2].partition("```")[0]
    assert example.startswith("# Made-up prices; enter your own.\n")
    prices = read_prices(written(tmp_path, example))
    assert prices.price_of("gpu") == 30.0
    assert prices.price_of("gpu@spot") == 12.0
    assert prices.price_of("cheap") == prices.price_of("cheap@spot") == 0.4
    assert prices.price_of("head") == 0.2


def test_one_price_is_that_of_every_node() -> None:
    prices = prices_of(None, 2.5)
    assert prices is not None
    assert prices.of_nodes({"a": 2, "8gpu-96cpu": 0.5}) == 6.25
    assert prices_of(None, None) is None


def test_nodes_with_one_unknown_price_have_an_unknown_one(tmp_path: Path) -> None:
    prices = read_prices(written(tmp_path, "[a]\nusd_per_hour = 1"))
    assert (prices.of_nodes({"a": 2}), prices.of_nodes({"a": 2, "b": 1})) == (2.0, None)
    # Free is not unknown.
    assert Prices(every_node=0.0).of_nodes({"b": 3}) == 0.0


def test_a_node_type_without_a_price_is_named_with_the_key_to_add(tmp_path: Path) -> None:
    prices = read_prices(written(tmp_path, "[a]\nusd_per_hour = 1"))
    assert prices.how_to_add("2cpu").startswith("add usd_per_hour to [2cpu] of ")
    assert prices.how_to_add("ray.head.default").startswith('add usd_per_hour to ["ray.head.')
    assert prices.how_to_add("a@spot").startswith("add spot_usd_per_hour to [a] of ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[gpu]\nusd_per_huor = 1",
            r"\[gpu\] has no key 'usd_per_huor'; did you mean 'usd_per_hour'\?",
        ),
        ("[gpu]\nusd_per_hour = -1", r"\[gpu\]: usd_per_hour = -1 must be a finite number, 0 or"),
        ("[gpu]\nusd_per_hour = inf", "usd_per_hour = inf must be a finite number"),
        ('[gpu]\nusd_per_hour = "1"', "usd_per_hour = '1' must be a finite number"),
        ("[gpu]\ncpus = 4", r"\[gpu\] needs usd_per_hour: USD for one node for one hour"),
        ("gpu = 2.5", r"gpu must be a table of a node type: \[gpu\] with usd_per_hour below it"),
        ("", r"prices\.toml has no node type; add one"),
        ("[gpu", r"prices\.toml' are not TOML: "),
        ('["gpu@spot"]\nusd_per_hour = 1', "spot nodes have the key spot_usd_per_hour"),
    ],
)
def test_a_mistake_in_prices_is_one_line_with_its_place(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(SweepError, match=message) as mistake:
        read_prices(written(tmp_path, text))
    assert "\n" not in str(mistake.value)
    assert "prices.toml" in str(mistake.value)


def test_prices_that_are_not_there_or_given_twice_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match=r"no\.toml' can't be read: No such file"):
        read_prices(tmp_path / "no.toml")
    with pytest.raises(SweepError, match="--price one for all; give one"):
        prices_of("prices.toml", 2.0)
    with pytest.raises(SweepError, match="must be a finite number"):
        prices_of(None, -2.0)


def test_types_of_nodes_are_read_as_they_were_written() -> None:
    counts = {"gpu": 2.0, "cpu@spot": 0.125, "g5+x1:a": 1.0}
    assert read_types(written_types(counts)) == counts
