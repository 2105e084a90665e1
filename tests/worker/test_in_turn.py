"""Points measured in turn on two real ranks: worlds of both sizes, models side by side."""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, distributed, nn

from dtsweep import Measure, Sweep
from dtsweep.hardware.random_states import RandomStates, set_seed
from dtsweep.metrics.rank_result import Measured, RankFacts, RankResult
from dtsweep.metrics.rows import trial_row, with_warmup_marked
from dtsweep.session.attempt import run_attempt
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import Task, task_of
from dtsweep.worker.rank import become_rank
from tests.ranks import results_of

SLEEP_S = 0.03
POINTS: dict[str, dict[str, Any]] = {
    "ddp": {},
    "slow": {"step_s": 1.1 * SLEEP_S},
    "alone": {"workers": 1},
    "fsdp": {"sync": "fsdp"},
    "local": {"sync": "local_sgd", "sync_period": 4},
    "full": {"known_peak_bytes": 2**60},
    "elsewhere": {"is_alone": True},
    "compiled": {"is_compiled": True},
}
"""By name; the first one has the largest world."""

LEFT_OUT = ["full", "elsewhere", "compiled"]


@dataclass(frozen=True)
class Sleepy:
    """Fits a line; each pass takes a known time."""

    step_s: float = SLEEP_S
    is_compiled: bool = False
    jitter: float = 0.0

    def build(self) -> nn.Module:
        model = nn.Sequential(nn.Linear(4, 4))
        if self.is_compiled:
            return cast("nn.Module", torch.compile(model, backend="eager"))
        return model

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return torch.ones(len(samples), 4, device=device)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        time.sleep(self.step_s * (1 + self.jitter * (random.random() - 0.5)))
        answer: Tensor = model(batch)
        return answer.square().mean()


def sweep_of(fields: dict[str, Any], measure: Measure) -> tuple[Sweep, Point, Task]:
    fields = dict(fields)
    own: dict[str, Any] = {
        name: fields.pop(name) for name in ("step_s", "is_compiled", "jitter") if name in fields
    }
    workload = Sleepy(**own)
    of_task: dict[str, Any] = {"known_peak_bytes": 2**20}
    of_task |= {
        name: fields.pop(name) for name in ("known_peak_bytes", "is_alone") if name in fields
    }
    point = Point(**{"workers": 2, "micro_batch": 2, "workload": workload, **fields})
    sweep = Sweep(workload=workload, axes={"workers": [point.workers]}, measure=measure)
    return sweep, point, replace(task_of(sweep, point), **of_task)


def be_rank(rank: int, task: Task) -> tuple[RankFacts, RankResult, dict[str, Any]]:
    os.environ.update({"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "2"})
    context = become_rank(rank, torch.device("cpu"), workload=Sleepy(), own_variables=())
    warm: list[float] = []
    result = run_attempt(context, task, on_warm=warm.append)
    after = {
        "warm": warm,
        "size": distributed.get_world_size(),
        "variables": (os.environ["WORLD_SIZE"], os.environ["LOCAL_WORLD_SIZE"]),
    }
    return context.facts, result, after


@dataclass(frozen=True)
class Turns:
    """Results of all ranks."""

    facts: dict[int, RankFacts]
    results: dict[str, dict[int, RankResult]]
    """By point and rank: of those that were measured."""
    after: list[dict[str, Any]]
    rows: dict[str, dict[str, Any]]

    def measured(self, name: str) -> list[Measured]:
        return [result.measured for result in self.results[name].values() if result.measured]


@pytest.fixture(scope="module")
def turns() -> Turns:
    measure = Measure(half_width=0.01, warmup_steps=2, min_steps=5, min_seconds=0.5, max_seconds=4)
    asked = {name: sweep_of(fields, measure) for name, fields in POINTS.items()}
    first, *others = (task for _, _, task in asked.values())
    sent = results_of(be_rank, replace(first, in_turn=others), workers=2)
    facts = {rank: facts for rank, (facts, _, _) in enumerate(sent)}
    members = {rank: (result, *result.in_turn) for rank, (_, result, _) in enumerate(sent)}
    results = {
        name: {rank: of_rank[number] for rank, of_rank in members.items() if of_rank[number]}
        for number, name in enumerate(POINTS)
    }
    rows = {}
    for name, (sweep, point, task) in asked.items():
        if results[name]:
            marked = with_warmup_marked(point, results[name])
            of_world = {rank: facts[rank] for rank in range(point.workers)}
            rows[name] = trial_row(sweep, point, task, of_world, marked)
    return Turns(facts, results, [after for _, _, after in sent], rows)


MEASURED = [name for name in POINTS if name not in LEFT_OUT]


@pytest.mark.parametrize("name", MEASURED)
def test_each_point_is_measured_by_the_ranks_of_its_world(turns: Turns, name: str) -> None:
    row = turns.rows[name]
    assert (row["status"], row["reason"]) == ("ok", None)
    assert len(turns.results[name]) == row["workers"]
    assert row["memory_peak_bytes"] is None, "several models were in memory"
    # A pass takes what is known; the rest is a share of it on a busy machine.
    pass_s = POINTS[name].get("step_s", SLEEP_S)
    assert row["step_mean_s"] >= pass_s
    assert row["samples_per_s"] == pytest.approx(row["workers"] * 2 / row["step_mean_s"], rel=0.01)


@pytest.mark.parametrize("name", MEASURED)
def test_a_window_is_the_union_of_its_turns_and_each_step_counts_once(
    turns: Turns, name: str
) -> None:
    cycles = len(turns.rows["ddp"]["turn_samples_per_s"])
    assert cycles >= 3
    for rank in turns.measured(name):
        in_window = rank.steps["part"] == "window"
        numbers, counts = np.unique(rank.steps["turn"][in_window], return_counts=True)
        assert numbers.tolist() == list(range(cycles))
        assert rank.window_steps == in_window.sum() == counts.sum()
        assert rank.skipped_steps == (~in_window).sum()
        starts, step_s = (rank.of_part(column) for column in ("start_s", "step_s"))
        assert (np.diff(starts) > 0).all()
        # The other points' turns are no part of it.
        assert step_s.sum() <= rank.window_s <= 1.5 * step_s.sum()
        assert starts[-1] + step_s[-1] == pytest.approx(rank.window_s, abs=0.02 * rank.window_s)
    if name != "local":
        assert min(counts) >= 5
    assert (counts % (4 if name == "local" else 1) == 0).all()


def test_a_known_slow_down_shows_in_the_ratios_of_a_cycle(turns: Turns) -> None:
    rates = {name: np.array(turns.rows[name]["turn_samples_per_s"]) for name in ("ddp", "slow")}
    ratio = float(np.median(rates["ddp"] / rates["slow"]))
    assert 1.03 < ratio < 1.15


def test_turns_take_0_2_s_at_least_and_no_more_than_they_may(turns: Turns) -> None:
    for rank in turns.measured("ddp"):
        seconds = rank.of_part("step_s").sum()
        count = len(turns.rows["ddp"]["turn_samples_per_s"])
        assert seconds / count >= 0.1
        assert seconds <= 4 + 2 * seconds / count


@pytest.mark.parametrize("name", LEFT_OUT)
def test_a_point_without_room_with_other_ranks_or_compiled_is_left_out(
    turns: Turns, name: str
) -> None:
    assert turns.results[name] == {}


def test_models_that_train_by_turns_draw_as_if_each_were_alone() -> None:
    def draws() -> list[float]:
        return [random.random(), float(np.random.rand()), float(torch.rand(()))]

    alone: dict[int, list[list[float]]] = {}
    for seed in (1, 2):
        set_seed(seed)
        alone[seed] = [draws() for _ in range(3)]
    set_seed(3)
    states = {seed: RandomStates(torch.device("cpu")) for seed in alone}
    found: dict[int, list[list[float]]] = {seed: [] for seed in alone}
    for turn in range(3):
        for seed, own in states.items():
            with own.used():
                if turn == 0:
                    set_seed(seed)
                found[seed].append(draws())
    assert found == alone
    last = draws()
    set_seed(3)
    assert last == draws(), "the process has its own states back"


def test_the_ranks_have_their_world_back(turns: Turns) -> None:
    for after in turns.after:
        assert after["size"] == 2
        assert after["variables"] == ("2", "2")
        assert len(after["warm"]) == 1


def test_a_point_that_is_clearly_slower_has_no_further_turns() -> None:
    measure = Measure(half_width=0.005, warmup_steps=2, min_steps=5, min_seconds=0.5, max_seconds=4)
    fields: list[dict[str, Any]] = [
        {"jitter": 1.0},
        {"jitter": 1.0, "step_s": 2 * SLEEP_S},
        {"jitter": 1.0, "learning_rate": 0.2},
    ]
    first, *others = (sweep_of(one, measure)[2] for one in fields)
    task = replace(first, in_turn=others, turns_by="samples_per_s")
    for _, result, _ in results_of(be_rank, task, workers=2):
        measured = [one.measured for one in (result, *result.in_turn) if one and one.measured]
        turns = [int(one.steps["turn"].max()) + 1 for one in measured]
        assert turns[1] >= 8
        assert turns[0] == turns[2] > turns[1]
