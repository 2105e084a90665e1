"""The contract of a sync mode, held by each entry of `MODES` on processes without Ray.

One spawn per number of workers trains every mode in every case (`tests.contract.training`); each
promise of `tests.contract.promises` is a test of each mode. Models are in float64, so that "the
same" means 1e-9. What a mode promises follows from its declaration: a new one is held to it by its
entry alone.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed

from dtsweep.sweep.mode_info import SEMANTICS, Grid, ModeInfo
from dtsweep.sweep.modes import MODES
from dtsweep.sweep.point import Point
from dtsweep.sync.mode import Job, load_mode
from dtsweep.sync.passes import batches_of_steps, make_optimizer
from tests.contract.promises import (
    FARTHEST,
    PROMISES,
    WORLDS,
    Promise,
    Trained,
    it_can_be_closed_before_it_was_prepared,
    it_refuses_an_exchange_alone_that_it_does_not_declare,
    it_refuses_to_leave_out_what_it_does_not_declare,
)
from tests.contract.regression import (
    CPU,
    PERIOD,
    STEPS,
    distance,
    job_of,
    model_of,
    plain,
    point_of,
    replicas,
    same,
    weights,
)
from tests.contract.training import RUNS, OfRank, outcomes_in, train_all
from tests.ranks import spawn

WITHOUT_RAY = [name for name, mode in MODES.items() if not mode.needs_ray]
WITHOUT_RANKS: tuple[Promise, ...] = (
    it_can_be_closed_before_it_was_prepared,
    it_refuses_to_leave_out_what_it_does_not_declare,
    it_refuses_an_exchange_alone_that_it_does_not_declare,
)
"""Promises that need no trained mode."""

TrainedBy = Callable[[int], Sequence[OfRank]]


@pytest.fixture(scope="module")
def trained_by(tmp_path_factory: pytest.TempPathFactory) -> TrainedBy:
    """From a number of workers to what each of its ranks has trained."""

    @functools.cache
    def trained(workers: int) -> list[OfRank]:
        folder = tmp_path_factory.mktemp(f"workers{workers}")
        spawn(train_all, args=(workers, folder, WITHOUT_RAY, {}), nprocs=workers)
        return outcomes_in(folder, workers)

    return trained


def trained_with(mode: str, trained_by: TrainedBy) -> Trained:
    return Trained(mode=mode, fields={}, by_workers=trained_by)


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
@pytest.mark.parametrize("mode", WITHOUT_RAY)
def test_a_mode_keeps_its_promise(trained_by: TrainedBy, mode: str, promise: Promise) -> None:
    assert list(promise(trained_with(mode, trained_by))) == []


@pytest.mark.parametrize("promise", WITHOUT_RANKS, ids=lambda promise: promise.__name__)
@pytest.mark.parametrize("mode", [name for name, mode in MODES.items() if mode.needs_ray])
def test_a_mode_that_needs_ray_keeps_the_promises_without_ranks(
    mode: str, promise: Promise
) -> None:
    def nothing(_: int) -> Sequence[OfRank]:
        raise NotImplementedError

    assert list(promise(trained_with(mode, nothing))) == []


def test_the_comparison_tells_one_training_from_another() -> None:
    point = point_of("ddp", workers=2)
    assert not same(plain(point, STEPS), plain(point, STEPS - 1))
    assert not same(*replicas(point, STEPS, period=None))
    assert 0.1 < distance(plain(point, STEPS - 1), plain(point, STEPS)) < 0.5


def test_every_mode_states_a_bound_that_is_tested_here() -> None:
    assert set(FARTHEST) == set(SEMANTICS) - {"not_exchanged", "unknown"}
    assert {point_of(name, workers=2).semantics for name in MODES} <= set(FARTHEST)


@pytest.mark.parametrize("workers", WORLDS[1:])
@pytest.mark.parametrize("case", ["plain", "between"])
def test_local_sgd_is_the_mean_of_replicas_trained_alone(
    trained_by: TrainedBy, case: str, workers: int
) -> None:
    expected = replicas(point_of("local_sgd", workers=workers), sum(RUNS[case]), period=PERIOD)
    for rank, alone in zip(trained_by(workers), expected, strict=True):
        assert same(rank["local_sgd", case].weights, alone)


def test_local_sgd_averages_without_a_wait_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def wait(*_: Any) -> None:
        raise AssertionError("the host waits for the device")

    # As on a machine with a GPU, whether or not ranks use it.
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "synchronize", wait)
    store = distributed.HashStore()  # type: ignore[attr-defined]  # missing in torch's stub
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        model = model_of(0)
        before = weights(model)
        job = job_of(point_of("local_sgd", workers=1), 0)
        sync = load_mode("local_sgd")(job)
        sync.prepare(model, functools.partial(make_optimizer, point=job.point))
        assert sync.exchange_alone() == PERIOD
        assert same(weights(model), before)
    finally:
        distributed.destroy_process_group()


def test_an_exchange_by_itself_averages_what_local_sgd_has(trained_by: TrainedBy) -> None:
    ranks = trained_by(2)
    outcomes = [rank["local_sgd", "between"] for rank in ranks]
    mean = np.mean([outcome.weights for outcome in outcomes], axis=0)
    assert not same(outcomes[0].weights, mean)
    for outcome in outcomes:
        assert outcome.alone is not None
        assert same(outcome.alone.weights, mean)


def test_what_an_entry_leaves_out_has_its_default() -> None:
    info = ModeInfo(
        implementation="dtsweep.sync.ddp:Ddp",
        semantics=lambda _: "exact",
        reads={"sync_period": 8, "shards": 1},
    )
    assert info.servers({"shards": 2}) == 0
    assert (info.needs_ray, info.can_leave_out, info.can_exchange_alone) == (False, (), False)
    assert (info.agree, info.grid({"workers": 4})) == ("nothing", Grid(data=4))
    assert info.can_restart


def test_the_parameter_server_alone_has_servers_and_ends_with_its_window() -> None:
    assert Point(sync="parameter_server", shards=3).servers == 3
    assert (Point(sync="ddp").servers, Point(sync="local_sgd").servers) == (0, 0)
    can_restart = {
        name: MODES[name].can_restart for name in ("ddp", "local_sgd", "parameter_server")
    }
    assert can_restart == {"ddp": True, "local_sgd": True, "parameter_server": False}


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
