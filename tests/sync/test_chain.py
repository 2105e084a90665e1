"""Shards with replicas in one event loop, where messages are delayed and replicas are killed.

A killed replica stops in the midst of what it does. What it has sent before may still arrive.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Sequence
from contextvars import Context, ContextVar
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from ray.exceptions import ActorDiedError, ActorUnavailableError

from dtsweep.sweep.point import Point
from dtsweep.sync.chain import Chain, Update
from dtsweep.sync.pushes import Pushes
from dtsweep.sync.server_shard import Shard
from tests.sync.test_parameter_server import in_a_loop, turns

Vector = NDArray[np.float64]

LENGTH, WORKERS, STEPS, SIZE = 3, 3, 8, 3
RATE, MOMENTUM = 0.1, 0.9
START = np.array([0.5, -0.3, 0.2])
OWNER: ContextVar[Process | None] = ContextVar("OWNER", default=None)
"""The process whose task runs."""


class Recorded(torch.optim.SGD):
    """SGD with momentum that keeps a copy of each gradient and overwrites it."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=RATE, momentum=MOMENTUM)
        self.seen: list[Vector] = []

    def step(self, closure: Any = None) -> None:
        (parameter,) = self.param_groups[0]["params"]
        self.seen.append(parameter.grad.numpy().copy())
        super().step(closure)
        # Some optimizers write to their gradients.
        parameter.grad.zero_()


@dataclass(eq=False)
class Process:
    """A replica, its handle, and the network before it."""

    random: np.random.Generator
    unavailable: float = 0.0
    """Share of the calls whose connection breaks; they come all the same, perhaps much later."""

    shard: Shard = field(default_factory=Shard)
    is_dead: bool = False
    tasks: WeakSet[asyncio.Task[Any]] = field(default_factory=WeakSet)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def remote(*given: Any, **named: Any) -> asyncio.Future[Any]:
            copied = pickle.loads(pickle.dumps(given))
            # A message may go on when its sender has died.
            message = self._deliver(name, copied, named, sender=OWNER.get())
            return asyncio.shield(asyncio.create_task(message, context=Context()))

        return SimpleNamespace(remote=remote)

    async def _deliver(
        self, name: str, given: Sequence[Any], named: dict[str, Any], *, sender: Process | None
    ) -> Any:
        async def later(most: int) -> Any:
            await turns(int(self.random.integers(most)))
            return await self._handle(name, given, named, sender=sender)

        if self.random.random() < self.unavailable:
            handled = asyncio.create_task(later(400), context=Context())
            handled.add_done_callback(lambda task: task.cancelled() or task.exception())
            await self._turns()
            raise ActorUnavailableError("lost", None)
        return await asyncio.create_task(later(1), context=Context())

    async def _handle(
        self, name: str, given: Sequence[Any], named: dict[str, Any], *, sender: Process | None
    ) -> Any:
        await self._turns()
        self._check()
        if sender is not None and sender.is_dead and self.random.random() < 0.5:
            raise ConnectionError("not sent any more")
        context = Context()
        context.run(OWNER.set, self)
        work = asyncio.create_task(getattr(self.shard, name)(*given, **named), context=context)
        try:
            answer = await work
        except asyncio.CancelledError:
            self._check()
            raise
        await self._turns()
        return answer

    async def _turns(self) -> None:
        # Some take long, so that others overtake them.
        await turns(int(self.random.exponential(4) * self.random.choice([1, 1, 1, 1, 12])))

    def _check(self) -> None:
        if self.is_dead:
            raise ActorDiedError

    def kill(self) -> None:
        self.is_dead = True
        for task in self.tasks:
            task.cancel()

    @property
    def values(self) -> Vector:
        return self.shard._values.numpy()

    @property
    def seen(self) -> list[Vector]:
        return self.shard._optimizer.seen


def owned(
    loop: asyncio.AbstractEventLoop, work: Any, *, context: Context | None = None
) -> asyncio.Task[Any]:
    """Make a task, which ends with the process that its context names."""
    task = asyncio.Task(work, loop=loop, context=context)
    process = OWNER.get() if context is None else context.get(OWNER)
    if process is not None:
        process.tasks.add(task)
    return task


@dataclass
class Trained:
    """Training with shards that have replicas."""

    chains: list[list[Process]]
    pushed: dict[tuple[int, int], list[Vector]] = field(default_factory=dict)
    """(shards,) gradients by worker and step."""

    pulled: list[tuple[int, int, Vector]] = field(default_factory=list)
    """Shard, version and values of each pull."""

    steps: dict[int, int] = field(default_factory=dict)
    """Steps by worker, of those that go on."""

    def living(self, shard: int) -> list[Process]:
        return [one for one in self.chains[shard] if not one.is_dead]


async def pull(chain: Chain) -> tuple[Vector, int]:
    while True:
        position, tail = chain.chosen(of_tail=True)
        try:
            values, version = await tail.pull.remote()
        except (ActorDiedError, ActorUnavailableError) as error:
            chain.note_failure(position, error)
        else:
            return values, version


async def work(of: Point, trained: Trained, rank: int) -> None:
    chains = [Chain(replicas) for replicas in trained.chains]
    packers = [Pushes(of, [torch.Size([SIZE])], dtype=torch.float64) for _ in chains]
    random = np.random.default_rng(rank)
    x, versions = [START] * len(chains), [0] * len(chains)
    for step in range(STEPS):
        await turns(60 * rank)
        if of.staleness is not None:
            assert step - min(trained.steps.values()) <= of.staleness
        trained.steps[rank] = step + 1
        gradients = [0.1 * one + random.normal(size=SIZE) for one in x]
        trained.pushed[rank, step] = gradients
        packed = [
            packer.pack(torch.from_numpy(one))
            for packer, one in zip(packers, gradients, strict=True)
        ]
        await asyncio.gather(
            *(
                chain.ask("exchange", rank, one, version, pulls=False, number=step + 1)
                for chain, one, version in zip(chains, packed, versions, strict=True)
            )
        )
        answers = await asyncio.gather(*(pull(chain) for chain in chains))
        x, versions = [values for values, _ in answers], [version for _, version in answers]
        trained.pulled += [(shard, *reversed(answer)) for shard, answer in enumerate(answers)]
    del trained.steps[rank]
    await asyncio.gather(*(chain.ask("leave", rank) for chain in chains))


def train(of: Point, *, seed: int = 0, killed: Sequence[int] = (), lost: float = 0.0) -> Trained:
    """Train by all workers, and kill these replicas of the first shard one after another."""
    random = np.random.default_rng(seed)

    async def strike(replicas: list[Process]) -> None:
        for position in killed:
            await turns(int(random.integers(10, 500)))
            replicas[position].kill()

    async def test() -> Trained:
        asyncio.get_running_loop().set_task_factory(owned)
        chains = [[Process(random, lost) for _ in range(of.replicas)] for _ in range(of.servers)]
        for replicas in chains:
            peers = [others for others in chains if others is not replicas]
            for position, one in enumerate(replicas):
                successors = Chain(replicas[position + 1 :], first=position + 1)
                values = [torch.from_numpy(START)]
                await one.shard.reset(values, Recorded, of, peers, successors=successors)
        trained = Trained(chains, steps=dict.fromkeys(range(of.workers), 0))
        workers = (work(of, trained, rank) for rank in range(of.workers))
        await asyncio.gather(strike(chains[0]), *workers)
        return trained

    return asyncio.run(asyncio.wait_for(test(), timeout=60))


def point(**fields: Any) -> Point:
    given = {"workers": WORKERS, "replicas": LENGTH, **fields}
    return Point(sync="parameter_server", **given)


def by_hand(gradients: Sequence[Vector]) -> list[Vector]:
    """Parameters before and after each update of SGD with momentum."""
    x, m = START, np.zeros(SIZE)
    values = [x]
    for g in gradients:
        m = MOMENTUM * m + g
        x = x - RATE * m
        values.append(x)
    return values


KILLED = [(0,), (1,), (2,), (0, 1), (1, 0), (2, 1), (1, 2), (0, 2), (2, 0)]
"""Positions in their chain, in the order of the kills."""


def check_updates(trained: Trained, of: Point) -> None:
    """Replicas agree to the bit; updates are those by hand; no death undoes what was pulled."""
    for shard in range(of.servers):
        first, *others = trained.living(shard)
        for other in others:
            assert np.array_equal(other.values, first.values)
            assert np.array_equal(other.seen, first.seen)
        expected = by_hand(first.seen)
        way = np.abs(expected[-1] - START).max()
        assert np.abs(first.values - expected[-1]).max() <= 1e-12 * way
        pulls = [(version, x) for place, version, x in trained.pulled if place == shard]
        assert len(pulls) == of.workers * STEPS
        for version, x in pulls:
            assert np.abs(x - expected[version]).max() <= 1e-12 * way


@pytest.mark.parametrize(
    ("staleness", "killed"),
    [(None, killed) for killed in KILLED] + [(2, killed) for killed in KILLED[::3]],
    ids=str,
)
def test_each_push_is_one_update_whichever_replicas_are_killed(
    staleness: int | None, killed: tuple[int, ...]
) -> None:
    of = point(staleness=staleness)
    for seed in range(4):
        trained = train(of, seed=seed, killed=killed, lost=0.05)
        (first, *_) = trained.living(0)
        assert len(trained.living(0)) == LENGTH - len(killed)
        check_updates(trained, of)
        # Each is unlike all others, because it is drawn.
        pushes = {tuple(one / WORKERS) for (one,) in trained.pushed.values()}
        assert len(first.seen) == WORKERS * STEPS == len(pushes)
        gaps = np.array(sorted(pushes)) - np.array(sorted(map(tuple, first.seen)))
        assert np.abs(gaps).max() <= 1e-15


@pytest.mark.parametrize("killed", KILLED, ids=str)
def test_in_step_replicas_change_no_bit_whichever_are_killed(killed: tuple[int, ...]) -> None:
    of = point(staleness=0, clip_norm=0.5, shards=2)
    alone = train(replace(of, replicas=1))
    for seed in range(4):
        trained = train(of, seed=seed, killed=killed, lost=0.05)
        check_updates(trained, of)
        for shard in range(of.servers):
            first = trained.living(shard)[0]
            assert len(first.seen) == STEPS
            assert np.array_equal(first.values, alone.chains[shard][0].values)


async def replica_of(of: Point) -> Process:
    one = Process(np.random.default_rng(0))
    await one.shard.reset([torch.from_numpy(START)], Recorded, of)
    return one


@in_a_loop
async def test_a_new_head_takes_no_update_that_the_old_one_had_sent() -> None:
    gradients = [np.full(SIZE, 1.0 + rank) for rank in range(2)]
    one = await replica_of(point(staleness=None))
    await one.shard.exchange(1, gradients[1], 0, pulls=False, number=1)
    # The old head had worker 0's push first, and worker 1's has come to both.
    for version, rank in ((1, 0), (2, 1)):
        sent = gradients[rank] / WORKERS
        update = Update(version=version, gradient=sent, pushes={rank: (1, 0)}, squared_norm=None)
        await one.shard.apply(update)
    await one.shard.exchange(0, gradients[0], 0, pulls=False, number=1)
    assert np.array_equal(one.seen, [gradients[1] / WORKERS, gradients[0] / WORKERS])


@in_a_loop
async def test_a_late_copy_of_a_push_before_the_reset_takes_no_number_of_a_new_one() -> None:
    one = await replica_of(point(staleness=None))
    await one.shard.exchange(0, np.ones(SIZE), 0, pulls=False, number=8)
    for number in range(1, 9):
        await one.shard.exchange(0, np.full(SIZE, float(number)), 0, pulls=False, number=number)
    assert [round(gradient[0] * WORKERS) for gradient in one.seen] == [*range(1, 9)]


@in_a_loop
async def test_a_replica_answers_with_the_norm_that_its_head_had() -> None:
    one = await replica_of(point(staleness=0, clip_norm=1.0))
    update = Update(version=1, gradient=np.ones(SIZE), pushes={}, squared_norm=2.5)
    await one.shard.apply(update)
    assert await asyncio.wait_for(one.shard.squared_norm(1), 60) == 2.5


def test_payloads_that_depend_on_their_number_are_read_by_a_new_head() -> None:
    of = point(staleness=None, workers=1, compression="randomk", compression_ratio=0.5)
    (alone,) = train(replace(of, replicas=1)).chains[0]
    for seed in range(6):
        trained = train(of, seed=seed, killed=(0,))
        check_updates(trained, of)
        assert np.array_equal(trained.living(0)[0].values, alone.values)
