"""Trainings to a target on two real ranks: what they count, where they end, how they go on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn

from dtsweep.metrics.rank_result import RankResult
from dtsweep.metrics.rows import curve_rows
from dtsweep.session.attempt import run_attempt
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import Task
from dtsweep.worker import to_target
from dtsweep.worker.rank import RankContext
from tests.worker.on_ranks import Trials, run_trials, start_of, window

WIDTH, WORKERS, MICRO_BATCH = 6, 2, 4
TARGET, SLOW, SAMPLES = 0.05, 1e-6, 100
"""Loss, a learning rate by which it is not reached, and samples in place of a target."""

CALLS: list[int] = []
"""One element for each evaluation of the trial under way."""


def rows_of(samples: range) -> Tensor:
    numbers = torch.arange(samples.start, samples.stop, dtype=torch.float64)[:, None]
    return torch.sin(numbers * torch.arange(1, WIDTH + 1) * 0.37)


def held_out_loss(model: nn.Module) -> Tensor:
    rows = rows_of(range(10**6, 10**6 + 64))
    return (model(rows) - rows.sum(1, keepdim=True)).square().mean()


@dataclass(frozen=True)
class Line:
    """Learns the sum of its inputs; fails in its evaluation of that number."""

    fails_at: int = 0
    samples: int = 0
    """On which it trains, in place of a target."""
    damages: bool = False
    """True if what its failed attempt has kept can't be read."""

    def build(self) -> nn.Module:
        return nn.Linear(WIDTH, 1).double()

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return rows_of(samples).to(device)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        loss: Tensor = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
        return loss

    def evaluate(self, model: nn.Module) -> Tensor:
        CALLS.append(1)
        if len(CALLS) == self.fails_at:
            raise ConnectionError("the machine is gone")
        return held_out_loss(model)


class Blind(Line):
    """Has nothing held out."""

    evaluate = None  # type: ignore[assignment]


def losses_of(steps: int, point: Point, start: Mapping[str, Tensor]) -> list[float]:
    """Held-out loss after each number of steps of one process that has the whole batch."""
    model = Line().build()
    model.load_state_dict(start)
    optimizer = torch.optim.Adam(model.parameters(), lr=point.learning_rate)
    losses = []
    for step in range(steps + 1):
        losses.append(float(held_out_loss(model).detach()))
        first = step * point.global_batch
        Line().loss(model, rows_of(range(first, first + point.global_batch))).backward()
        optimizer.step()
        optimizer.zero_grad()
    return losses


KINDS: Mapping[str, tuple[Any, Mapping[str, Any]]] = {
    "ddp": (Line(), {}),
    "fsdp": (Line(), {"sync": "fsdp"}),
    "ring, accumulated": (Line(), {"sync": "ring", "accumulation": 2}),
    "local_sgd": (Line(), {"sync": "local_sgd", "sync_period": 4}),
    "hogwild": (Line(), {"sync": "hogwild"}),
    "training loss": (Blind(), {}),
    "on samples": (Line(samples=SAMPLES), {}),
    "on samples, in periods": (
        Line(samples=SAMPLES),
        {"sync": "local_sgd", "sync_period": 4},
    ),
    "too late": (Line(), {"learning_rate": SLOW}),
    "diverges": (Line(), {"learning_rate": 1e6, "optimizer": "sgd"}),
    "killed ddp": (Line(fails_at=9), {}),
    "killed fsdp": (Line(fails_at=9), {"sync": "fsdp"}),
    "killed ring": (Line(fails_at=9), {"sync": "ring"}),
    "damaged ddp": (Line(fails_at=9, damages=True), {}),
    "damaged fsdp": (Line(fails_at=9, damages=True), {"sync": "fsdp"}),
    "killed local_sgd": (Line(fails_at=9), {"sync": "local_sgd", "sync_period": 4}),
}
ENDS_OTHERWISE = ("too late", "diverges", "on samples", "on samples, in periods")
DAMAGED = ("damaged ddp", "damaged fsdp")
GO_ON = ("killed ddp", "killed fsdp", "killed ring")


@dataclass(frozen=True)
class _InFolder:
    """Trains to the target; what failed goes on as its next attempt would.

    It also gives the evaluations of the last attempt.
    """

    folder: str

    def __call__(self, context: RankContext, task: Task) -> tuple[RankResult, int]:
        # Of these trainings, which are short.
        to_target._CHECKPOINT_EVERY_S = to_target._LEAST_S = 0.01
        to_target._SHARE = 0.5
        train_s = 2.0 if task.point.learning_rate == SLOW else 60.0
        task = replace(
            task, target=TARGET, train_s=train_s, checkpoint=f"{self.folder}/{task.trial_id}"
        )
        if samples := task.workload["samples"]:
            task = replace(task, target=None, train_samples=samples)
        CALLS.clear()
        result = run_attempt(context, task)
        if result.status != "user_error":
            return result, len(CALLS)
        if task.workload["damages"]:
            distributed.barrier()
            for file in Path(self.folder).rglob(f"__{context.rank}_*.distcp"):
                os.truncate(file, file.stat().st_size // 2)
            distributed.barrier()
        CALLS.clear()
        again = replace(task, workload={**task.workload, "fails_at": 0})
        result = run_attempt(context, again)
        return result, len(CALLS)


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> Trials:
    usual = {"workers": WORKERS, "micro_batch": MICRO_BATCH, "sync": "ddp"}
    usual |= {"optimizer": "adam", "learning_rate": 0.01}
    cases = {
        name: (window(4, exchange="off"), Point(**{**usual, **fields, "workload": workload}))
        for name, (workload, fields) in KINDS.items()
    }
    folder = tmp_path_factory.mktemp("checkpoints")
    trials = run_trials(cases, attempt=_InFolder(str(folder)))
    assert not list(folder.iterdir()), "an ended training keeps nothing"
    return trials


@pytest.fixture(scope="module")
def ran(attempts: Trials) -> Trials:
    results = {
        name: {rank: result for rank, (result, _) in of_ranks.items()}
        for name, of_ranks in attempts.results.items()
    }
    return replace(attempts, results=results)


def curve_of(trials: Trials, name: str) -> list[dict[str, Any]]:
    return curve_rows(trials.results[name])


@pytest.mark.parametrize("name", [name for name in KINDS if name not in ENDS_OTHERWISE])
def test_a_training_ends_at_its_target_and_counts_each_sample_once(ran: Trials, name: str) -> None:
    row, curve = ran.row(name), curve_of(ran, name)
    assert (row["status"], row["reason"]) == ("ok", None)
    assert row["is_censored"] is False
    assert row["target_loss"] == TARGET
    assert row["loss_by"] == ("training" if name == "training loss" else "evaluate")
    *_, before, last = curve
    assert last["loss"] <= TARGET < before["loss"]
    assert before["trained_s"] <= row["time_to_loss_s"] <= last["trained_s"]
    assert before["samples"] <= row["samples_to_loss"] <= last["samples"]
    assert row["final_loss"] == last["loss"]
    for column in ("steps", "samples", "trained_s"):
        values = [one[column] for one in curve]
        assert values == sorted(values)
    if name != "hogwild":
        batch = ran.points[name].global_batch
        assert [one["samples"] for one in curve] == [one["steps"] * batch for one in curve]
    period = ran.points[name].period
    assert all(one["steps"] % period == 0 for one in curve)


@pytest.mark.parametrize("name", ["ddp", "fsdp", "ring, accumulated", *GO_ON, *DAMAGED])
def test_the_loss_is_that_of_one_process_after_as_many_steps(ran: Trials, name: str) -> None:
    point, curve = ran.points[name], curve_of(ran, name)
    expected = losses_of(curve[-1]["steps"], point, start_of(point))
    for one in curve:
        assert one["loss"] == pytest.approx(expected[one["steps"]], rel=1e-9)


@pytest.mark.parametrize("name", [*GO_ON, *DAMAGED, "killed local_sgd"])
def test_a_training_goes_on_where_its_mode_can_be_kept(
    ran: Trials, attempts: Trials, name: str
) -> None:
    steps = [one["steps"] for one in curve_of(ran, name)]
    assert steps == sorted(set(steps))
    # The attempt before made eight evaluations.
    _, evaluations = attempts.results[name][0]
    kept = len(steps) - evaluations
    assert (kept > 0) is (name in GO_ON)


@pytest.mark.parametrize("name", ["too late", "diverges"])
def test_a_training_that_does_not_get_there_is_a_lower_bound(ran: Trials, name: str) -> None:
    row, curve = ran.row(name), curve_of(ran, name)
    assert row["is_censored"] is True
    assert row["time_to_loss_s"] == curve[-1]["trained_s"]
    assert row["samples_to_loss"] == curve[-1]["samples"]
    if name == "too late":
        assert row["status"] == "ok"
        assert row["time_to_loss_s"] >= 2.0
    else:
        assert row["status"] == "nan"


@pytest.mark.parametrize(
    ("name", "samples"), [("on samples", 104), ("on samples, in periods", 128)]
)
def test_a_training_on_samples_ends_with_whole_periods(
    ran: Trials, name: str, samples: int
) -> None:
    row, curve = ran.row(name), curve_of(ran, name)
    assert (row["status"], row["is_censored"], row["time_to_loss_s"]) == ("ok", None, None)
    assert row["trained_samples"] == curve[-1]["samples"] == samples
    assert row["final_loss"] == curve[-1]["loss"]
