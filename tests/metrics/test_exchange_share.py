"""Exchange, wait and stragglers: numbers checked in the head, and ranks with known shares."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dtsweep.metrics.rows import rank_rows
from dtsweep.metrics.skew import skew_columns
from tests.outcomes import PASS, SKIPPED, Sent, facts, marked, outcome, pairs, row_of
from tests.series import drawn

STEADY = [1.0] * 40
"""A window in which nothing is odd."""

SHARES = ("exchange_share", "wait_share", "comm_share")


def known(row: dict[str, Any], name: str) -> tuple[float, float, float]:
    """A column with both ends of its interval."""
    return row[name], row[f"{name}_low"], row[f"{name}_high"]


# By difference


QUIET = [(False, [0.75] * 10)]
"""One turn of steps without the exchange, after the window."""


@pytest.mark.parametrize("turns", [pairs([1.0] * 4, [0.75] * 4), QUIET])
def test_exchange_is_the_difference_to_the_step_without_it(turns: Any) -> None:
    row = row_of([outcome(STEADY, turns=turns, exchange_isolated_s=0.5)] * 2)
    assert (row["comm_method"], row["comm_reason"]) == ("difference", None)
    assert known(row, "comm_share") == pytest.approx((0.25, 0.25, 0.25))
    assert known(row, "exchange_share") == known(row, "comm_share")
    assert known(row, "wait_share") == (0, 0, 0)
    assert row["comm_share_error"] == pytest.approx(0)
    # Half of the exchange shows, so half of it hides.
    assert row["exchange_isolated_s"] == 0.5
    assert known(row, "overlap_share") == pytest.approx((0.5, 0.5, 0.5))


@pytest.mark.parametrize("is_turn", [False, True])
def test_what_a_step_takes_beyond_the_ranks_mean_is_exchange_and_wait_for_the_slowest(
    *, is_turn: bool
) -> None:
    # Alone one rank takes 0.5 s and the other 0.75 s; together with the exchange both take 1 s.
    ranks = []
    for own in (0.5, 0.75):
        turns = [(False, [own] * 4)] if is_turn else pairs([1.0] * 4, [own] * 4)
        ranks.append(outcome(STEADY, turns=turns, exchange_isolated_s=0.25))
    row = row_of(ranks)
    assert [row[name] for name in SHARES] == pytest.approx([0.25, 0.125, 0.375])
    assert row["rank_skew"] == 0.5
    # None of it hides: waiting for the slowest is no exchange.
    assert row["overlap_share"] == pytest.approx(0)


@pytest.mark.parametrize(("blocks", "size"), [(4, 1), (4, 25), (40, 3)])
def test_ranks_that_are_slow_in_turn_wait_for_each_other_however_many_steps_are_timed(
    blocks: int, size: int
) -> None:
    """`benchmarks/exchange.py` has shares and intervals of ranks whose steps are drawn."""
    # Without the exchange both take 0.6 s on average; but each step has one of 0.7 s.
    row = row_of(
        [
            outcome(STEADY, turns=[(True, [1.0] * 2 * size), (False, own * size)] * blocks)
            for own in ([0.5, 0.7], [0.7, 0.5])
        ]
    )
    assert [row[name] for name in SHARES] == pytest.approx([0.3, 0.1, 0.4])


def test_a_step_with_the_exchange_is_one_of_all_ranks_however_its_ends_scatter() -> None:
    # One rank ends late by a tenth in every second step, so that its next one is shorter; the other
    # never.
    late, even = [1.1, 0.9] * 4, [1.0] * 8
    row = row_of([outcome(STEADY, turns=pairs(times, [0.75] * 8)) for times in (late, even)])
    assert row["exchange_share"] == pytest.approx(0.25)


def test_the_interval_of_a_share_comes_from_the_pairs_of_blocks() -> None:
    # 0.2, 0.3, 0.2, 0.3 of 1: a mean of 0.25, a standard deviation of 0.1 / √3, and t of 3 degrees
    # is 3.182.
    row = row_of([outcome(STEADY, turns=pairs([1.0] * 4, [0.8, 0.7, 0.8, 0.7]))] * 2)
    error = 0.1 / np.sqrt(3) / 2
    assert row["comm_share_error"] == pytest.approx(error)
    bounds = (0.25, 0.25 - 3.182 * error, 0.25 + 3.182 * error)
    assert known(row, "comm_share") == pytest.approx(bounds, rel=1e-3)
    assert known(row, "exchange_share") == known(row, "comm_share")


def test_drift_falls_on_both_blocks_of_a_pair_alike() -> None:
    # Each block takes 0.1 s longer than the one before it, in the order A B B A.
    times = np.arange(8) * 0.1
    with_it, without = 2 + times[[0, 3, 4, 7]], 1.5 + times[[1, 2, 5, 6]]
    row = row_of([outcome(STEADY, turns=pairs(list(with_it), list(without)))] * 2)
    assert row["comm_share"] * with_it.mean() == pytest.approx(0.5)


def test_a_pass_is_that_of_the_slowest_rank_without_the_exchange() -> None:
    phases = {"data_s": 0.2, "forward_s": 0.4, "backward_s": 0.2, "optimizer_s": 0.2}
    turns = [pairs([1.0] * 4, [own] * 4) for own in (0.5, 0.75)]
    row = row_of([outcome(STEADY, turns=own, phases=phases) for own in turns], accumulation=2)
    # Data, forward and backward of 0.75 s are 0.6 s, in two passes.
    assert row["pass_s"] == pytest.approx(0.3)


def test_a_difference_below_nothing_does_not_read_as_all_hidden() -> None:
    # Steps with the exchange are faster by 0.05 s ± 0.09: chance.
    turns = pairs([1.0] * 4, [1.0, 1.1] * 2)
    row = row_of([outcome(STEADY, turns=turns, exchange_isolated_s=0.1)] * 2)
    assert row["exchange_share"] < 0 < row["exchange_share_high"]
    assert row["overlap_share"] == pytest.approx(1.5)
    assert row["overlap_share_low"] < 1 < row["overlap_share_high"]


def test_what_is_known_of_the_exchange_alone_is_in_the_interval_of_its_overlap() -> None:
    alone = {"exchange_isolated_s": 0.4, "exchange_isolated_error_s": 0.04}
    row = row_of([outcome(STEADY, turns=pairs([1.0] * 4, [0.8] * 4), **alone)] * 2)
    # 0.2 of 0.4 s shows; a tenth of that half, times 3.182.
    assert known(row, "overlap_share") == pytest.approx((0.5, 0.5 - 0.159, 0.5 + 0.159), abs=1e-3)


def test_without_blocks_an_exchange_behind_backward_is_unknown_and_the_row_says_why() -> None:
    row = row_of([outcome([1.0] * 7, exchange_reason="no memory for it")] * 2)
    names = ("comm_method", "pass_s", "overlap_share", "rank_skew", "rank_skew_low", "straggler")
    assert [row.get(name) for name in (*SHARES, *names)] == [None] * 9
    assert row["comm_reason"] == "no memory for it"


# By one turn without the exchange after the window


def test_a_turn_is_taken_to_be_as_noisy_as_the_window() -> None:
    # Steps of 0.9 and 1.1 s in turns: a standard deviation of 0.1013, so 0.01601 for 40 of them and
    # 0.03203 for 10.
    row = row_of([outcome([0.9, 1.1] * 20, turns=QUIET)] * 2)
    error = 0.75 * np.hypot(0.01601, 0.03203)
    assert row["comm_share_error"] == pytest.approx(error, rel=1e-3)
    # Student's t of 39 degrees is 2.023.
    bounds = (0.25, 0.25 - 2.023 * error, 0.25 + 2.023 * error)
    assert known(row, "comm_share") == pytest.approx(bounds, rel=1e-3)


def test_steps_that_resemble_each_other_widen_the_interval_of_a_turn() -> None:
    waves, apart = ([0.9] * 10 + [1.1] * 10) * 4, [0.9, 1.1] * 40
    alike, independent = (
        row_of([outcome(series, turns=QUIET)] * 2)["comm_share_error"] for series in (waves, apart)
    )
    assert alike > 2 * independent


def test_a_turn_that_is_noisier_than_the_window_has_its_own_noise() -> None:
    row = row_of([outcome(STEADY, turns=[(False, [0.65, 0.85] * 5)])] * 2)
    # A standard deviation of 0.1054 over the root of 10.
    assert row["comm_share_error"] == pytest.approx(0.1054 / np.sqrt(10), rel=1e-3)
    # Of two steps alone the window's noise is known.
    row = row_of([outcome([0.9, 1.1] * 20, turns=[(False, [own] * 2)]) for own in (0.7, 0.8)])
    for name in SHARES:
        assert row[f"{name}_low"] < row[name] < row[f"{name}_high"], name


@pytest.mark.parametrize(("pace", "least", "most"), [(1.2, 0.6, 1.0), (1.0, 0.0, 0.1)])
def test_only_a_slow_rank_is_named_by_a_short_turn_though_all_ranks_drift_together(
    pace: float, least: float, most: float
) -> None:
    names = []
    for common, first, second in drawn(3 * 20, 108, cv=0.05).reshape(20, 3, -1):
        drift = np.cumsum(common - 1) * 0.05
        ranks = [first + drift, pace * second + drift]
        together = list(np.max(ranks, axis=0)[:100])
        sent = []
        for rank in ranks:
            own = {"forward_s": np.append(np.ones(SKIPPED), rank) / 3}
            sent.append(outcome(together, turns=[(False, list(rank[100:]))], columns=own))
        names.append(row_of(sent)["straggler"])
    assert least <= np.mean([name is not None for name in names]) <= most
    assert {*names} <= {None, "rank 1 on one"} or pace == 1.0


# By what steps spend on it


def waited(*shares: float, window: list[float] = STEADY) -> list[Sent]:
    """Ranks that spend these shares of each step on the exchange."""
    return [outcome(window, phases={**PASS, "sync_s": share}) for share in shares]


def test_where_nothing_hides_the_exchange_steps_say_what_they_spend_on_it() -> None:
    # Of 1 s they work for 0.875 s and 0.625 s: the last one to come exchanges for 0.125 s, and the
    # other waits.
    row = row_of(waited(0.125, 0.375), sync="parameter_server", staleness=0)
    assert row["comm_method"] == "wait"
    assert [row[name] for name in SHARES] == [0.125, 0.125, 0.25]
    # Forward and backward, 0.75 of a second.
    assert row["pass_s"] == 0.75
    assert row["overlap_share"] is None


def test_a_worker_that_steps_alone_waits_for_no_other_so_the_two_are_not_told_apart() -> None:
    row = row_of(waited(0.125, 0.375), sync="parameter_server")
    assert (row["comm_method"], *known(row, "comm_share")) == ("wait", 0.25, 0.25, 0.25)
    assert row.get("exchange_share") is row.get("wait_share") is None
    # Both work for 40 s; one spends a quarter of it on the exchange, the other three quarters: what
    # counts is their time, not their steps.
    fast = outcome([0.25] * 160, phases={**PASS, "sync_s": 0.25})
    slow = outcome([4.0] * 10, phases={**PASS, "sync_s": 0.75})
    assert row_of([fast, slow], sync="parameter_server")["comm_share"] == pytest.approx(0.5)


def test_one_worker_exchanges_with_its_server_and_with_nobody_else() -> None:
    row = row_of(waited(0.25), sync="parameter_server", accumulation=3)
    assert row["comm_method"] == "wait"
    assert known(row, "exchange_share") == known(row, "comm_share") == (0.25, 0.25, 0.25)
    assert known(row, "wait_share") == (0, 0, 0)
    assert row["pass_s"] == pytest.approx(0.25)
    for sync in ("ddp", "local_sgd"):
        row = row_of(waited(0.1), sync=sync, accumulation=3)
        assert [row.get(name) for name in (*SHARES, "comm_method", "overlap_share")] == [None] * 5
        assert row["pass_s"] == pytest.approx(0.25)


# Compressed: steps mark what they spend on it, and may leave the exchange out too

MARKED = {**PASS, "compress_s": 0.125, "sync_s": 0.125}


def test_compression_is_a_part_of_the_exchange_where_steps_say_what_they_spend_on_it() -> None:
    # Of 1 s both work for 0.5 s; one compresses for 0.375 s, for which the other waits.
    phases = [{"compress_s": compress, "sync_s": 0.5 - compress} for compress in (0.375, 0.125)]
    ranks = [outcome(STEADY, phases={**PASS, "backward_s": 0.0, **own}) for own in phases]
    row = row_of(ranks, sync="ring", compression="int8")
    assert (row["comm_method"], *[row[name] for name in SHARES]) == ("wait", 0.5, 0, 0.5)
    assert (row["compress_s"], row["sync_s"]) == (0.25, 0.25)
    assert (row["rank_skew"], row["implausible"]) == (0, None)


@pytest.mark.parametrize("own", [0.75, 0.5])
def test_an_exchange_that_can_be_left_out_is_measured_by_that_whatever_compression_marks(
    own: float,
) -> None:
    usual, slow = (
        outcome(STEADY, turns=pairs([1.0] * 4, [own * pace] * 4), phases=MARKED)
        for pace in (1.0, 1.5)
    )
    row = row_of([usual, usual], compression="int8")
    assert (row["comm_method"], row["comm_share"]) == ("difference", 1 - own)
    assert row["compress_s"] == 0.125
    assert row_of([usual, slow])["rank_skew"] == 0.5


def test_what_compression_marks_tells_no_exchange_that_hides_behind_backward() -> None:
    sent = outcome(STEADY, phases=MARKED, exchange_reason="no memory for it")
    row = row_of([sent, sent], compression="int8")
    assert [row.get(name) for name in (*SHARES, "comm_method", "rank_skew")] == [None] * 5
    assert (row["comm_reason"], row["sync_s"]) == ("no memory for it", 0.125)
    # What failed costs no share that the window has.
    phases = {**PASS, "backward_s": 0.0, "sync_s": 0.5}
    sent = outcome(STEADY, phases=phases, exchange_reason="no memory")
    row = row_of([sent, sent], sync="ring")
    assert (row["comm_method"], row["exchange_share"]) == ("wait", 0.5)
    assert row["comm_reason"] == "no memory"
    # One worker compresses for nobody, and its work is the rest.
    (rank,) = rank_rows(*marked([outcome(STEADY, phases=MARKED)]))
    assert (rank["work_s"], rank["compress_s"]) == (0.75, 0.125)


def averaged(own: list[list[float]], *, period: int, exchange_s: float) -> list[Sent]:
    """Ranks with these own steps that meet at the end of each period."""
    works = np.array(own)
    sums = works.reshape(len(own), -1, period).sum(axis=2)
    sync = np.zeros_like(works)
    sync[:, period - 1 :: period] = sums.max(axis=0) - sums + exchange_s
    return [
        outcome(list(steps), columns={"sync_s": np.append(np.zeros(SKIPPED), waits)})
        for steps, waits in zip(works + sync, sync, strict=True)
    ]


def test_ranks_of_a_sync_period_wait_for_each_other_once() -> None:
    # What one loses in a step it gains in the next: both work for 2 s, and exchange for half a
    # second.
    ranks = averaged([[0.5, 1.5] * 8, [1.5, 0.5] * 8], period=2, exchange_s=0.5)
    row = row_of(ranks, sync="local_sgd", sync_period=2)
    assert row["comm_method"] == "wait"
    assert [row[name] for name in SHARES] == pytest.approx([0.2, 0, 0.2])
    # Now one takes 3 s, and the other half of that.
    ranks = averaged([[1.0] * 12, [0.5] * 12], period=3, exchange_s=0.75)
    row = row_of(ranks, sync="local_sgd", sync_period=3)
    assert [row[name] for name in SHARES] == pytest.approx([0.2, 0.2, 0.4])


@pytest.mark.parametrize("periods", [1, 3, 40])
def test_a_mode_with_a_sync_period_has_one_method_however_long_its_window(periods: int) -> None:
    ranks = averaged([[1.0] * 8 * periods] * 2, period=8, exchange_s=2.0)
    row = row_of(ranks, sync="local_sgd", sync_period=8)
    assert (row["comm_method"], row["comm_share"]) == ("wait", pytest.approx(0.2))
    # Two periods don't say how much they vary.
    assert (row["comm_share_low"] is None) == (periods < 3)


# Ranks


def test_skew_and_straggler_are_of_the_work_that_a_rank_does_alone() -> None:
    # In step both take a second; without the exchange one takes half as long again as the other.
    first, second = (
        outcome(STEADY, turns=pairs([1.0] * 4, [own] * 4), where=facts(node=node))
        for own, node in ((0.5, "one"), (0.75, "two"))
    )
    row = row_of([first, second])
    assert (row["rank_skew"], row["straggler"]) == (0.5, "rank 1 on two")
    # No interval is narrower than half a percent of the mean, here widened for the farther of two
    # ranks.
    assert row["rank_skew_low"] == pytest.approx(0.5, abs=0.02)
    assert row_of([second, first])["straggler"] == "rank 0 on two"
    # Without such steps the work is what is left beside the exchange.
    row = row_of(waited(0.5, 0.0), sync="parameter_server", staleness=0)
    assert (row["rank_skew"], row["straggler"]) == (1.0, "rank 1 on one")
    # One rank is no slower than itself.
    row = row_of([outcome(STEADY)])
    assert (row["rank_skew"], row["rank_skew_low"], row["straggler"]) == (0, 0, None)


def worked(own: NDArray[np.float64]) -> dict[str, Any]:
    """What is said of ranks with these own steps, (ranks, steps), that wait for nobody."""
    sent = [outcome(list(steps), phases={**PASS, "sync_s": 0.0}) for steps in own]
    ranks = [rank.result.measured for rank in sent if rank.result and rank.result.measured]
    return skew_columns(ranks, ["one"] * len(ranks))


@pytest.mark.parametrize("ranks", [2, 8])
def test_a_rank_that_takes_a_tenth_longer_is_named_after_100_steps_and_no_equal_one(
    ranks: int,
) -> None:
    """`benchmarks/exchange.py` has the rates."""
    own = drawn(ranks * 20, 100, cv=0.05).reshape(20, ranks, 100)
    equal = [worked(series) for series in own]
    assert sum(row["straggler"] is not None for row in equal) <= 2
    assert sum(row["rank_skew_low"] > 0 for row in equal) <= 2
    assert min(row["rank_skew"] for row in equal) > 0
    own[:, 1] *= 1.1
    slower = [worked(series) for series in own]
    assert sum(row["straggler"] == "rank 1 on one" for row in slower) >= 18
    assert sum(0 < row["rank_skew_low"] <= 0.1 for row in slower) >= 18


def test_what_befalls_all_ranks_alike_hides_no_straggler() -> None:
    # Every step takes another time, up to half as long again; one rank always takes 3 % longer.
    common = np.random.default_rng(0).uniform(1, 1.5, size=60)
    own = np.stack([common, common * 1.03]) * drawn(2, 60, cv=0.005)
    assert worked(own)["straggler"] == "rank 1 on one"


# Input


def loading(share: float, own_s: float = 1.0) -> Sent:
    """A rank that loads batches for this share of its steps, of a second with the exchange."""
    turns = pairs([1.0] * 4, [own_s] * 4)
    return outcome(STEADY, phases={**PASS, "data_s": share}, turns=turns)


def test_what_loading_batches_takes_of_a_step_is_the_mean_of_the_workers() -> None:
    row = row_of([loading(0.1), loading(0.2)])
    assert known(row, "data_share") == pytest.approx((0.15, 0.15, 0.15))
    assert row["data_s"] == pytest.approx(0.15)
    # A phase that a rank did not mark has no share.
    row = row_of([outcome(STEADY, phases={"forward_s": 0.5}), outcome(STEADY)])
    assert row.get("data_share") is None


def test_what_a_straggler_loads_is_waiting_and_not_counted_twice() -> None:
    row = row_of([loading(0.1, 0.4), loading(0.1, 0.4), loading(0.9)])
    assert row["straggler"] == "rank 2 on one"
    assert row["data_share"] == pytest.approx(0.1)
