"""The contract of a sync mode, held by each entry of `MODES` on processes without Ray.

One spawn per number of workers trains every mode in every case; the tests compare what came out
with plain PyTorch in this process. Models are in float64, so that "the same" means 1e-9. What a
mode promises follows from its semantics: a new one is held to it by its entry alone.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.tensor import DTensor

from dtsweep.measure.clock import CpuClock
from dtsweep.sweep.mode_info import SEMANTICS, Grid, ModeInfo
from dtsweep.sweep.modes import MODES
from dtsweep.sweep.point import Point
from dtsweep.sync.groups import forget_groups, messages, position
from dtsweep.sync.mode import Job, load_mode
from dtsweep.sync.passes import batches_of_steps, loss_in_precision, make_optimizer
from tests.ranks import spawn

CPU = torch.device("cpu")
WORLDS = (1, 2, 4)
PERIOD = 3
"""Steps between exchanges, of modes that have a period."""
STEPS = 2 * PERIOD
MICRO_BATCH = 2
LONGEST = timedelta(seconds=120)
"""A mode whose ranks wait for each other in vain fails instead of hanging."""
BACK = 3
"""Steps with the exchange after those without it; DDP rebuilds its buckets after the first."""
CASES = ("plain", "accumulation", "between", "no_exchange")
WITHOUT_RAY = [name for name, mode in MODES.items() if not mode.needs_ray]
SKIPPING = [name for name in WITHOUT_RAY if MODES[name].can_leave_out]
ALONE = [name for name in WITHOUT_RAY if MODES[name].can_exchange_alone]
FARTHEST = {"exact": 0.0, "lossy": 0.1, "stale": 1.0, "local": 0.5}
"""Largest distance from the weights of plain training by semantics, as a share of its way."""


@dataclass(frozen=True)
class Regression:
    """A small network on samples that are made from their numbers."""

    def build(self) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)).double()

    def batch(self, samples: range, device: torch.device) -> Tensor:
        numbers = torch.arange(samples.start, samples.stop, dtype=torch.float64, device=device)
        return torch.stack(
            [torch.sin(numbers), torch.cos(2 * numbers), numbers % 5 / 5, numbers % 3], dim=1
        )

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        wrong: Tensor = model(batch[:, :3]).squeeze(1) - batch[:, 3]
        return wrong.square().mean()


def point_of(mode: str, *, workers: int, case: str = "plain") -> Point:
    return Point(
        workers=workers,
        micro_batch=MICRO_BATCH,
        accumulation=3 if case == "accumulation" else 1,
        sync=mode,
        sync_period=PERIOD if "sync_period" in MODES[mode].reads else None,
        node_size=max(1, workers // 2) if "node_size" in MODES[mode].reads else None,
        optimizer="momentum",
        learning_rate=0.05,
        workload=Regression(),
    )


def steps_of(case: str) -> int:
    """Between two exchanges: one step after the first of them."""
    return PERIOD + 1 if case == "between" else STEPS


def job_of(point: Point, rank: int) -> Job:
    return Job(point=point, rank=rank, device=CPU, loss=loss_in_precision(point, CPU))


def model_of(rank: int) -> nn.Module:
    torch.manual_seed(rank)
    return Regression().build()


def weights(model: nn.Module) -> np.ndarray[Any, Any]:
    """All parameters, whole; called on all ranks, which gather them where they are in shards."""
    whole = [p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters()]
    return nn.utils.parameters_to_vector(whole).detach().numpy().copy()


def left_out(mode: str, case: str) -> Sequence[str]:
    """Parts of the exchange that the steps of a case leave out."""
    if case == "no_exchange":
        return MODES[mode].can_leave_out
    return ()


def begun() -> int:
    """Number of collective operations and messages this process has begun, in all groups."""
    return position() + messages()


def train(mode: str, case: str, *, workers: int, rank: int) -> dict[str, Any]:
    """Train on one rank as the common loop does.

    Each rank builds another model, which the mode must make equal.
    """
    point = point_of(mode, workers=workers, case=case)
    job = job_of(point, rank)
    steps, clock, model = batches_of_steps(job), CpuClock(), model_of(rank)
    sync = load_mode(mode)(job)
    sync.prepare(model, functools.partial(make_optimizer, point=point))
    counts = [begun()]
    clock.start()
    losses = []
    for _ in range(steps_of(case)):
        losses.append(sync.step(next(steps), clock, without=left_out(mode, case)))
        clock.end_step()
        counts.append(begun())
    sync.drain()
    clock.stop()
    counted = dict(sync.counters())
    trained, alone, back = weights(model), {}, [begun()]
    for _ in range(BACK if case == "no_exchange" else 0):
        sync.step(next(steps), clock)
        back.append(begun())
    if MODES[mode].can_exchange_alone:
        sync.exchange_alone()  # in the first one ranks may agree on more
        before = begun()
        alone = {
            "shared_by": [sync.exchange_alone() for _ in range(2)],
            "exchanges": begun() - before,
        }
        alone["weights"] = weights(model)
    sync.close()
    return {
        "weights": trained,
        "alone": alone,
        "losses": [float(loss) for loss in losses],
        "loss_kinds": {type(loss) for loss in losses},
        "times": clock.times(),
        "counted": counted,
        "exchanges": np.diff(counts).tolist(),
        "exchanges_back": np.diff(back).tolist(),
        "position": position(),
    }


def train_all(rank: int, workers: int, folder: Path) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=workers, timeout=LONGEST
    )
    results = {
        (mode, case): train(mode, case, workers=workers, rank=rank)
        for mode, case in itertools.product(WITHOUT_RAY, CASES)
        if case != "no_exchange" or MODES[mode].can_leave_out
    }
    torch.save(results, folder / f"{rank}.pt")
    distributed.barrier()
    forget_groups()
    distributed.destroy_process_group()


Results = dict[tuple[str, str], dict[str, Any]]
TrainedBy = Callable[[int], list[Results]]


@pytest.fixture(scope="module")
def trained_by(tmp_path_factory: pytest.TempPathFactory) -> TrainedBy:
    """From a number of workers to what each of its ranks has trained."""

    @functools.cache
    def trained(workers: int) -> list[Results]:
        folder = tmp_path_factory.mktemp(f"workers{workers}")
        spawn(train_all, args=(workers, folder), nprocs=workers)
        return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(workers)]

    return trained


def whole_batches(point: Point, steps: int) -> Iterator[Tensor]:
    size = point.global_batch
    return (Regression().batch(range(step * size, (step + 1) * size), CPU) for step in range(steps))


def plain(point: Point, steps: int) -> np.ndarray[Any, Any]:
    """Train in one process with the whole batch, the way a textbook does."""
    model = model_of(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for batch in whole_batches(point, steps):
        optimizer.zero_grad()
        Regression().loss(model, batch).backward()
        optimizer.step()
    return weights(model)


def replicas(point: Point, steps: int, *, period: int | None) -> list[np.ndarray[Any, Any]]:
    """Train a model per worker on its share; every `period` steps all take the mean of all."""
    models = [model_of(0) for _ in range(point.workers)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9) for model in models]
    for step, batch in enumerate(whole_batches(point, steps), start=1):
        for model, optimizer, share in zip(
            models, optimizers, batch.chunk(point.workers), strict=True
        ):
            optimizer.zero_grad()
            Regression().loss(model, share).backward()
            optimizer.step()
        if period and step % period == 0:
            mean = torch.from_numpy(np.mean([weights(model) for model in models], axis=0))
            for model in models:
                nn.utils.vector_to_parameters(mean.clone(), model.parameters())
    return [weights(model) for model in models]


def same(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    return bool(np.allclose(one, other, rtol=0, atol=1e-9))


def near(one: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], *, farthest: float) -> bool:
    """True if weights are near the expected ones, as a share of the way that training went."""
    way = np.linalg.norm(expected - weights(model_of(0)))
    return same(one, expected) or bool(np.linalg.norm(one - expected) <= farthest * way)


def semantics_of(mode: str) -> str:
    return point_of(mode, workers=2).semantics


def modes_with(*semantics: str) -> list[str]:
    return [name for name in WITHOUT_RAY if semantics_of(name) in semantics]


def test_the_comparison_tells_one_training_from_another() -> None:
    point = point_of("ddp", workers=2)
    assert not same(plain(point, STEPS), plain(point, STEPS - 1))
    assert not same(*replicas(point, STEPS, period=None))
    assert near(plain(point, STEPS - 1), plain(point, STEPS), farthest=0.5)
    assert not near(plain(point, STEPS - 1), plain(point, STEPS), farthest=0.1)


def test_every_mode_states_a_bound_that_is_tested_here() -> None:
    assert set(FARTHEST) == set(SEMANTICS) - {"not_exchanged", "unknown"}
    assert {semantics_of(name) for name in MODES} <= set(FARTHEST)


@pytest.mark.parametrize("case", ["plain", "accumulation", "between"])
@pytest.mark.parametrize("mode", WITHOUT_RAY)
def test_with_one_worker_a_mode_trains_like_plain_pytorch(
    trained_by: TrainedBy, mode: str, case: str
) -> None:
    (result,) = trained_by(1)
    expected = plain(point_of(mode, workers=1, case=case), steps_of(case))
    # Nobody's update is late or another's then; but what is sent may still be rounded.
    farthest = FARTHEST["lossy"] if semantics_of(mode) == "lossy" else 0.0
    assert near(result[mode, case]["weights"], expected, farthest=farthest)


@pytest.mark.parametrize("workers", WORLDS[1:])
@pytest.mark.parametrize("case", ["plain", "accumulation", "between"])
@pytest.mark.parametrize("mode", WITHOUT_RAY)
def test_a_mode_trains_as_near_to_one_worker_with_the_whole_batch_as_its_semantics_say(
    trained_by: TrainedBy, mode: str, case: str, workers: int
) -> None:
    expected = plain(point_of(mode, workers=workers, case=case), steps_of(case))
    for rank in trained_by(workers):
        assert near(rank[mode, case]["weights"], expected, farthest=FARTHEST[semantics_of(mode)])


@pytest.mark.parametrize("workers", WORLDS[1:])
@pytest.mark.parametrize("case", ["plain", "accumulation", "between"])
@pytest.mark.parametrize("mode", modes_with("exact", "lossy"))
def test_the_workers_of_a_mode_that_exchanges_in_every_step_always_agree(
    trained_by: TrainedBy, mode: str, case: str, workers: int
) -> None:
    first, *others = trained_by(workers)
    assert all(same(first[mode, case]["weights"], other[mode, case]["weights"]) for other in others)


@pytest.mark.parametrize("workers", WORLDS[1:])
@pytest.mark.parametrize("mode", modes_with("local"))
def test_the_workers_of_a_local_mode_agree_after_an_exchange_and_part_until_the_next(
    trained_by: TrainedBy, mode: str, workers: int
) -> None:
    first, *others = trained_by(workers)
    assert all(
        same(first[mode, "plain"]["weights"], other[mode, "plain"]["weights"]) for other in others
    )
    assert not any(
        same(first[mode, "between"]["weights"], other[mode, "between"]["weights"])
        for other in others
    )


@pytest.mark.parametrize("workers", WORLDS[1:])
@pytest.mark.parametrize("case", ["plain", "between"])
def test_local_sgd_is_the_mean_of_replicas_trained_alone(
    trained_by: TrainedBy, case: str, workers: int
) -> None:
    expected = replicas(point_of("local_sgd", workers=workers), steps_of(case), period=PERIOD)
    for rank, alone in zip(trained_by(workers), expected, strict=True):
        assert same(rank["local_sgd", case]["weights"], alone)


@pytest.mark.parametrize("workers", WORLDS)
@pytest.mark.parametrize("mode", [name for name in SKIPPING if not MODES[name].shards_optimizer])
def test_without_the_exchange_every_worker_trains_alone(
    trained_by: TrainedBy, mode: str, workers: int
) -> None:
    expected = replicas(point_of(mode, workers=workers), STEPS, period=None)
    for rank, alone in zip(trained_by(workers), expected, strict=True):
        assert same(rank[mode, "no_exchange"]["weights"], alone)


@pytest.mark.parametrize("workers", WORLDS)
@pytest.mark.parametrize(
    "mode", [n for n in SKIPPING if MODES[n].shards_optimizer and not MODES[n].shards]
)
def test_without_the_exchange_every_worker_updates_its_share(
    trained_by: TrainedBy, mode: str, workers: int
) -> None:
    start = weights(model_of(0))
    moved = [rank[mode, "no_exchange"]["weights"] != start for rank in trained_by(workers)]
    assert np.sum(moved, axis=0).tolist() == [1] * len(start)


@pytest.mark.parametrize("mode", MODES)
def test_an_exchange_is_left_out_or_marked_so_that_its_cost_is_known(
    trained_by: TrainedBy, mode: str
) -> None:
    if MODES[mode].can_leave_out:
        # Turns of steps with and without it are laid out for an exchange in every step.
        assert point_of(mode, workers=2).period == 1
    elif mode in WITHOUT_RAY:
        point = point_of(mode, workers=2)
        for results in trained_by(2):
            marked = results[mode, "plain"]["times"]["sync_s"] > 0
            assert marked.tolist() == [(step + 1) % point.period == 0 for step in range(STEPS)]


@pytest.mark.parametrize("case", ["plain", "between"])
@pytest.mark.parametrize("mode", ALONE)
def test_an_exchange_by_itself_is_one_that_a_step_or_a_period_has(
    trained_by: TrainedBy, mode: str, case: str
) -> None:
    point = point_of(mode, workers=2)
    for results in trained_by(2):
        alone = results[mode, case]["alone"]
        assert alone["shared_by"] == [point.period] * 2
        # As many collectives as the exchanges have that one training has more than the other.
        more = STEPS // point.period - steps_of("between") // point.period
        each = (
            sum(results[mode, "plain"]["exchanges"]) - sum(results[mode, "between"]["exchanges"])
        ) / more
        assert alone["exchanges"] == 2 * each > 0


@pytest.mark.parametrize("mode", [name for name in ALONE if semantics_of(name) == "exact"])
def test_an_exchange_by_itself_leaves_the_model_of_an_exact_mode_as_it_was(
    trained_by: TrainedBy, mode: str
) -> None:
    for rank in trained_by(2):
        assert same(rank[mode, "plain"]["alone"]["weights"], rank[mode, "plain"]["weights"])


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
    mean = np.mean([rank["local_sgd", "between"]["weights"] for rank in ranks], axis=0)
    assert not same(ranks[0]["local_sgd", "between"]["weights"], mean)
    for rank in ranks:
        assert same(rank["local_sgd", "between"]["alone"]["weights"], mean)


@pytest.mark.parametrize("mode", WITHOUT_RAY)
def test_accumulation_adds_exchanges_only_where_each_pass_has_them(
    trained_by: TrainedBy, mode: str
) -> None:
    passes = (
        point_of(mode, workers=2, case="accumulation").accumulation
        if MODES[mode].exchanges_each_pass
        else 1
    )
    for results in trained_by(2):
        plain, several = (results[mode, case]["exchanges"] for case in ("plain", "accumulation"))
        # What a mode finds out in its first step it may tell the others then.
        assert sum(several[1:]) == passes * sum(plain[1:]) > 0


@pytest.mark.parametrize("mode", SKIPPING)
def test_without_the_exchange_there_is_none_and_then_it_is_as_before(
    trained_by: TrainedBy, mode: str
) -> None:
    for results in trained_by(2):
        first, *silent = results[mode, "no_exchange"]["exchanges"]
        # What is in shards is gathered once more, and then stays whole.
        assert first == 0 or MODES[mode].shards
        assert silent == [0] * (STEPS - 1)
        assert (
            results[mode, "no_exchange"]["exchanges_back"][-1]
            == results[mode, "plain"]["exchanges"][-1]
        )


@pytest.mark.parametrize("workers", WORLDS)
def test_ranks_have_begun_as_many_collectives_after_each_mode(
    trained_by: TrainedBy, workers: int
) -> None:
    first, *others = [
        {key: of["position"] for key, of in rank.items()} for rank in trained_by(workers)
    ]
    assert all(other == first for other in others)


@pytest.mark.parametrize("workers", WORLDS)
@pytest.mark.parametrize("mode", WITHOUT_RAY)
def test_a_step_returns_the_mean_loss_of_its_passes_on_a_cpu_as_a_number(
    trained_by: TrainedBy, mode: str, workers: int
) -> None:
    point = point_of(mode, workers=workers, case="accumulation")
    (first_step,) = whole_batches(point, 1)
    for rank, results in enumerate(trained_by(workers)):
        result = results[mode, "accumulation"]
        # Passes come one after the other, and in each the shares of the ranks.
        own = torch.cat(list(first_step.split(MICRO_BATCH))[rank :: point.workers])
        assert result["losses"][0] == pytest.approx(
            float(Regression().loss(model_of(0), own).detach()), rel=1e-5
        )
        assert result["loss_kinds"] == {float}


@pytest.mark.parametrize("workers", WORLDS)
@pytest.mark.parametrize("mode", WITHOUT_RAY)
def test_the_phases_that_a_mode_marks_make_up_its_steps(
    trained_by: TrainedBy, mode: str, workers: int
) -> None:
    for results in trained_by(workers):
        times = results[mode, "accumulation"]["times"]
        phases = {name for name in times if name not in ("start_s", "step_s")}
        assert phases >= {"data_s", "forward_s", "backward_s"}
        assert np.allclose(sum(times[name] for name in phases), times["step_s"], rtol=0, atol=1e-9)


@pytest.mark.parametrize("mode", WITHOUT_RAY)
def test_a_mode_counts_nothing_but_what_the_loop_knows(trained_by: TrainedBy, mode: str) -> None:
    for results in trained_by(2):
        assert set(results[mode, "plain"]["counted"]) <= {
            "bytes_sent",
            "messages_sent",
            "staleness",
        }


def test_what_an_entry_leaves_out_has_its_default() -> None:
    info = ModeInfo(
        implementation="dtsweep.sync.ddp:Ddp",
        semantics=lambda _: "exact",
        reads={"sync_period": 8, "shards": 1},
    )
    assert info.servers({"shards": 2}) == 0
    assert (info.needs_ray, info.can_leave_out, info.can_exchange_alone) == (False, (), False)
    assert (info.agree, info.grid({"workers": 4}), info.shares) == ("nothing", Grid(data=4), None)
    assert info.can_restart


def test_the_parameter_server_alone_has_servers_and_ends_with_its_window() -> None:
    assert Point(sync="parameter_server", shards=3).servers == 3
    assert (Point(sync="ddp").servers, Point(sync="local_sgd").servers) == (0, 0)
    can_restart = {
        name: MODES[name].can_restart for name in ("ddp", "local_sgd", "parameter_server")
    }
    assert can_restart == {"ddp": True, "local_sgd": True, "parameter_server": False}


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_can_be_closed_before_it_was_prepared(mode: str) -> None:
    sync = load_mode(mode)(job_of(point_of(mode, workers=1), 0))
    sync.close()
    sync.close()


@pytest.mark.parametrize("mode", [name for name, info in MODES.items() if not info.can_leave_out])
def test_a_mode_that_can_not_skip_its_exchange_refuses_to(mode: str) -> None:
    job = job_of(point_of(mode, workers=1), 0)
    with pytest.raises(NotImplementedError, match="exchange"):
        load_mode(mode)(job).step(next(batches_of_steps(job)), CpuClock(), without={"gradients"})


@pytest.mark.parametrize(
    "mode", [name for name, info in MODES.items() if not info.can_exchange_alone]
)
def test_a_mode_whose_exchange_is_nothing_by_itself_refuses_to_do_it(mode: str) -> None:
    job = job_of(point_of(mode, workers=1), 0)
    with pytest.raises(NotImplementedError, match="exchange"):
        load_mode(mode)(job).exchange_alone()


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
