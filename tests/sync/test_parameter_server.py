"""A shard of the parameter server, with coroutines in the place of workers: no Ray is started."""

from __future__ import annotations

import asyncio
import functools
import pickle
from collections.abc import Callable, Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ray import cloudpickle
from torch import nn

from dtsweep.measure.clock import CpuClock
from dtsweep.servers.parameter_server import ParameterServer, deal
from dtsweep.servers.pushes import Pushes
from dtsweep.servers.shard import Flat, Shard
from dtsweep.sweep.compressions import COMPRESSIONS, reads_of
from dtsweep.sweep.point import Point
from dtsweep.sync.mode import Job
from tests.ranks import alone
from tests.sharded import Descent

SIZE = 4
LEARNING_RATE = 0.1


def point(workers: int, staleness: int | None, **fields: Any) -> Point:
    return Point(sync="parameter_server", workers=workers, staleness=staleness, **fields)


async def shard_of(*, workers: int, staleness: int | None, momentum: float = 0.0) -> Shard:
    """A shard whose parameters are all 1."""
    shard = Shard()
    optimizer = functools.partial(torch.optim.SGD, lr=LEARNING_RATE, momentum=momentum)
    values = [torch.ones(1), torch.ones(SIZE - 1)]
    await shard.reset(values, optimizer, point(workers, staleness))
    return shard


def flat(value: float) -> Flat:
    return np.full(SIZE, value, dtype=np.float32)


async def turns(count: int = 50) -> None:
    """Turn the event loop; after 50 turns everything that can go on has gone on."""
    for _ in range(count):
        await asyncio.sleep(0)


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine: it runs in an event loop of its own."""

    @functools.wraps(test)
    def run(**given: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**given), timeout=60))

    return run


@pytest.mark.parametrize("workers", [1, 4])
@in_a_loop
async def test_without_staleness_there_is_one_update_a_clock_on_the_mean_gradient(
    workers: int,
) -> None:
    random = np.random.default_rng(0)
    gradients = random.normal(size=(5, workers, SIZE)).astype(np.float32)
    shard = await shard_of(workers=workers, staleness=0)
    for clock, pushed in enumerate(gradients):
        answers = await asyncio.gather(
            *(shard.exchange(rank, pushed[rank], clock) for rank in range(workers))
        )
        assert [answer[1:] for answer in answers] == [(clock + 1, 0)] * workers
    expected = 1 - LEARNING_RATE * gradients.mean(axis=1).sum(axis=0)
    for values, _, _ in answers:
        assert np.allclose(values, expected, rtol=0, atol=1e-6)


@in_a_loop
async def test_without_staleness_the_order_in_which_workers_come_changes_no_bit() -> None:
    # In float32 1e8 + 1 is 1e8: added up in this order they make 1, in other orders 0 or 2.
    gradients = [flat(1e8), flat(1.0), flat(-1e8), flat(1.0)]
    results: list[Any] = []
    for order in ((0, 1, 2, 3), (0, 2, 1, 3), (1, 3, 0, 2)):
        shard = await shard_of(workers=4, staleness=0)
        answers = await asyncio.gather(*(shard.exchange(r, gradients[r], 0) for r in order))
        results.append(answers[0][0])
    assert all(np.array_equal(results[0], other) for other in results[1:])


@settings(max_examples=40, deadline=None)
@given(
    speeds=st.lists(st.integers(0, 7), min_size=2, max_size=4),
    steps=st.integers(1, 8),
    staleness=st.integers(0, 3),
)
@in_a_loop
async def test_no_worker_computes_further_ahead_of_the_slowest_than_the_bound(
    speeds: list[int], steps: int, staleness: int
) -> None:
    pushes = [0] * len(speeds)
    # Others may be `staleness` clocks behind at the pull, and as many and their next push ahead at
    # the push.
    latest = (2 * staleness + 1) * (len(speeds) - 1) if staleness else 0
    shard = await shard_of(workers=len(speeds), staleness=staleness)

    async def work(rank: int) -> None:
        pulled = 0
        for _ in range(steps):
            for _ in range(1 + speeds[rank]):
                assert pushes[rank] - min(pushes) <= staleness
                await asyncio.sleep(0)
            pushes[rank] += 1
            _, pulled, late = await shard.exchange(rank, flat(1.0), pulled)
            assert late <= latest

    await asyncio.gather(*(work(rank) for rank in range(len(speeds))))
    assert pushes == [steps] * len(speeds)


@pytest.mark.parametrize("staleness", [0, 1, 3])
@in_a_loop
async def test_a_fast_worker_waits_at_the_bound_and_then_pulls_what_it_waited_for(
    staleness: int,
) -> None:
    shard = await shard_of(workers=2, staleness=staleness)
    for _ in range(staleness):
        await shard.exchange(0, flat(2.0), 0)
    ahead = asyncio.create_task(shard.exchange(0, flat(2.0), 0))
    await turns()
    assert not ahead.done()
    await shard.exchange(1, flat(2.0), 0)
    values, version, _ = await ahead
    # An update is lr 0.1 × 2 ÷ 2 workers; without staleness both pushes are in one.
    assert version == (staleness + 2 if staleness else 1)
    assert np.allclose(values, 1 - 0.1 * (version if staleness else 2))


@pytest.mark.parametrize("staleness", [0, 2])
@in_a_loop
async def test_a_worker_that_leaves_is_waited_for_no_more(staleness: int) -> None:
    shard = await shard_of(workers=3, staleness=staleness)
    await asyncio.gather(*(shard.exchange(rank, flat(1.0), 0) for rank in range(3)))

    async def ten_more(rank: int) -> None:
        for _ in range(10):
            await shard.exchange(rank, flat(1.0), 1)

    others = asyncio.gather(ten_more(0), ten_more(1))
    await turns()
    assert not others.done()
    await shard.leave(2)
    await others


@in_a_loop
async def test_a_shard_that_is_reset_knows_nothing_of_the_trial_before() -> None:
    shard = await shard_of(workers=2, staleness=1, momentum=0.9)
    await shard.exchange(0, flat(1.0), 0)
    await shard.leave(1)
    optimizer = functools.partial(torch.optim.SGD, lr=LEARNING_RATE)
    await shard.reset([torch.zeros(SIZE)], optimizer, point(1, 0))
    values, version, late = await shard.exchange(0, flat(1.0), 0)
    assert (version, late) == (1, 0)
    assert np.allclose(values, -0.1)


@pytest.mark.parametrize("staleness", [0, None])
@in_a_loop
async def test_a_shard_changes_neither_a_push_nor_a_reply_that_it_has_given(
    staleness: int | None,
) -> None:
    shard = await shard_of(workers=1, staleness=staleness)
    pushed = flat(1.0)
    # As Ray hands it out.
    pushed.flags.writeable = False
    values, version, _ = await shard.exchange(0, pushed, 0)
    await shard.exchange(0, pushed, version)
    assert np.allclose(values, 0.9)
    assert np.array_equal(pushed, flat(1.0))


class Moving(torch.optim.SGD):
    """An optimizer that gives parameters other memory, as some written by hand do."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data = parameter.data - group["lr"] * parameter.grad


@in_a_loop
async def test_parameters_that_an_optimizer_has_moved_are_pulled_as_they_are_now() -> None:
    shard = Shard()
    optimizer = functools.partial(Moving, lr=LEARNING_RATE)
    await shard.reset([torch.ones(SIZE)], optimizer, point(1, None))
    for version in range(3):
        values, _, _ = await shard.exchange(0, flat(1.0), version)
    assert np.allclose(values, 0.7)


@settings(deadline=None)
@given(sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=30), shards=st.integers(1, 8))
def test_dealing_gives_every_parameter_to_one_shard_and_evenly(
    sizes: list[int], shards: int
) -> None:
    parameters = [nn.Parameter(torch.empty(size)) for size in sizes]
    if shards > len(parameters):
        with pytest.raises(ValueError, match=f"shards={shards}.*{len(parameters)} parameters"):
            deal(parameters, shards)
        return
    parts = deal(parameters, shards)
    dealt = [id(parameter) for part in parts for parameter in part]
    assert sorted(dealt) == sorted(id(parameter) for parameter in parameters)
    loads = [sum(parameter.numel() for parameter in part) for part in parts]
    assert len(loads) == shards
    assert min(loads) > 0
    assert max(loads) - min(loads) <= max(sizes)


# What a model has besides one group of fp32 parameters


def by_position(parameters: Any) -> torch.optim.Optimizer:
    """An optimizer whose groups are chosen by the places of the parameters."""
    parameters = list(parameters)
    groups = [{"params": parameters[:2], "lr": 0.1}, {"params": parameters[2:], "lr": 0.01}]
    return torch.optim.SGD(groups, lr=1.0)


class Server:
    """A handle whose remote calls happen at once, in this process."""

    def __init__(self) -> None:
        self.shard = Shard()

    def __reduce__(self) -> Any:
        return Server, ()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.shard, name)

        def remote(*given: Any, **named: Any) -> Any:
            # As Ray does, so that nothing is shared.
            given, named = pickle.loads(cloudpickle.dumps((given, named)))
            return asyncio.run(method(*given, **named))

        return SimpleNamespace(remote=remote)


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[torch.Tensor]]]:
    """Train a model by servers in this process: its parameters after some steps."""
    monkeypatch.setattr("ray.get", lambda answers, timeout=None: answers)

    def train(
        model: nn.Module, *, shards: int, make: Any, staleness: int | None = 0, **fields: Any
    ) -> list[torch.Tensor]:
        job = Job(
            point=point(1, staleness, shards=shards, **fields),
            rank=0,
            device=torch.device("cpu"),
            loss=lambda model, step: model(step),
            servers=[Server() for _ in range(shards)],
        )
        mode = ParameterServer(job)
        mode.prepare(model, make)
        clock = CpuClock()
        clock.start()
        for step in range(4):
            mode.step(iter([step]), clock)
            clock.end_step()
        return [parameter.detach().clone() for parameter in model.parameters()]

    with alone():
        yield train


def plain(model: nn.Module, *, make: Any) -> list[torch.Tensor]:
    """Train as plain PyTorch does."""
    optimizer = make(model.parameters())
    for step in range(4):
        optimizer.zero_grad()
        model(step).backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


class Mixed(nn.Module):
    """Parameters of several types, one frozen and one that no pass uses."""

    def __init__(self) -> None:
        super().__init__()
        random = torch.manual_seed(0)
        self.small = nn.Parameter(torch.randn(3, generator=random))
        self.fixed = nn.Parameter(torch.ones(3), requires_grad=False)
        self.unused = nn.Parameter(torch.randn(2, generator=random))
        self.turned = nn.Parameter(torch.randn(4, 3, dtype=torch.complex64, generator=random))
        self.large = nn.Parameter(torch.randn(9, 3, generator=random))
        self.rough = nn.Parameter(torch.randn(3, dtype=torch.bfloat16, generator=random))
        self.precise = nn.Parameter(torch.randn(3, dtype=torch.float64, generator=random))
        self.frozen = nn.Parameter(torch.ones(5, dtype=torch.int64), requires_grad=False)
        self.table = nn.Embedding(6, 3, sparse=True)

    def forward(self, step: int) -> torch.Tensor:
        x = torch.sin(torch.arange(3.0) + step)
        turned = (self.turned @ x.to(torch.complex64)).abs().square().sum()
        looked_up = self.table(torch.tensor([step % 6, 2])).square().sum()
        products = (self.small * x).sum().square() + (self.large @ x).square().sum()
        by_type = ((each * x).sum().square().float() for each in (self.rough, self.precise))
        return turned + products + looked_up + sum(by_type)


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_a_server_trains_each_parameter_as_plain_pytorch_does(
    one_process: Callable[..., list[torch.Tensor]], shards: int
) -> None:
    expected = plain(Mixed(), make=by_position)
    start = list(Mixed().parameters())
    found = one_process(Mixed(), shards=shards, make=by_position)
    for got, wanted, before in zip(found, expected, start, strict=True):
        moved = (wanted - before).abs().max().clamp(min=1e-3) if before.is_floating_point() else 1.0
        assert (got - wanted).abs().max() <= 1e-6 * moved + 1e-7


class Line(nn.Module):
    """One layer, on numbers that grow with the steps."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 2)

    def forward(self, step: int) -> torch.Tensor:
        answer: torch.Tensor = self.layer(torch.full((1, 3), float(step + 1)))
        return answer.square().mean()


def test_an_optimizer_without_groups_has_one_shard_and_no_more(
    one_process: Callable[..., list[torch.Tensor]],
) -> None:
    found = one_process(Line(), shards=1, make=Descent)
    assert all(map(torch.allclose, found, plain(Line(), make=Descent)))
    with pytest.raises(ValueError, match=r"Descent has no param_groups.*use shards=1"):
        one_process(Line(), shards=2, make=Descent)


class Clipped(torch.optim.SGD):
    """Clips by the norm of all gradients."""

    def step(self, closure: Any = None) -> None:
        nn.utils.clip_grad_norm_(self.param_groups[0]["params"], 0.3)
        super().step(closure)


def test_a_worker_clips_each_push_before_it_is_compressed(
    one_process: Callable[..., list[torch.Tensor]],
) -> None:
    expected = plain(Line(), make=functools.partial(Clipped, lr=0.1))
    sgd = functools.partial(torch.optim.SGD, lr=0.1)
    clips: dict[str, Any] = {"clip_norm": 0.3, "compression": "fp16"}
    found = one_process(Line(), shards=2, make=sgd, staleness=None, **clips)
    assert all((f - e).abs().max() <= 1e-3 for f, e in zip(found, expected, strict=True))


# What a worker pushes, packed on one end and unpacked on the other

SHAPES = [torch.Size([40, 30]), torch.Size([7])]
NUMEL = 1207


def pushed_by(compression: str | None, **fields: Any) -> Point:
    return point(2, None, compression=compression, **fields)


def gradient(step: int) -> torch.Tensor:
    return torch.randn(NUMEL, generator=torch.Generator().manual_seed(step))


@pytest.mark.parametrize("compression", [None, *COMPRESSIONS])
def test_the_shard_reads_what_the_worker_takes_for_pushed(compression: str | None) -> None:
    worker, twin, shard = (Pushes(pushed_by(compression), SHAPES) for _ in range(3))
    total, read = torch.zeros(NUMEL), torch.zeros(NUMEL)
    for step in range(5):
        pushed = worker.pack(gradient(step))
        pushed.flags.writeable = False
        found = shard.unpack(pushed)
        assert torch.equal(found, twin.changed(gradient(step)))
        total, read = total + gradient(step), read + found
    if compression in (None, "fp16", "bf16", "int8"):
        assert torch.allclose(read, total, atol=0.2)
    assert (worker.pack(gradient(9)).nbytes < 4 * NUMEL) == (compression is not None)


@pytest.mark.parametrize("compression", [None, *COMPRESSIONS])
@in_a_loop
async def test_each_worker_s_pushes_are_read_by_themselves(compression: str | None) -> None:
    """One worker pushes twice before the other does: payloads depend on their worker's count."""
    fields: dict[str, Any] = {}
    if "compression_ratio" in reads_of(compression):
        fields = {"compression_ratio": 0.25}
    plan = pushed_by(compression, **fields)
    shard = Shard()
    start = [torch.zeros(shape) for shape in SHAPES]
    await shard.reset(start, functools.partial(torch.optim.SGD, lr=1.0), plan)
    workers, twins = ([Pushes(plan, SHAPES) for _ in range(2)] for _ in range(2))
    expected = torch.zeros(NUMEL)
    for step, rank in enumerate((0, 0, 1, 0, 1, 1)):
        values, _, _ = await shard.exchange(rank, workers[rank].pack(gradient(step)), 0)
        expected -= twins[rank].changed(gradient(step)) / 2
    assert values is not None
    assert torch.allclose(torch.from_numpy(values), expected, atol=1e-5)


@pytest.mark.parametrize("compression", ["topk", "randomk"])
def test_what_leaves_nothing_out_is_the_gradient(compression: str) -> None:
    plan = pushed_by(compression, compression_ratio=1.0)
    worker, shard = (Pushes(plan, SHAPES) for _ in range(2))
    for step in range(3):
        assert torch.equal(shard.unpack(worker.pack(gradient(step))), gradient(step))
