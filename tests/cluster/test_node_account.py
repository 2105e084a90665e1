"""The account of nodes: seconds add up to lifetimes, and money follows from prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtsweep.cluster.node_account import NodeAccount, NodeLife
from dtsweep.cluster.ray_nodes import type_of
from dtsweep.driver.budget import Budget
from dtsweep.metrics.attempt_result import AttemptResult
from dtsweep.metrics.charge import Charge
from dtsweep.plan.prices import PricedType, Prices
from tests.outcomes import facts

PRICES = Prices(
    types={
        "gpu": PricedType(name="gpu", usd_per_hour=36.0, spot_usd_per_hour=18.0),
        "cpu": PricedType(name="cpu", usd_per_hour=3.6),
    },
    source="prices.toml",
)
"""36 USD an hour is a cent a second."""


@dataclass
class World:
    """Nodes and a clock that a test moves."""

    lives: list[NodeLife] = field(default_factory=list)
    now: float = 1000.0
    said: list[str] = field(default_factory=list)

    def account(self, prices: Prices | None = PRICES, *, shares_nodes: bool = False) -> NodeAccount:
        return NodeAccount(
            lambda: self.lives,
            prices=prices,
            say=self.said.append,
            shares_nodes=shares_nodes,
            clock=lambda: self.now,
        )

    def node(self, name: str, node_type: str = "gpu", *, began: float = 0.0, room: int = 2) -> None:
        self.lives.append(NodeLife(node_id=name, node_type=node_type, began=began, room=room))

    def ends(self, name: str) -> None:
        self.lives = [
            replace(life, ended=self.now) if life.node_id == name else life for life in self.lives
        ]


def result(nodes: Sequence[str], status: str = "ok", **times: float) -> AttemptResult:
    where = {rank: replace(facts(), node_id=node) for rank, node in enumerate(nodes)}
    return AttemptResult(status=status, facts=where, **times)


def test_seconds_of_a_session_and_the_cost_of_its_rows() -> None:
    world = World()
    account = world.account()
    account.handed_out(0, session="s")
    # Both nodes come after 20 s, the session starts in 10 s, and the trial takes 30 s.
    world.now += 20
    world.node("a", began=world.now)
    world.node("b", began=world.now)
    world.now += 40
    started = result(["a", "b"], startup_s=30, nodes_wait_s=20, trial_s=30)
    first = account.ended(0, started, wall_s=60, is_trial=True)
    account.handed_out(0, session="s")
    world.now += 12
    lost = account.ended(0, result(["a", "b"], "node_lost", trial_s=12), wall_s=12, is_trial=True)
    world.ends("b")
    world.now += 8
    account.refresh()
    # 60 s of one node and 52 of the other, a cent a second.
    assert account.node_s() == {"gpu": 112}
    assert account.cost_usd == pytest.approx(1.12)
    assert first == Charge(node_types="gpu:2", usd_per_hour=72.0)
    times = {"startup_s": 30.0, "nodes_wait_s": 20.0, "trial_s": 30.0, "overhead_s": 0.0}
    assert first.columns(times)["cost_usd"] == pytest.approx(0.80)
    assert lost.columns({"trial_s": 12.0})["cost_usd"] == pytest.approx(0.24)
    assert account.words() == ["this run cost $1.12"]


def with_node(*, passed: float = 0.0) -> tuple[World, NodeAccount]:
    """A world of one node, and an account of it for so long."""
    world = World()
    world.node("a")
    account = world.account()
    world.now += passed
    return world, account


def test_an_attempt_that_is_cut_pays_for_the_nodes_of_its_session() -> None:
    world, account = with_node()
    account.handed_out(0, session="s")
    world.now += 10
    account.ended(0, result(["a"], trial_s=10), wall_s=10, is_trial=True)
    account.handed_out(0, session="s")
    world.now += 5
    cut = account.cut(0)
    assert (cut["node_types"], cut["usd_per_hour"], cut["trial_s"]) == ("gpu:1", 36.0, 5)
    # Another session may be on other nodes: nobody knows them yet.
    account.handed_out(0, session="t")
    world.now += 5
    cut = account.cut(0)
    assert (cut["node_types"], cut["trial_s"]) == (None, 5)


def test_slots_that_share_a_node_pay_the_part_of_their_workers() -> None:
    world = World()
    world.node("a", room=2)
    account = world.account(shares_nodes=True)
    for slot in (0, 1):
        account.handed_out(slot, session=slot)
    world.now += 100
    charges = [
        account.ended(slot, result(["a"], trial_s=100), wall_s=100, is_trial=True)
        for slot in (0, 1)
    ]
    assert charges == [Charge(node_types="gpu:0.5", usd_per_hour=18.0)] * 2
    assert sum(c.columns({"trial_s": 100.0})["cost_usd"] for c in charges) == pytest.approx(1.0)
    assert account.cost_usd == pytest.approx(1.0)


def test_a_type_without_a_price_makes_the_cost_unknown_and_is_said_once() -> None:
    world = World()
    world.node("a")
    world.node("b", "large@spot")
    account = world.account()
    account.handed_out(0, session="s")
    world.now += 10
    charge = account.ended(0, result(["a", "b"], trial_s=10), wall_s=10, is_trial=True)
    account.refresh()
    assert charge == Charge(node_types="gpu:1+large@spot:1", usd_per_hour=None)
    assert charge.columns({"trial_s": 10.0})["cost_usd"] is None
    assert account.cost_usd is None
    assert world.said == [
        "node type 'large@spot' has no price, so the cost is unknown; add "
        "spot_usd_per_hour to [large] of prices.toml"
    ]
    assert account.record()["usd_per_hour"] == {"gpu": 36.0}
    # Without prices nothing is said, and nothing costs anything that is known.
    unpriced = World(lives=world.lives)
    assert unpriced.account(None).cost_usd is None
    assert unpriced.said == []


def test_a_node_has_the_first_name_with_a_price_or_else_its_first_name_or_its_shape() -> None:
    def named(*names: str, shape: str = "2cpu", prices: Prices | None = PRICES) -> str:
        return type_of(names, shape=shape, is_spot=False, prices=prices)

    assert named("group", "gpu") == "gpu"
    assert named("group", "m5.large") == "group"
    # By its CPUs, with prices and without.
    assert (named("", ""), named("", "", prices=None)) == ("2cpu", "2cpu")
    # A monitor without a configuration gives each node a type of its own.
    assert named(f"node_{'0' * 56}") == "2cpu"
    assert type_of(["gpu"], shape="2cpu", is_spot=True, prices=PRICES) == "gpu@spot"
    assert PRICES.price_of("gpu@spot") == 18.0


@settings(deadline=None)
@given(lives=st.lists(st.tuples(st.integers(-5, 30), st.integers(1, 40)), min_size=1, max_size=3))
def test_seconds_are_the_lifetimes_in_the_run(lives: list[tuple[int, int]]) -> None:
    world = World(now=0.0)
    world.lives = [
        NodeLife(node_id=str(index), node_type="gpu", began=began, ended=began + length)
        for index, (began, length) in enumerate(lives)
    ]
    account = world.account()
    world.now = 80.0
    lifetimes = sum(max(0, began + length) - max(0, began) for began, length in lives)
    assert sum(account.node_s().values()) == pytest.approx(lifetimes)
    assert account.cost_usd == pytest.approx(lifetimes * 0.01)


def budget(account: NodeAccount | None = None, **limits: float) -> Budget:
    return Budget(elapsed_s=lambda: 0.0, first_trial_s=60.0, account=account, **limits)


def test_no_trial_begins_that_would_pass_the_limit_of_money() -> None:
    world, account = with_node(passed=100)
    # A dollar is spent; a trial of a minute on the one node costs 60 cents.
    assert budget(account, max_cost_usd=1.61).has_room()
    assert not budget(account, max_cost_usd=1.59).has_room()
    assert not budget(account, max_cost_usd=1.59).is_over()
    assert budget(account, max_cost_usd=1.0).is_over()
    # Earlier runs count.
    assert not budget(account, max_cost_usd=1.61, earlier_usd=0.5).has_room()
    # What trials took counts, once one has ended.
    account.handed_out(0, session="s")
    world.now += 10
    account.ended(0, result(["a"], trial_s=10), wall_s=10, is_trial=True)
    assert budget(account, max_cost_usd=1.21).has_room()
    assert not budget(account, max_cost_usd=1.19).has_room()


def test_no_trial_begins_that_would_pass_the_limit_of_time() -> None:
    assert budget(max_hours=61 / 3600).has_room()
    assert not budget(max_hours=59 / 3600).has_room()
    assert not budget(max_hours=59 / 3600).is_over()
    assert budget(max_hours=0).is_over()
    assert budget().has_room() and not budget().has_limit


def test_a_limit_says_what_is_spent_and_how_to_go_on() -> None:
    world, account = with_node(passed=412)
    over = budget(account, max_cost_usd=4.0)
    assert over.words() == "spent $4.12 of $4.00"
    assert over.next_step() == "the same command with --max-cost 8.2 goes on"
    nearly = budget(account, max_cost_usd=4.5)
    another = "another trial, of about 60 s, would pass the limit"
    assert nearly.words() == f"spent $4.12 of $4.50: {another}"
    assert budget(max_hours=0).next_step() == "the same command goes on"
    # A cost that becomes unknown ends the run as well.
    world.node("b", "large")
    account.refresh(at_once=True)
    assert over.is_over()
    assert over.words() == "what is spent of --max-cost 4 is unknown"
    assert over.next_step() == "the same command goes on once every node type has a price"


def test_nodes_that_stay_up_cost_on() -> None:
    world = World()
    world.node("a")
    world.node("b")
    world.node("head", "cpu", room=0)
    account = world.account()
    taken = "the autoscaler takes them away"
    head = "the head costs $3.60 an hour until it is taken down (ray down)"
    assert account.words_on_nodes_left(taken, idle_timeout_s=300.0) == [
        f"2 nodes still up: about $6.00 more until {taken}, idle for 5 min",
        head,
    ]
    assert account.words_on_nodes_left("you stop them", idle_timeout_s=None) == [
        "2 nodes still up: $72.00 an hour until you stop them",
        head,
    ]
    # What has ended costs no more, and of an unknown cost nothing is said.
    world.now += 8
    for name in ("a", "b", "head"):
        world.ends(name)
    account.refresh(at_once=True)
    assert account.words_on_nodes_left(taken, idle_timeout_s=None) == []
    world.node("c", "large")
    account.refresh(at_once=True)
    assert account.words_on_nodes_left(taken, idle_timeout_s=None) == []
