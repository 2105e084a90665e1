"""Batches that processes load ahead: the same as without them, and nothing of them is left."""

from __future__ import annotations

import random
import signal
from collections import UserDict
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import psutil
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from dtsweep.hardware.process_state import child_pids
from dtsweep.metrics.rank_result import RankResult
from dtsweep.plan.trial import can_take_turns
from dtsweep.session.attempt import run_attempt
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import Task
from dtsweep.sync.batches import BatchSource
from dtsweep.sync.mode import Job
from dtsweep.worker.rank import RankContext
from dtsweep.workloads.datasets import batch_maker, to_device
from tests.processes import python_begun
from tests.worker.on_ranks import Trials, run_trials, window

WORKERS = 2
CPU, META = torch.device("cpu"), torch.device("meta")


class Items(Dataset[Any]):
    """Item i is i modulo 11 and the length, as numbers."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> tuple[Tensor, float]:
        # An item is read by its own number: one that is not wrapped would be found out.
        assert 0 <= number < self.count
        return torch.full((8,), number % 11.0), float(number)


@dataclass(frozen=True)
class Given:
    """A batch of a class of its own."""

    values: Tensor
    numbers: Tensor


@dataclass(frozen=True)
class Read:
    """A small network with dropout; its batches are those of a dataset of 1000 items."""

    ends_at: int | None = None
    """First sample that there is not."""

    def build(self) -> nn.Module:
        return nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 1))

    def batch(self, samples: range, device: torch.device) -> Given:
        if self.ends_at is not None and samples.stop > self.ends_at:
            raise IndexError(f"there is no sample {self.ends_at}\nand more lines")
        numbers = torch.tensor(samples) % 1000
        values = (numbers[:, None] % 11.0).expand(-1, 8)
        return Given(values.to(device), numbers.double().to(device))

    def loss(self, model: Any, batch: Given) -> Tensor:
        answer: Tensor = model(batch.values)
        return answer.square().mean() + batch.numbers.mean()


@dataclass(frozen=True)
class FromItems(Read):
    """A workload with such batches from a dataset."""

    count: int = 1000
    batch = None  # type: ignore[assignment]

    def dataset(self) -> Items:
        return Items(self.count)

    def collate(self, items: list[Any]) -> Given:
        values, numbers = torch.utils.data.default_collate(items)
        return Given(values, numbers)


@dataclass(frozen=True)
class Drawn(Read):
    """A workload whose values are drawn."""

    def batch(self, samples: range, device: torch.device) -> Given:
        given = super().batch(samples, device)
        return Given(given.values + torch.rand(1) + random.random(), 0 * given.numbers)


USUAL = Point(workers=WORKERS, micro_batch=3, accumulation=2, learning_rate=1e-5, workload=Read())
POINTS = {
    "made": USUAL,
    "loaded": replace(USUAL, loader_workers=1),
    "loaded by two": replace(USUAL, loader_workers=2, prefetch=3),
    "local": replace(USUAL, sync="local_sgd", sync_period=4),
    "local loaded": replace(USUAL, sync="local_sgd", sync_period=4, loader_workers=1),
    "items": replace(USUAL, workload=FromItems()),
    "items loaded": replace(USUAL, workload=FromItems(), loader_workers=2),
    "drawn by one": replace(USUAL, workload=Drawn(), loader_workers=1),
    "drawn by two": replace(USUAL, workload=Drawn(), loader_workers=2),
    "fails": replace(USUAL, workload=Read(ends_at=40)),
    "fails loaded": replace(USUAL, workload=Read(ends_at=40), loader_workers=1),
}


def attempt_and_children(context: RankContext, task: Task) -> tuple[RankResult, list[int]]:
    """An attempt, and the child processes that were not there before it."""
    before = {*child_pids()}
    result = run_attempt(context, task)
    return result, [*{*child_pids()} - before]


@pytest.fixture(scope="module")
def both() -> tuple[Trials, list[list[int]]]:
    found = run_trials(
        {case: (window(4), point) for case, point in POINTS.items()}, attempt=attempt_and_children
    )
    left = [pids for ranks in found.results.values() for _, pids in ranks.values()]
    results = {
        case: {rank: result for rank, (result, _) in ranks.items()}
        for case, ranks in found.results.items()
    }
    return replace(found, results=results), left


@pytest.mark.parametrize(
    ("made", "loaded"),
    [
        *(("made", name) for name in ("loaded", "loaded by two", "items", "items loaded")),
        ("local", "local loaded"),
    ],
)
def test_losses_are_bitwise_those_of_batches_that_are_made_in_the_rank(
    both: tuple[Trials, Any], made: str, loaded: str
) -> None:
    trials, _ = both
    for own, other in zip(trials.measured(made), trials.measured(loaded), strict=True):
        count = own.skipped_steps + own.window_steps
        losses = own.steps["loss"][:count]
        assert len({*losses}) == count >= 6
        assert other.steps["loss"][:count].tolist() == losses.tolist()


def test_what_a_batch_draws_depends_on_its_pass_and_not_on_the_process_that_makes_it(
    both: tuple[Trials, Any],
) -> None:
    trials, _ = both
    for one, two in zip(*map(trials.measured, ("drawn by one", "drawn by two")), strict=True):
        count = 6
        losses = one.steps["loss"][:count]
        assert len({*losses}) == count
        assert two.steps["loss"][:count].tolist() == losses.tolist()


def test_a_window_begins_when_what_was_loaded_before_it_is_used_up(
    both: tuple[Trials, Any],
) -> None:
    trials, _ = both
    # Two passes a step: 2 batches are a step, 2 * 3 batches three; a period is four steps.
    for case, steps in {"loaded": 1, "loaded by two": 3, "local loaded": 4}.items():
        made = "local" if "local" in case else "made"
        skipped = [trials.measured(name)[0].skipped_steps for name in (case, made)]
        assert skipped[0] - skipped[1] == steps


def test_a_batch_that_fails_says_the_same_in_a_process_of_its_own(
    both: tuple[Trials, Any],
) -> None:
    trials, _ = both
    status, reason = trials.failure("fails")
    assert status == "user_error"
    assert "IndexError: there is no sample 40 (test_loading.py:" in str(reason)
    assert trials.failure("fails loaded") == (status, reason)


def test_a_trial_leaves_no_process_and_no_handler_behind(both: tuple[Trials, Any]) -> None:
    trials, left = both
    assert not any(left)
    results = [result for ranks in trials.results.values() for result in ranks.values()]
    assert {(result.left_state, result.needs_new_process) for result in results} == {((), False)}


KILLED = """
import os, signal
from tests.worker.test_loading import Much, child_pids, loading
batches = loading(Much())
batches.start(0)
batches.take(0, 0)
print(*child_pids(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


class Much:
    """Batches that fill a pipe: what is written into it waits for a reader."""

    def batch(self, samples: range, device: torch.device) -> list[int]:
        return [*range(100_000)]


def loading(workload: Any, **axes: Any) -> BatchSource:
    """Batches of a sample each that two processes load ahead."""
    point = Point(workload=workload, micro_batch=1, loader_workers=2, **axes)
    return BatchSource(Job(point=point, rank=0, device=CPU, loss=lambda *_: torch.zeros(())))


def test_processes_end_with_a_rank_that_is_killed() -> None:
    with python_begun(KILLED) as rank:
        out, _ = rank.communicate()
    assert rank.returncode == -signal.SIGKILL
    pids = [int(pid) for pid in out.split()]
    assert len(pids) == 2
    found = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    _, alive = psutil.wait_procs(found, timeout=20)
    assert not alive


def test_passes_that_a_step_leaves_out_are_left_out_and_closing_ends_the_processes() -> None:
    batches = loading(Read())
    handler, before = signal.getsignal(signal.SIGCHLD), {*child_pids()}
    batches.start(3)
    batches.start(5)
    assert len({*child_pids()} - before) == 2
    numbers = [batches.take(number, 0).numbers.tolist() for number in (3, 6, 7)]
    assert numbers == [[3], [6], [7]]
    batches.close()
    assert ({*child_pids()}, signal.getsignal(signal.SIGCHLD)) == (before, handler)


class Stream:
    """A stand-in of a GPU's stream that notes for whom it waits."""

    def __init__(self, order: list[str], name: str) -> None:
        self.order, self.name = order, name

    def wait_stream(self, other: Stream) -> None:
        self.order.append(f"{self.name} waits for {other.name}")


def test_the_next_batch_is_copied_after_the_steps_so_far_and_while_this_one_computes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []
    compute, side = Stream(order, "compute"), Stream(order, "side")
    monkeypatch.setattr(torch.cuda, "Stream", lambda _: side)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: compute)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    batches = loading(Read(), copy_ahead=True)
    batches.start(0)
    taken = []
    for number in (0, 1, 3):
        order.append(f"batch {number}")
        taken.append(batches.take(number, 0).numbers.tolist())
    batches.close()
    copy, use = "side waits for compute", "compute waits for side"
    assert taken == [[0], [1], [3]]
    # The first one, and one after a step that left a pass out, are copied when they are asked for.
    late = [copy, use, copy]
    assert order == ["batch 0", *late, "batch 1", use, copy, "batch 3", *late]


class Pair(NamedTuple):
    """A tuple with names."""

    first: Any
    second: Any


@dataclass(frozen=True)
class Nested:
    """A field of it is no argument."""

    inner: Any
    made: Any = field(init=False, default=None)


def test_a_batch_of_any_kind_is_moved_with_its_structure() -> None:
    tensor = torch.ones(2)
    batch = Nested(UserDict(a=[Pair(tensor, "text"), (tensor, 3)], b={"c": np.ones(2)}))
    object.__setattr__(batch, "made", tensor)
    moved = to_device(batch, META)
    pair, plain = moved.inner["a"]
    kinds = [type(part) for part in (moved, moved.inner, pair, plain)]
    assert kinds == [Nested, UserDict, Pair, tuple]
    assert [moved.made.device, pair.first.device, plain[0].device] == [META] * 3
    assert (pair.second, plain[1], moved.inner["b"]["c"]) == ("text", 3, pytest.approx(np.ones(2)))
    assert batch.made.device == batch.inner["a"][0].first.device == CPU


@pytest.mark.parametrize(
    ("dataset", "reason"),
    [
        (iter([1]), "gave a list_iterator, which is not a map-style dataset; give one with __len"),
        (Items(0), "gave a Items without items"),
    ],
)
def test_a_dataset_that_has_no_items_by_number_is_refused(dataset: Any, reason: str) -> None:
    class Wrong:
        def dataset(self) -> Any:
            return dataset

    with pytest.raises((TypeError, ValueError), match=f"Wrong.dataset {reason}"):
        batch_maker(Wrong())


def test_a_point_whose_processes_load_on_takes_no_turns() -> None:
    assert can_take_turns(Point())
    assert not can_take_turns(Point(loader_workers=1))
