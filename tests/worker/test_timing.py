"""The timed part of a trial on two real ranks: parts, blocks, one stop for both, compilation."""

from __future__ import annotations

import ctypes
import gc
import resource
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch import Tensor, distributed, nn

from dtsweep import Measure
from dtsweep.hardware.telemetry import Telemetry
from dtsweep.measure.turns import LEAST_QUICK_STEPS, PAIRS, QUICK_SHARE
from dtsweep.metrics.rank_result import RankResult
from dtsweep.session.attempt import run_attempt
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import Task
from dtsweep.worker import exchange_cost
from dtsweep.worker.in_step import NO_MEMORY
from dtsweep.worker.rank import RankContext
from tests.stand_in_nvml import GPU, StandInNvml, show_a_gpu
from tests.worker.on_ranks import Trials, run_trials, window

CPU = torch.device("cpu")
WORKERS = 2
WIDE, LEFT = 3072, 52 * 2**20
"""Width of a layer of 36 MiB, and memory that suffices for its gradient.

It does not suffice for three gradients, whether one is kept or not.
"""
WARMUP_STEPS = 2
BATCHES: list[int] = []
"""Of the trial under way: how many samples the loss has seen, call by call."""


@dataclass(frozen=True)
class Line:
    """Fits a line; rank 1 compiles new code in the sixth of eight steps, `compiles` times."""

    compiles: int = 0

    full_at: int = 0
    """Call of the loss from which on rank 1 has hardly any memory left.

    The model has three layers then.
    """

    width: int = 4

    late_s: float = 0.0
    """What collecting garbage before the window takes on rank 1."""

    forgets: bool = False
    """Rank 1 does not know what the exchange takes by itself."""

    has_no_room: bool = False
    """The kernel says on rank 1 that no memory is available."""

    @property
    def ddp_options(self) -> dict[str, bool]:
        # Else the gradients leave behind what the exchange alone needs.
        return {"gradient_as_bucket_view": self.full_at > 0}

    def build(self) -> nn.Module:
        if self.late_s and distributed.get_rank() == 1:
            gc.callbacks.append(self._dawdle)
        layers = 3 if self.full_at else 1
        return nn.Sequential(*(nn.Linear(self.width, self.width) for _ in range(layers)))

    def _dawdle(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start" and len(BATCHES) == WARMUP_STEPS:
            gc.callbacks.clear()
            until = time.perf_counter() + self.late_s
            while time.perf_counter() < until:
                pass

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return torch.ones(len(samples), self.width, device=device)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        call = len(BATCHES)
        BATCHES.append(len(batch))
        if distributed.get_rank() == 1 and call % 8 == 5 and call // 8 < self.compiles:
            torch.compile(lambda x: x + call, backend="eager")(torch.ones(1))
        if distributed.get_rank() == 1 and call == self.full_at > 0:
            limit_memory(psutil.Process().memory_info().vms + LEFT)
        answer: Tensor = model(batch)
        return answer.square().mean()


class Metered(StandInNvml):
    """A device that draws a kilowatt all the time, by a counter that is right at any moment."""

    def answer(self, function: str, *arguments: Any) -> Any:
        if function == "nvmlDeviceGetTotalEnergyConsumption":
            return int(time.perf_counter() * 1e6)
        return super().answer(function, *arguments)


def metered() -> Telemetry:
    """Telemetry for which a millisecond is a second, so that every window is long enough."""
    show_a_gpu()
    return Telemetry(GPU, nvml=Metered(), now=lambda: time.perf_counter() * 1e3)


def keep_no_freed_memory() -> None:
    """Map large blocks on their own, and give them back when freed.

    Otherwise what fits depends on earlier blocks.
    """
    libc = ctypes.CDLL(None)
    trim_threshold, mmap_threshold = -1, -3
    for parameter in (trim_threshold, mmap_threshold):
        assert libc.mallopt(parameter, 2**20) == 1


def limit_memory(most: int = resource.RLIM_INFINITY) -> None:
    """Let this process have so many bytes."""
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))


def steps(count: int, *, max_seconds: float = 4.0, exchange: Any = "precise") -> Measure:
    """A window of so many steps.

    Rounds after it take half of `max_seconds` at most, or one is run.
    """
    return window(count, max_seconds=max_seconds, exchange=exchange)


LOCAL: dict[str, Any] = {"sync": "local_sgd", "sync_period": 4}
LONG = steps(4, max_seconds=60)
CASES: dict[str, tuple[Measure, dict[str, Any]]] = {
    "ddp": (steps(96, max_seconds=2), {}),
    "local_sgd": (steps(64), LOCAL),
    "short": (steps(7, max_seconds=0.5), {"workload": Line(forgets=True)}),
    "ddp again": (steps(20, max_seconds=0.5), {}),
    "quick": (steps(48, exchange="quick", max_seconds=60), {"workload": Line(width=1024)}),
    "off": (steps(20, exchange="off"), {}),
    "post-local": (
        steps(8, max_seconds=1),
        {"optimizer": "momentum", "local_momentum": "average", "synchronous_steps": 5, **LOCAL},
    ),
    "diloco": (steps(8, max_seconds=1), {**LOCAL, "sync": "diloco"}),
    "canary": (steps(7, max_seconds=0.5), {}),
    # Its steps are long enough for a second look.
    "sure": (
        replace(steps(30, max_seconds=60, exchange="off"), half_width=0.9, max_steps=1000),
        {"workload": Line(width=1024)},
    ),
    # Warm-up and window have 6 steps; then come one that is inspected, one without the exchange,
    # and a round of 13, of which the last two exchange; if another round follows, its first step
    # without the exchange does not fit either.
    "full without the exchange": (LONG, {"workload": Line(full_at=7, width=WIDE)}),
    "full after a round": (LONG, {"workload": Line(full_at=19, width=WIDE)}),
    # No steps follow their windows.
    "compiles once": (
        steps(6, max_seconds=60),
        {**LOCAL, "sync_period": 2, "workload": Line(compiles=1)},
    ),
    "compiles always": (
        steps(6, max_seconds=60),
        {**LOCAL, "sync_period": 2, "workload": Line(compiles=9)},
    ),
    "no room": (LONG, {"sync": "fsdp", "workload": Line(has_no_room=True)}),
    "late": (steps(64, exchange="off"), {"workload": Line(late_s=2.0)}),
}


def attempt(context: RankContext, task: Task) -> RankResult:
    """Run an attempt on a rank whose memory, telemetry or knowledge may be special."""
    keep_no_freed_memory()
    BATCHES.clear()
    workload, is_last = context.workload, context.rank == 1
    if workload.forgets and is_last:
        context.exchanges.clear()
    if workload.late_s:
        context = replace(context, telemetry=metered())
    memory = psutil.virtual_memory()
    with pytest.MonkeyPatch.context() as patch:
        # Also a busy machine has the time for a round.
        patch.setattr(exchange_cost, "FIRST_ROUND_S", 600.0)
        if workload.has_no_room and is_last:
            patch.setattr(psutil, "virtual_memory", lambda: memory._replace(available=0))
        result = run_attempt(context, task)
    limit_memory()
    return result


@pytest.fixture(scope="module")
def trials() -> Trials:
    usual = {"workers": WORKERS, "micro_batch": 2, "workload": Line()}
    cases = {
        case: (measure, Point(**{**usual, **fields})) for case, (measure, fields) in CASES.items()
    }
    return run_trials(cases, attempt=attempt, roles={"canary": "canary"})


@pytest.mark.parametrize("case", CASES)
def test_all_is_well_and_both_ranks_stop_at_the_same_step_for_the_same_reason(
    trials: Trials, case: str
) -> None:
    ranks, row = trials.measured(case), trials.row(case)
    assert (row["status"], row["reason"]) == ("ok", None)
    first, second = ranks
    assert first.steps["part"].tolist() == second.steps["part"].tolist()
    assert first.stop_reason == second.stop_reason == {"sure": "precise"}.get(case, "max_steps")
    assert first.window_steps == (first.steps["part"] == "window").sum()
    assert row["measured_steps"] + row["warmup_steps"] == first.skipped_steps + first.window_steps
    assert ("recompiled" in row["flags"]) == case.startswith("compiles")
    for rank in ranks:
        parts = (rank.build_s, rank.warmup_s, rank.window_s, rank.after_window_s)
        assert all(seconds is not None and seconds >= 0 for seconds in parts)
    assert all(result.cleanup_s >= 0 for result in trials.results[case].values())


@pytest.mark.parametrize("case", ["ddp", "local_sgd", "sure"])
def test_mean_step_throughput_and_the_windows_wall_agree_on_real_ranks(
    trials: Trials, case: str
) -> None:
    row = trials.row(case)
    assert row["step_mean_s"] * row["samples_per_s"] == pytest.approx(
        row["global_batch"], rel=0.005
    )
    # A busy machine may add to the window what is in no step.
    assert row["step_mean_s"] * row["measured_steps"] <= 1.005 * row["window_s"]


@pytest.mark.parametrize("case", ["ddp", "short"])
def test_after_the_window_come_rounds_of_blocks_with_and_without_the_exchange_in_turns(
    trials: Trials, case: str
) -> None:
    ranks = trials.measured(case)
    for rank in ranks:
        table = rank.steps
        after = np.flatnonzero(table["block"] >= 0)
        blocks, sizes = np.unique(table["block"][after], return_counts=True)
        assert len(blocks) % (2 * PAIRS) == 0
        assert blocks.tolist() == list(range(len(blocks)))
        assert set(sizes) == {sizes[0]}
        turns = ["exchange", "no_exchange", "no_exchange", "exchange"] * (len(blocks) // 4)
        assert table["part"][after].tolist() == np.repeat(turns, sizes[0]).tolist()
        assert after[-1] + 1 == len(table["step"])
        assert np.isfinite(table["step_s"]).all()
        # The model is lost then, and with it what a loss would say.
        assert np.isnan(table["loss"][after]).all()
        assert np.isfinite(table["loss"][: after[0]]).all()
        assert (np.diff(table["start_s"]) > 0).all()


def test_the_exchange_by_itself_is_timed_once_and_again_by_all_ranks_where_one_does_not_know_it(
    trials: Trials,
) -> None:
    def alone(case: str) -> list[float]:
        return [rank.exchange_isolated_s or 0.0 for rank in trials.measured(case)]

    assert all(seconds > 0 for seconds in alone("ddp"))
    assert not set(alone("short")) & {0.0, *alone("ddp")}
    assert alone("ddp again") == alone("short")


@pytest.mark.parametrize(("case", "period"), [("ddp", 1), ("local_sgd", 4)])
def test_bytes_and_messages_are_those_of_a_period(trials: Trials, case: str, period: int) -> None:
    ranks, row = trials.measured(case), trials.row(case)
    # Two ranks each send their sums of half of 20 numbers of 4 bytes, and the halves that they then
    # have.
    assert row["bytes_sent_per_step"] == 80 / period
    assert row["messages_per_step"] == 1 / period
    for rank in ranks:
        assert (rank.bytes_sent, rank.messages_sent) == (
            80 * rank.window_steps / period,
            rank.window_steps / period,
        )


def test_one_turn_of_steps_without_the_exchange_follows_a_window_for_a_quarter_of_its_time(
    trials: Trials,
) -> None:
    case = "quick"
    ranks, row = trials.measured(case), trials.row(case)
    counts = [int((rank.steps["part"] == "no_exchange").sum()) for rank in ranks]
    assert counts[0] == counts[1]
    assert 1 <= counts[0] <= max(LEAST_QUICK_STEPS, QUICK_SHARE * ranks[0].window_steps)
    for rank in ranks:
        assert (
            rank.steps["part"].tolist()
            == ["warmup"] * 2 + ["window"] * rank.window_steps + ["no_exchange"] * counts[0]
        )
        assert set(rank.steps["block"][-counts[0] :]) == {0}
    assert row["comm_reason"] is None


@pytest.mark.parametrize(("case", "sent"), [("off", (80, 1)), ("canary", (None, None))])
def test_no_steps_follow_the_window_of_a_canary_or_where_nobody_asked(
    trials: Trials, case: str, sent: tuple[float | None, float | None]
) -> None:
    row = trials.row(case)
    for rank in trials.measured(case):
        assert set(rank.steps["part"]) == {"warmup", "window"}
    # The ranks' batches are equal.
    assert (row["comm_method"], row["comm_share"], row["gradients_agree"]) == (None, None, None)
    assert (row["bytes_sent_per_step"], row["messages_per_step"]) == sent
    assert case == "canary" or row["comm_reason"] == "Measure(exchange='off')"


def test_steps_that_average_gradients_come_before_the_warm_up_and_are_in_no_column(
    trials: Trials,
) -> None:
    ranks, row = trials.measured("post-local"), trials.row("post-local")
    for rank in ranks:
        assert rank.skipped_steps == 5 + WARMUP_STEPS
        # The warm-up ends with a period.
        exchanged = (rank.steps["sync_s"] > 0).tolist()
        assert exchanged == [True] * 5 + [False, True] + [False, False, False, True] * 2
    # Parameters and momentum, of 20 numbers each, once in 4 steps.
    assert row["bytes_sent_per_step"] == 2 * 20 * 4 / 4
    assert row["parameters_agree"]


@pytest.mark.parametrize("case", ["local_sgd", "post-local", "diloco"])
def test_a_mode_that_waits_for_its_exchange_needs_no_steps_without_it(
    trials: Trials, case: str
) -> None:
    ranks, row = trials.measured(case), trials.row(case)
    for rank in ranks:
        assert set(rank.steps["part"]) == {"warmup", "window"}
        in_window = rank.steps["sync_s"][rank.steps["part"] == "window"]
        assert (in_window > 0).tolist() == [False, False, False, True] * (len(in_window) // 4)
    assert row["comm_method"] == "wait"
    assert row["comm_share"] == pytest.approx(row["exchange_share"] + row["wait_share"])
    assert row["exchange_isolated_s"] > 0
    assert row["overlap_share"] is None


@pytest.mark.parametrize("case", ["ddp", "short", "quick"])
def test_the_row_says_what_the_exchange_costs(trials: Trials, case: str) -> None:
    ranks, row = trials.measured(case), trials.row(case)
    assert row["comm_method"] == "difference"
    for name in ("comm_share", "exchange_share", "wait_share", "overlap_share"):
        assert row[f"{name}_low"] <= row[name] <= row[f"{name}_high"], name
    assert row["comm_share"] == pytest.approx(row["exchange_share"] + row["wait_share"])
    assert row["wait_share"] >= 0
    assert row["comm_share_error"] > 0
    assert row["pass_s"] > 0
    assert row["exchange_isolated_s"] > 0
    assert row["rank_skew"] >= row["rank_skew_low"] >= 0
    # The slowest rank's: the same on all.
    assert {rank.exchange_isolated_s for rank in ranks} == {row["exchange_isolated_s"]}


@pytest.mark.parametrize(
    ("case", "segments", "method", "reason"),
    [
        ("full without the exchange", {"warmup", "window"}, None, NO_MEMORY),
        ("full after a round", {"warmup", "window", "exchange", "no_exchange"}, "difference", None),
    ],
)
def test_what_memory_does_not_suffice_for_after_the_window_does_not_cost_the_trial(
    trials: Trials, case: str, segments: set[str], method: str | None, reason: str | None
) -> None:
    ranks, row = trials.measured(case), trials.row(case)
    assert set(ranks[0].steps["part"]) == segments
    assert (row.get("comm_method"), row["comm_reason"]) == (method, reason)
    assert row["exchange_isolated_s"] is None
    assert row.get("overlap_share") is None


def test_a_step_without_the_exchange_is_not_tried_where_one_rank_has_no_room_for_it(
    trials: Trials,
) -> None:
    ranks, row = trials.measured("no room"), trials.row("no room")
    assert row["status"] == "ok"
    assert [set(rank.steps["part"]) for rank in ranks] == [{"warmup", "window"}] * WORKERS
    assert {rank.exchange_reason for rank in ranks} == {row["comm_reason"]}
    assert row["comm_reason"].startswith("a step without the exchange needs ")
    assert (row["comm_method"], row["exchange_share"]) == (None, None)
    assert row["bytes_sent_per_step"] > 0


@pytest.mark.parametrize(
    ("case", "skipped"), [("compiles once", 2 + 6 + 2), ("compiles always", 2 + 6 + 2 + 6 + 2)]
)
def test_what_is_compiled_in_a_window_on_one_rank_makes_it_warm_up_on_all_twice_at_most(
    trials: Trials, case: str, skipped: int
) -> None:
    for rank in trials.measured(case):
        assert rank.steps["part"].tolist() == ["warmup"] * skipped + ["window"] * 6
        assert rank.steps["start_s"][skipped] == 0
        assert rank.skipped_steps == skipped
    row = trials.row(case)
    assert (row["flags"].count("recompiled"), row["warmup_steps"]) == (1, skipped)
    # The last window is clean: torch takes what changes for a variable by then.
    assert (row["recompiles"], row["compile_s"]) == (0, None)


def test_telemetry_is_of_the_window_alone_though_a_rank_comes_late_to_it(trials: Trials) -> None:
    ranks = trials.measured("late")
    for rank in ranks:
        metered_s = rank.telemetry["energy_j"] / 1000
        assert 0 < metered_s - rank.window_s < CASES["late"][1]["workload"].late_s
