"""Updates of the parameter server against the papers' equations, written out in NumPy.

Real workers and shards in one process take turns in a recorded order; all is in float64. No Ray is
started.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from dtsweep.measure.clock import CpuClock
from dtsweep.servers.parameter_server import ParameterServer
from dtsweep.servers.shard import Shard
from dtsweep.sweep.point import Point
from dtsweep.sync.mode import Job
from dtsweep.sync.passes import make_optimizer
from tests.ranks import alone
from tests.sync.test_local_steps import LEARNING_RATE, Optimizer
from tests.sync.test_parameter_server import Server, in_a_loop, turns

Vector = NDArray[np.float64]

WORKERS = 3
ORDER = np.random.default_rng(0).integers(0, WORKERS, 60).tolist()
"""Workers in the order of their steps: uneven, so that gradients come late."""


def point(**fields: Any) -> Point:
    return Point(
        sync="parameter_server",
        **{"workers": WORKERS, "learning_rate": LEARNING_RATE, "optimizer": "sgd", **fields},
    )


def samples(rank: int, step: int) -> tuple[Vector, Vector]:
    """Inputs (4, 3) and targets (4,) of a worker's step."""
    random = np.random.default_rng([rank, step])
    return random.normal(size=(4, 3)), random.normal(size=4)


def gradient(x: Vector, rank: int, step: int) -> Vector:
    """Of the mean squared error, by weights (3,) and bias."""
    inputs, targets = samples(rank, step)
    wrong = inputs @ x[:3] + x[3] - targets
    return np.append(2 * inputs.T @ wrong / 4, 2 * wrong.mean())


def loss(model: nn.Module, batch: tuple[int, int]) -> torch.Tensor:
    inputs, targets = map(torch.from_numpy, samples(*batch))
    wrong: torch.Tensor = model(inputs).squeeze(1) - targets
    return wrong.square().mean()


def clipped(g: Vector, limit: float | None) -> Vector:
    if limit is None:
        return g
    return g * min(1.0, limit / (np.linalg.norm(g) + 1e-6))


START = np.array([0.5, -0.3, 0.2, 0.1])


def plainly(of: Point, gradients: list[Vector]) -> list[Vector]:
    """Parameters before and after each update by these gradients, the model's in one place."""
    server, values = Optimizer(of.optimizer), [START]
    for g in gradients:
        values.append(server.updated(values[-1], clipped(g, of.clip_norm)))
    return values


@dataclass
class Replica:
    """A worker of Dean et al. 2012, algorithm 7.1."""

    x: Vector
    accrued: Vector = field(default_factory=lambda: np.zeros(4))
    steps: int = 0
    others: int = 0
    """Updates by others since its last pull."""


def replay(of: Point) -> tuple[list[Vector], list[int]]:
    """Parameters of each worker at the end, and each push's staleness, by the equations."""
    server, x = Optimizer(of.optimizer), START
    replicas = [Replica(x) for _ in range(WORKERS)]
    late = []
    for rank in ORDER:
        worker = replicas[rank]
        g = clipped(gradient(worker.x, rank, worker.steps), of.clip_norm)
        worker.accrued = worker.accrued + g
        worker.x = worker.x - LEARNING_RATE / WORKERS * g
        worker.steps += 1
        if worker.steps % of.push_period == 0:
            late.append(worker.others)
            x = server.updated(x, worker.accrued / WORKERS)
            worker.accrued = np.zeros(4)
            for other in replicas:
                other.others += other is not worker
        if worker.steps % of.pull_period == 0:
            worker.x, worker.others = x, 0
    return [worker.x for worker in replicas], late


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Point], Any]]:
    """Real workers and shards in `ORDER`: parameters of each worker, and all staleness."""
    monkeypatch.setattr("ray.get", lambda answers, timeout=None: answers)

    def train(of: Point) -> tuple[list[Vector], list[int]]:
        shards = [Server() for _ in range(of.servers)]
        make = functools.partial(make_optimizer, point=of)
        modes, models, late = [], [], list[int]()
        for rank in range(WORKERS):
            job = Job(point=of, rank=rank, device=torch.device("cpu"), loss=loss, servers=shards)
            models.append(nn.Linear(3, 1).double())
            start = torch.from_numpy(START)
            nn.utils.vector_to_parameters(start.clone(), models[rank].parameters())
            modes.append(ParameterServer(job))
            modes[rank].prepare(models[rank], make)
        clock = CpuClock()
        clock.start()
        steps = [itertools.count() for _ in range(WORKERS)]
        for rank in ORDER:
            modes[rank].step(iter([(rank, next(steps[rank]))]), clock)
            late += modes[rank].counters()["staleness"]
        vectors = [nn.utils.parameters_to_vector(model.parameters()) for model in models]
        return [vector.detach().numpy() for vector in vectors], late

    with alone():
        yield train


@pytest.mark.parametrize(
    "fields",
    [
        {"shards": 1},
        {"optimizer": "momentum", "shards": 2},
        {"optimizer": "adam", "shards": 1},
        {"push_period": 3, "shards": 2},
        {"pull_period": 3, "shards": 1},
        {"push_period": 2, "pull_period": 3, "optimizer": "adam", "shards": 2},
        {"push_period": 3, "pull_period": 2, "clip_norm": 0.7, "shards": 2},
    ],
    ids=str,
)
def test_an_asynchronous_server_trains_as_its_papers_write_it(
    trained: Callable[[Point], Any], fields: dict[str, Any]
) -> None:
    of = point(**fields)
    expected, expected_late = replay(of)
    found, late = trained(of)
    assert late == expected_late
    assert max(late) > 1
    for got, wanted in zip(found, expected, strict=True):
        assert np.abs(got - wanted).max() <= 1e-12 * np.abs(wanted - START).max()


# Backup workers

STEPS = 30
"""Steps of each worker until it pauses, and again until it leaves."""


class Handle:
    """A shard as the other one sees it: calls take some turns of the event loop."""

    def __init__(self, shard: Shard, turns: int) -> None:
        self._shard, self._turns = shard, turns

    def __getattr__(self, name: str) -> Any:
        def remote(*given: Any) -> asyncio.Future[Any]:
            return asyncio.ensure_future(self._later(name, given))

        return SimpleNamespace(remote=remote)

    async def _later(self, name: str, given: tuple[Any, ...]) -> Any:
        await turns(self._turns)
        return await getattr(self._shard, name)(*given)


async def shards_of(of: Point) -> list[Shard]:
    """Two shards, of the weights and of the bias."""
    shards = [Shard(), Shard()]
    values = torch.from_numpy(START.copy())
    parts = [values[:3], values[3:]]
    for place, shard in enumerate(shards):
        parameters = [part.to("meta") for part in parts]
        parameters[place] = parts[place]
        peers = [Handle(other, 3) for other in shards if other is not shard]
        make = functools.partial(make_optimizer, point=of)
        await shard.reset(parameters, make, of, peers, leads=place == 0)
    return shards


@dataclass
class Pushed:
    """A worker's gradient."""

    rank: int
    pulled: int
    values: Vector
    is_dropped: bool


@pytest.mark.parametrize(("dropped", "clip_norm"), [(1, None), (2, 0.5)])
@in_a_loop
async def test_with_backup_workers_an_update_is_the_mean_of_the_first_gradients_of_its_step(
    dropped: int, clip_norm: float | None
) -> None:
    workers = 4
    server: dict[str, Any] = {"optimizer": "momentum", "clip_norm": clip_norm, "shards": 2}
    of = point(workers=workers, staleness=0, drop_slowest=dropped, **server)
    pushes: list[Pushed] = []
    pulled: dict[int, Vector] = {0: START}
    random = np.random.default_rng(dropped)
    shards = await shards_of(of)
    together = asyncio.Barrier(workers)

    async def work(rank: int) -> None:
        versions = [0, 0]
        for step in range(2 * STEPS):
            if step == STEPS:
                # As after a warm-up: the fast ones have ended theirs before the slow ones.
                await asyncio.gather(*(shard.pause(rank) for shard in shards))
                await together.wait()
            version = versions[0]
            g = gradient(pulled[version], rank, step)
            await turns(int(random.integers(1, 20)) * (1 + rank))
            # Pushes come to the shards in different orders.
            late = Handle(shards[1], int(random.integers(0, 40)))
            one, other = await asyncio.gather(
                Handle(shards[0], 0).exchange.remote(rank, g[:3], versions[0]),
                late.exchange.remote(rank, g[3:], versions[1]),
            )
            assert (one[2] > 0) == (other[2] > 0), "shards choose alike"
            pushes.append(Pushed(rank, version, g, one[2] > 0))
            values, versions = [one[0], other[0]], [one[1], other[1]]
            while versions[0] != versions[1]:
                place = int(np.argmin(versions))
                values[place], versions[place] = await shards[place].pull(max(versions))
            x = np.concatenate([part for part in values if part is not None])
            assert np.array_equal(pulled.setdefault(versions[0], x), x)
        await asyncio.gather(*(shard.leave(rank) for shard in shards))

    await asyncio.gather(*(work(rank) for rank in range(workers)))
    used: dict[int, list[Pushed]] = {}
    for one in pushes:
        if not one.is_dropped:
            used.setdefault(one.pulled, []).append(one)
    counts = Counter(len(of_version) for of_version in used.values())
    # Fewer only where others had paused or left.
    assert counts[workers - dropped] > len(used) / 2
    assert max(counts) == workers - dropped
    assert len(pushes) == 2 * STEPS * workers
    means = [np.mean([one.values for one in used[version]], axis=0) for version in sorted(used)]
    expected = plainly(of, means)
    way = np.abs(expected[-1] - expected[0]).max()
    assert len(pulled) > STEPS
    for version, x in pulled.items():
        assert np.abs(x - expected[version]).max() <= 1e-12 * way


@in_a_loop
async def test_a_dropped_worker_goes_on_at_once_with_the_parameters_that_there_are() -> None:
    shard, _ = await shards_of(point(staleness=0, drop_slowest=1, shards=2))
    g = np.ones(3)
    await asyncio.gather(*(shard.exchange(rank, g, 0) for rank in (0, 1)))
    values, version, late = await shard.exchange(2, 9 * g, 0)
    assert (version, late) == (1, 1)
    assert values is not None
    assert np.abs(values - (START[:3] - LEARNING_RATE * g)).max() <= 1e-15
