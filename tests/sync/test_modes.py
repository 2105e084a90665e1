"""The contract of a sync mode, held by each entry of `MODES` on processes without Ray.

One spawn per number of workers trains every mode in every case (`tests.contract.training`); each
promise of `tests.contract.promises` is a test of each mode. Models are in float64, so that "the
same" means 1e-9. What a mode promises follows from its declaration: a new one is held to it by its
entry alone.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from dtsweep.measure.clock import CpuClock
from dtsweep.sweep.modes import MODES
from dtsweep.sweep.point import Point
from dtsweep.sync.mode import Job, load_mode
from dtsweep.sync.passes import batches_of_steps
from tests.contract import promises
from tests.contract.promises import PROMISES, WORLDS, Promise, Trained
from tests.contract.regression import CPU, STEPS, alone, distance, job_of, plain, point_of, same
from tests.contract.training import OfRank, Outcome, train_all
from tests.ranks import results_of

WITHOUT_RAY = [name for name, mode in MODES.items() if not mode.needs_ray]


@functools.cache
def trained(workers: int) -> Sequence[OfRank]:
    return results_of(train_all, workers, WITHOUT_RAY, workers=workers)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
@pytest.mark.parametrize("mode", WITHOUT_RAY)
def test_a_mode_keeps_its_promise(mode: str, promise: Promise) -> None:
    assert list(promise(Trained(mode=mode, by_workers=trained, worlds=(1, 2)))) == []


@pytest.mark.slow
@pytest.mark.parametrize("mode", WITHOUT_RAY)
def test_a_mode_keeps_its_promises_with_four_workers(mode: str) -> None:
    of = Trained(mode=mode, by_workers=trained, worlds=(4,))
    assert {promise: lines for promise in PROMISES if (lines := list(promise(of)))} == {}


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_refuses_what_it_does_not_declare_and_can_be_closed_at_any_time(mode: str) -> None:
    job = job_of(point_of(mode, workers=1), 0)
    sync = load_mode(MODES[mode])(job)
    if not MODES[mode].can_leave_out:
        # A step with another exchange than asked for would be measured as one without.
        with pytest.raises(NotImplementedError, match="exchange"):
            sync.step(next(batches_of_steps(job)), CpuClock(), without={"gradients"})
    if not MODES[mode].can_exchange_alone:
        with pytest.raises(NotImplementedError, match="exchange"):
            sync.exchange_alone()
    sync.close()
    sync.close()


CHANGED: Mapping[str, Callable[[Outcome], Any]] = {
    "weights": lambda of: of.weights + 1e-6,
    "times": lambda of: {"step_s": of.times["step_s"]},
    "alone": lambda of: replace(promises.alone_of(of), exchanges=0),
    "exchanges": lambda of: [2 * count + 1 for count in of.exchanges],
    "position": lambda of: of.position + 1,
    "losses": lambda of: [None if loss else 1.0 for loss in of.losses],
    "counters": lambda of: {"waits": 1},
    "updates": lambda of: [of.updates[0] - 1],
    "looks": lambda of: of.looks - 1,
}
"""Fields of an outcome that breaks a promise."""

BREACHES = """
    trains_like_plain_pytorch_with_one_worker ddp plain weights
    trains_as_near_to_the_whole_batch_as_its_semantics_say ddp plain weights
    workers_agree_as_it_declares local_sgd plain weights
    every_worker_trains_alone_without_the_exchange ddp no_exchange weights
    every_worker_updates_its_share_without_the_exchange zero1 no_exchange weights
    its_exchange_is_left_out_or_marked ring plain times
    an_exchange_alone_is_one_of_a_step_or_a_period local_sgd plain alone
    an_exchange_alone_leaves_an_exact_model_as_it_was ddp plain weights
    accumulation_adds_exchanges_only_where_each_pass_has_them ddp accumulation exchanges
    without_the_exchange_there_is_none_and_then_it_is_as_before ddp no_exchange exchanges
    ranks_begin_as_many_collectives ddp plain position
    groups_train_as_it_declares federated plain losses
    a_step_returns_its_part_of_the_mean_loss ddp accumulation losses
    the_phases_that_it_marks_make_up_its_steps ddp accumulation times
    it_counts_nothing_but_what_the_loop_knows ddp plain counters
    a_run_of_steps_ends_all_its_updates ddp plain updates
    its_gradients_can_be_seen_before_each_update ddp plain looks
"""
"""A promise, a mode, a case, and the field that rank 0 has changed."""


@pytest.mark.parametrize("breach", BREACHES.strip().splitlines(), ids=lambda line: line.split()[0])
def test_a_promise_that_one_rank_breaks_is_missed(breach: str) -> None:
    promise, mode, case, name = breach.split()

    def by_workers(workers: int) -> list[OfRank]:
        first, *others = trained(workers)
        outcome = first[mode, case]
        broken: Any = {name: CHANGED[name](outcome)}
        return [{**first, (mode, case): replace(outcome, **broken)}, *others]

    assert list(
        getattr(promises, promise)(Trained(mode=mode, by_workers=by_workers, worlds=(1, 2)))
    )


def test_groups_of_a_local_mode_that_do_not_part_are_missed() -> None:
    part = promises.workers_of_a_local_mode_part_between_exchanges
    for mode, pairs in (("local_sgd", 1 + 6), ("federated", 1 + 5)):

        def alike(workers: int) -> Sequence[OfRank]:
            return [*trained(1)] * workers

        # Two of four are drawn in federated averaging: those that are not stay the same.
        assert len(list(part(Trained(mode=mode, by_workers=alike)))) == pairs


def test_the_comparison_tells_one_training_from_another() -> None:
    point = point_of("ddp", workers=2)
    assert not same(plain(point, STEPS), plain(point, STEPS - 1))
    assert not same(alone(point, 0), alone(point, 1))
    assert 0.1 < distance(plain(point, STEPS - 1), plain(point, STEPS)) < 0.5


def test_an_exchange_by_itself_averages_what_local_sgd_has() -> None:
    outcomes = [rank["local_sgd", "between"] for rank in trained(2)]
    mean = np.mean([outcome.weights for outcome in outcomes], axis=0)
    assert not same(outcomes[0].weights, mean)
    for outcome in outcomes:
        assert same(promises.alone_of(outcome).weights, mean)


@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("workers", WORLDS)
def test_every_sample_is_read_once_and_a_step_reads_the_same_ones_with_any_number_of_workers(
    workers: int, accumulation: int
) -> None:
    @dataclass(frozen=True)
    class Numbers:
        def batch(self, samples: range, device: torch.device) -> range:
            return samples

    point = Point(
        workers=workers, micro_batch=12 // workers, accumulation=accumulation, workload=Numbers()
    )
    job_steps = [
        batches_of_steps(
            Job(point=point, rank=rank, device=CPU, loss=lambda model, batch: torch.zeros(()))
        )
        for rank in range(workers)
    ]
    for step in range(3):
        passes = zip(*(next(steps) for steps in job_steps), strict=True)
        read = [number for samples in itertools.chain(*passes) for number in samples]
        assert read == list(range(step * 12 * accumulation, (step + 1) * 12 * accumulation))
