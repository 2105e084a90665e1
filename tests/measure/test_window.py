"""A window ends where its rule says, on all ranks at once.

Time is an argument, so nothing here waits.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch._C._distributed_c10d import HashStore, PrefixStore, TCPStore

from dtsweep.measure.stopping import LEAST_STEPS, Rule
from dtsweep.measure.window import Peers, Store, Window
from dtsweep.sweep.settings import Measure
from tests.series import drawn

ALONE = Peers()

FIXED = Measure(half_width=None, min_steps=5, min_seconds=1.0)


class Rank:
    """A rank whose clock each of its steps moves on."""

    def __init__(
        self,
        measure: Measure,
        step_s: float | Callable[[int], float],
        *,
        peers: Peers = ALONE,
        period: int = 1,
        expected_s: float = 0.0,
        look_s: float = 0.0,
    ) -> None:
        """Steps take `step_s`, a look at the interval `look_s`.

        `expected_s` is what the warm-up said of a period.
        """
        self.now, self._taken, self._step_s = 1000.0, list[float](), step_s
        self._look_s, self.looked_s = look_s, 0.0
        rule = Rule(measure, period=period, period_s=expected_s)
        self.window = Window(measure, rule, self._look, peers=peers, now=lambda: self.now)
        self._steps = iter(self.window)

    def _look(self) -> NDArray[np.float64]:
        self.now += self._look_s
        self.looked_s += self._look_s
        return np.array(self._taken)

    def step(self) -> bool:
        """Take a step, if the window has one."""
        for step in self._steps:
            self._taken.append(self._step_s(step) if callable(self._step_s) else self._step_s)
            self.now += self._taken[-1]
            return True
        return False

    def run(self) -> tuple[int, str]:
        """Take all steps; say how many there were and why the window ended."""
        while self.step():
            pass
        return self.window.steps, self.window.reason


def jittery(seed: int, *, mean_s: float = 1.0, cv: float = 0.05) -> Callable[[int], float]:
    """Step times that are a rank's own."""
    series = mean_s * drawn(1, 2000, cv=cv, seed=seed)[0]
    return series.__getitem__


# One rank


def test_a_fixed_window_has_both_its_least_steps_and_its_least_seconds() -> None:
    assert Rank(FIXED, 0.125).run() == (8, "enough")
    assert Rank(FIXED, 2.0).run() == (5, "enough")
    # It has steps even if no time is allowed.
    assert Rank(Measure(max_seconds=0), 0.01).run() == (5, "max_seconds")


def test_a_window_ends_at_the_first_look_that_is_precise() -> None:
    # 3 × 0.5 ÷ 75 steps is 2 %.
    assert Rank(Measure(), 0.125).run() == (75, "precise")
    # 4 s are 128 steps: the look after that is at 129.
    assert Rank(Measure(min_seconds=4), 0.03125).run() == (129, "precise")


def test_long_steps_are_looked_at_earlier() -> None:
    # To 5 %: 3 × 0.38 ÷ 12 steps of 2 s is 4.75 %; looks are at 8, 10 and 12 steps.
    loose = Measure(half_width=0.05, min_steps=1)
    assert Rank(loose, 2.0, expected_s=2.0).run() == (12, "precise")
    assert Rank(loose, 2.0).run() == (30, "max_seconds")
    # To 2 % 29 steps would do: 58 s of 60.
    assert Rank(Measure(), 2.0, expected_s=2.0).run() == (29, "precise")


def test_looks_take_no_more_than_their_share_of_the_window_but_for_the_last() -> None:
    look_s, measure = 0.0005, Measure(half_width=0.005, min_steps=1, min_seconds=0, max_steps=2000)
    short = Rank(measure, jittery(0, mean_s=0.001, cv=0.3), look_s=look_s)
    assert short.run() == (2000, "max_steps")
    assert 3 * look_s < short.looked_s <= 0.002 * (short.now - 1000.0) + look_s


def test_a_window_that_never_gets_sure_ends_at_its_maximum() -> None:
    # 1.96 × 0.4 ÷ √1000 is 2.5 %.
    assert Rank(Measure(max_seconds=5000), jittery(0, cv=0.4)).run() == (1000, "max_steps")
    steps, reason = Rank(Measure(max_seconds=500), jittery(0, cv=0.4)).run()
    assert reason == "max_seconds"
    assert 450 < steps < 550


@pytest.mark.parametrize(
    ("measure", "end"),
    [
        # Looks at 64, 76.8 and 92.16 steps, up to whole periods.
        (Measure(min_seconds=0), (80, "precise")),
        (Measure(half_width=None, min_steps=10, min_seconds=0), (16, "enough")),
        (Measure(min_steps=1, min_seconds=9, max_steps=20), (16, "max_steps")),
        # One full period is measured whatever the maximum.
        (Measure(max_steps=3), (8, "max_steps")),
        (Measure(max_seconds=0.05), (8, "max_seconds")),
    ],
)
def test_a_window_is_a_multiple_of_the_sync_period_and_at_most_the_maximum(
    measure: Measure, end: tuple[int, str]
) -> None:
    assert Rank(measure, 0.01, period=8).run() == end


@settings(deadline=None)
@given(
    period=st.integers(1, 12),
    step_s=st.floats(1e-4, 30),
    guess=st.floats(0.2, 5),
    limits=st.builds(
        lambda half_width, steps, seconds: Measure(
            half_width=half_width,
            min_steps=steps[0],
            max_steps=steps[1],
            min_seconds=seconds[0],
            max_seconds=seconds[1],
        ),
        half_width=st.sampled_from([None, 0.02]),
        steps=st.tuples(st.integers(1, 200), st.integers(1, 300)).map(sorted),
        seconds=st.tuples(st.floats(0, 20), st.floats(0, 60)).map(sorted),
    ),
)
def test_with_ranks_in_step_a_window_overruns_its_limits_by_two_looks_at_most(
    period: int, step_s: float, guess: float, limits: Measure
) -> None:
    period_s = step_s * period
    peers = Peers(store=HashStore())
    steps, reason = Rank(
        limits, step_s, period=period, peers=peers, expected_s=period_s * guess
    ).run()
    assert steps % period == 0
    assert period <= steps <= max(period, limits.max_steps)
    # Looks are 0.2 s apart or a period, if the warm-up guessed the period well; the guess may be
    # off.
    overrun = 2 * max(0.2 / guess, period_s) + period_s
    least_s = max(LEAST_STEPS, period) * step_s
    assert steps * step_s <= max(limits.max_seconds, least_s) + overrun + 1e-6
    if reason in ("enough", "precise"):
        assert steps >= limits.min_steps
        assert steps * step_s >= limits.min_seconds - 1e-6


@pytest.mark.parametrize("limits", [Measure(max_seconds=5), Measure(half_width=None)])
def test_without_a_warm_up_the_limits_hold_all_the_same(limits: Measure) -> None:
    steps, _ = Rank(limits, 0.5, peers=Peers(store=HashStore()), expected_s=0.0).run()
    assert steps <= 22


# Ranks that step together

PATIENCE = timedelta(seconds=60)


@pytest.fixture(scope="module")
def ways() -> list[TCPStore]:
    """A server, and two more ways to it."""
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=PATIENCE)
    others = [
        TCPStore("127.0.0.1", server.port, is_master=False, timeout=PATIENCE) for _ in range(2)
    ]
    return [server, *others]


@pytest.fixture
def stores(request: pytest.FixtureRequest, ways: list[TCPStore]) -> list[Store]:
    """For each of three ranks its own way to one store, with keys of this test alone."""
    return [PrefixStore(request.node.name, way) for way in ways]


def test_ranks_end_at_their_next_look_when_rank_0_has_given_up(stores: list[Store]) -> None:
    ranks = [
        Rank(FIXED, 0.1, peers=Peers(rank=rank, store=stores[rank]), expected_s=0.1)
        for rank in range(2)
    ]
    for _ in range(4):
        assert all(rank.step() for rank in ranks)
    ranks[0].window.give_up()
    steps, reason = ranks[1].run()
    assert (steps < 50, reason) == (True, "gave_up")


def run_together(ranks: list[Rank]) -> list[int]:
    """Run all ranks, each on a thread.

    Without a barrier between steps, they run apart as far as the looks let them.
    """
    threads = [threading.Thread(target=rank.run, daemon=True) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=PATIENCE.total_seconds())
    assert all(rank.window.reason for rank in ranks)
    return [rank.window.steps for rank in ranks]


@pytest.mark.parametrize(
    ("limits", "reason", "period"),
    [
        (Measure(half_width=None, min_steps=30, min_seconds=0.3), "enough", 1),
        (Measure(max_seconds=0.7), "max_seconds", 4),
        (Measure(max_steps=9), "max_steps", 4),
        (Measure(min_seconds=0), "precise", 1),
        (Measure(min_seconds=0), "precise", 4),
    ],
)
def test_ranks_stop_at_the_same_step_though_their_clocks_and_step_times_differ(
    stores: list[Store], limits: Measure, reason: str, period: int
) -> None:
    ranks = [
        Rank(
            limits,
            jittery(number, mean_s=0.01 * (1 + number)),
            period=period,
            peers=Peers(rank=number, store=stores[number]),
            expected_s=0.02 * period,
        )
        for number in range(3)
    ]
    (steps,) = set(run_together(ranks))
    assert steps % period == 0
    assert ranks[0].window.reason == reason


@pytest.mark.parametrize("step_s", [0.33, 0.34, 20.0])
@pytest.mark.parametrize(("period", "steps"), [(1, 6), (8, 16)])
def test_long_steps_have_their_least_number_on_all_ranks_whatever_max_seconds_says(
    step_s: float, period: int, steps: int
) -> None:
    store, brief = HashStore(), Measure(half_width=0.05, max_seconds=1)
    for number in range(2):
        peers, period_s = Peers(rank=number, store=store), step_s * period
        rank = Rank(brief, step_s, period=period, peers=peers, expected_s=period_s)
        # Five or a period, and another one (or period) until all have read the decision.
        assert rank.run() == (steps, "max_seconds")


def test_only_rank_0_decides() -> None:
    store = HashStore()
    loose = Measure(half_width=0.06, max_seconds=5)
    fast, slow = (
        Rank(loose, s, peers=Peers(rank=r, store=store)) for r, s in enumerate([0.1, 9.0])
    )
    assert fast.run() == slow.run() == (31, "precise")


# Ranks with steps of their own


def apart(
    number: int, store: Store, measure: Measure, step_s: float | Callable[[int], float]
) -> Rank:
    """A rank that looks every other step, if these take 0.1 s."""
    return Rank(
        measure, step_s, peers=Peers(rank=number, store=store, in_step=False), expected_s=0.1
    )


def test_ranks_with_steps_of_their_own_stop_within_a_look_of_rank_0(stores: list[Store]) -> None:
    measure = Measure(max_seconds=1000)
    ranks = [
        apart(number, stores[number], measure, jittery(number, mean_s=0.1)) for number in range(3)
    ]
    # The second takes two steps in the time of one, the third one in the time of two.
    for turn in itertools.count():
        ranks[1].step(), ranks[1].step()
        if turn % 2:
            ranks[2].step()
        if not ranks[0].step():
            break
    steps, reason = ranks[0].window.steps, ranks[0].window.reason
    assert reason == "precise"
    before = [rank.window.steps for rank in ranks[1:]]
    assert before == [pytest.approx(2 * steps, abs=3), pytest.approx(steps / 2, abs=3)]
    after = [rank.run() for rank in ranks[1:]]
    assert [why for _, why in after] == ["precise", "precise"]
    assert all(0 <= now - then <= 2 for (now, _), then in zip(after, before, strict=True))


def test_rank_0_tells_the_others_of_its_last_step_too() -> None:
    store = HashStore()
    first, other = (
        apart(number, store, Measure(max_steps=7, max_seconds=999), 0.1) for number in range(2)
    )
    other.step()
    assert first.run() == (7, "max_steps")
    assert other.run() == (2, "max_steps")


@pytest.mark.parametrize(
    ("measure", "steps", "reason"),
    [
        (Measure(max_steps=40), 40, "max_steps"),
        (Measure(max_seconds=2), 16, "max_seconds"),
        (Measure(half_width=None, min_steps=5, min_seconds=1), 8, "enough"),
        # Equal steps would be precise at once, but that only rank 0 looks at that.
        (Measure(max_steps=500, max_seconds=999), 500, "max_steps"),
    ],
)
def test_the_others_stop_at_their_own_limit_while_rank_0_says_nothing(
    measure: Measure, steps: int, reason: str
) -> None:
    assert apart(1, HashStore(), measure, 0.125).run() == (steps, reason)


# What is left in the store


@pytest.mark.parametrize("in_step", [True, False])
@pytest.mark.parametrize("measure", [Measure(), Measure(max_steps=7)])
def test_rank_0_forgets_all_keys_of_its_window_and_no_others(
    measure: Measure, in_step: bool
) -> None:
    store = HashStore()
    store.set("other", "stays")
    ranks = []
    for number in range(2):
        peers = Peers(rank=number, store=PrefixStore("attempt/1", store), in_step=in_step)
        ranks.append(Rank(measure, 0.1, peers=peers, expected_s=0.1))
        ranks[-1].run()
    assert store.num_keys() > 1
    ranks[1].window.forget()
    assert store.num_keys() > 1
    ranks[0].window.forget()
    assert store.num_keys() == 1
    assert store.get("other") == b"stays"
