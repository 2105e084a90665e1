"""What a mode does with a compression, on processes without Ray.

One compression for each way that payloads take, which is all that a mode knows of it; all of them
are in tests/compression. One that leaves nothing out (`topk` and `randomk` of everything) must
change nothing; of the others ranks must get the same bits, which are as near to the exact mean as
the compression promises.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dtsweep.measure.traffic import Counting
from dtsweep.sweep.compressions import COMPRESSIONS
from dtsweep.sweep.constraints import impossible
from dtsweep.sweep.modes import MODES
from dtsweep.sweep.point import Point
from dtsweep.sync.groups import position
from tests.contract.loop import Loop
from tests.contract.regression import job_of
from tests.ranks import alone, results_of

STEPS = 4
PERIOD = 2
WIDTH, SIDE = 70, 9

FARTHEST = {"bf16": 5e-3, "int8": 0.05}
"""Largest difference to the exact mean, as a share of it.

With error feedback a step may send what is older.
"""

LOSSLESS: Mapping[str, Mapping[str, Any]] = {
    "topk": {"compression_ratio": 1.0},
    "randomk": {"compression_ratio": 1.0},
}
"""Settings by which nothing is left out."""


@dataclass(frozen=True)
class Curve:
    """A network with matrices of more than a low rank, on samples made from their numbers."""

    dtype: str = "float32"
    ddp_options: Mapping[str, Any] = field(default_factory=dict)
    is_channels_last: bool = False
    """True if it begins with convolutions whose weights are not contiguous in memory."""

    def build(self) -> nn.Module:
        dtype = getattr(torch, self.dtype)
        if self.is_channels_last:
            convolutions = [nn.Conv2d(1, 4, 2), nn.Tanh(), nn.Conv2d(4, 6, 2), nn.Flatten()]
            model = nn.Sequential(nn.Unflatten(1, (1, 3, 3)), *convolutions, nn.Linear(6, 1))
            return model.to(dtype=dtype, memory_format=torch.channels_last)
        layers = [nn.Linear(*ends) for ends in ((SIDE, WIDTH), (WIDTH, WIDTH), (WIDTH, 1))]
        return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2]).to(dtype)

    def batch(self, samples: range, device: torch.device) -> Tensor:
        numbers = torch.arange(samples.start, samples.stop, dtype=torch.float64, device=device)
        rows = torch.sin(numbers[:, None] * torch.arange(1, SIDE + 2, dtype=torch.float64))
        return rows.to(getattr(torch, self.dtype))

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        wrong: Tensor = model(batch[:, :SIDE]).squeeze(1) - batch[:, SIDE]
        return wrong.square().mean()


@dataclass(frozen=True, kw_only=True)
class Case:
    """A point but for its workers."""

    mode: str
    compression: str | None
    fields: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    is_channels_last: bool = False

    def __str__(self) -> str:
        words = [f"{name}={value}" for name, value in {**self.fields, **self.options}.items()]
        if self.is_channels_last:
            words.append("channels_last")
        return " ".join([self.mode, str(self.compression), self.dtype, *words])

    def point(self, workers: int) -> Point:
        own: dict[str, Any] = {"sync_period": PERIOD, "node_size": 1 + (workers % 2 == 0)}
        own = {name: value for name, value in own.items() if name in MODES[self.mode].reads}
        return Point(
            workers=workers,
            micro_batch=6,
            sync=self.mode,
            compression=self.compression,
            learning_rate=0.05,
            workload=Curve(self.dtype, self.options, self.is_channels_last),
            **{**own, **self.fields},
        )


def case_of(mode: str, name: str | None, **fields: Any) -> Case:
    """Numbers in float64 where nothing is left out."""
    is_lossless = name is None or name in LOSSLESS
    return Case(
        mode=mode,
        compression=name,
        fields={**LOSSLESS.get(name or "", {}), **fields},
        dtype="float64" if is_lossless else "float32",
    )


def ways_of(mode: str) -> Iterator[Case]:
    """The mode without a compression, and with one for each way that payloads take in it."""
    yield case_of(mode, None)
    for name in ("bf16", "randomk", "topk", "int8", "powersgd"):
        yield case_of(mode, name)


def options_of_ddp() -> Iterator[Case]:
    for more in ({"bucket_bytes": 3000}, {"overlap": False}, {"accumulation": 2}):
        for name in ("topk", None, "int8"):
            yield case_of("ddp", name, **more)
    for option in ("gradient_as_bucket_view", "find_unused_parameters"):
        yield replace(case_of("ddp", "randomk"), options={option: True})


def channels_last() -> Iterator[Case]:
    for mode in ("ddp", "zero1", "ring", "local_sgd"):
        for name in (None, "topk"):
            yield replace(case_of(mode, name), is_channels_last=True)


CARRYING = [name for name, info in MODES.items() if info.carries and not info.needs_ray]


def cases(workers: int) -> list[Case]:
    """The trainings of a number of workers.

    Two have all of them. Three divide neither values nor payloads evenly; with four there are two
    nodes of two workers, and a tree of two levels; one has nobody to exchange with.
    """
    modes = {1: ["ddp"], 2: CARRYING, 3: CARRYING, 4: ["hierarchical", "tree"]}[workers]
    found = [case for mode in modes for case in ways_of(mode)]
    if workers == 2:
        found += [*options_of_ddp(), *channels_last()]
        found.append(case_of("ring", "topk", bucket_bytes=3000))
    return list({str(case): case for case in found if impossible(case.point(2)) is None}.values())


ALL = {workers: cases(workers) for workers in (1, 2, 3, 4)}
WORLDS = [pytest.param(workers, marks=[pytest.mark.slow] if workers > 2 else []) for workers in ALL]


def of_type(dtype: str) -> list[Any]:
    """Compressed cases by number of workers, of parameters of a type."""
    return [
        pytest.param(case, workers, marks=[pytest.mark.slow] if workers > 2 else [])
        for workers, found in ALL.items()
        for case in found
        if case.compression and case.dtype == dtype
    ]


def train(case: Case, *, workers: int, rank: int) -> dict[str, Any]:
    """Train as the common loop does; the last period's exchange is held against the exact one."""
    point = case.point(workers)
    torch.manual_seed(rank)
    job = replace(job_of(point, rank), ddp_options=point.workload.ddp_options)
    loop = Loop(job, point.workload.build())
    mode = loop.mode
    loop.run(STEPS - PERIOD)
    mode.watch()
    loop.run(PERIOD)
    loop.clock.stop()
    parameters = [parameter.detach().reshape(-1) for parameter in loop.model.parameters()]
    found = {
        "weights": torch.cat(parameters),
        "seen": mode.seen(),
        "times": loop.clock.times(),
        "silent": None,
    }
    if MODES[point.sync].can_leave_out:
        before = position()
        loop.run(1, without=MODES[point.sync].can_leave_out)
        found["silent"] = position() - before
        loop.run(1)
    with Counting() as counting:
        mode.exchange_alone()
        mode.exchange_alone()
    mode.close()
    return {**found, "sent_alone": counting.bytes_sent, "position": position()}


def train_all(rank: int, workers: int) -> dict[str, dict[str, Any]]:
    return {str(case): train(case, workers=workers, rank=rank) for case in ALL[workers]}


Results = dict[str, dict[str, Any]]


@functools.cache
def trained_by(workers: int) -> list[Results]:
    """Results of each rank, by case."""
    return results_of(train_all, workers, workers=workers)


def error(ranks: list[Results], case: Case) -> float:
    """Of the exchange that was watched: the difference to the exact mean, as a share of that."""
    apart, norm = np.sum([rank[str(case)]["seen"] for rank in ranks], axis=0)
    return float(np.sqrt(apart / norm))


def test_every_way_of_every_mode_is_trained_here() -> None:
    pairs = {(case.mode, case.compression) for case in ALL[2] if case.compression}
    assert set(CARRYING) == {name for name in MODES if MODES[name].carries} - {"parameter_server"}
    ways = {(mode, COMPRESSIONS[name].exchange) for mode, name in pairs}
    assert ways == {(mode, way) for mode in CARRYING for way in MODES[mode].carries}


@pytest.mark.parametrize(("case", "workers"), of_type("float64"), ids=str)
def test_what_leaves_nothing_out_changes_nothing(case: Case, workers: int) -> None:
    ranks = trained_by(workers)
    kept = {name: value for name, value in case.fields.items() if name == "accumulation"}
    exact = str(replace(case, compression=None, fields=kept, options={}))
    for rank in ranks:
        found, expected = (rank[name]["weights"] for name in (str(case), exact))
        assert torch.allclose(found, expected, rtol=0, atol=1e-12)
    assert error(ranks, case) < 1e-12


def test_weights_that_lie_in_memory_otherwise_than_their_indices_say_train_alike() -> None:
    ddp, *others = (
        str(Case(mode=mode, compression=None, dtype="float64", is_channels_last=True))
        for mode in ("ddp", "zero1", "ring")
    )
    for rank in trained_by(2):
        for other in others:
            assert torch.allclose(rank[other]["weights"], rank[ddp]["weights"], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("case", "workers"), of_type("float32"), ids=str)
def test_ranks_get_the_same_bits_as_near_to_the_mean_as_the_compression_is(
    case: Case, workers: int
) -> None:
    ranks = trained_by(workers)
    first, *others = (rank[str(case)]["weights"] for rank in ranks)
    assert all(torch.equal(first, other) for other in others)
    if case.compression in FARTHEST:
        assert 0 < error(ranks, case) < FARTHEST[case.compression]
    else:
        assert error(ranks, case) > 0


@pytest.mark.parametrize("workers", WORLDS)
def test_ranks_stay_in_step_and_phases_add_up_to_the_step(workers: int) -> None:
    for case in ALL[workers]:
        ranks = [rank[str(case)] for rank in trained_by(workers)]
        assert len({rank["position"] for rank in ranks}) == 1
        # Steps without exchange exchange nothing.
        assert {rank["silent"] for rank in ranks} <= {0, None}
        for times in (rank["times"] for rank in ranks):
            phases = [values for name, values in times.items() if name not in ("start_s", "step_s")]
            assert np.allclose(np.sum(phases, axis=0), times["step_s"])
            assert ("compress_s" in times) == (case.compression is not None)
            if case.compression:
                assert times["compress_s"].sum() > 0


def train_one_parameter(rank: int) -> list[Tensor]:
    """A bucket of which DDP makes a new one of the same parameters after the first exchange."""
    trained = []
    topk: dict[str, Any] = {"compression": "topk", "compression_ratio": 1.0}
    for fields in ({}, topk):
        point = Point(workers=2, micro_batch=4, learning_rate=10.0, workload=Curve(), **fields)
        job = replace(job_of(point, rank), loss=lambda model, _: drawn_loss(model, rank))
        torch.manual_seed(0)
        loop = Loop(job, nn.Linear(520, 520, bias=False))
        loop.run(3)
        trained.append(nn.utils.parameters_to_vector(loop.model.parameters()).detach())
    return trained


def drawn_loss(model: nn.Module, rank: int) -> Tensor:
    random = torch.Generator().manual_seed(rank)
    answer: Tensor = model(torch.randn(4, 520, generator=random))
    return answer.square().mean()


def test_a_bucket_that_is_made_again_of_the_same_parameters_is_averaged() -> None:
    for plain, compressed in results_of(train_one_parameter, workers=2):
        assert torch.allclose(plain, compressed, rtol=0, atol=1e-6)


def test_sparse_gradients_are_refused_by_name() -> None:
    point = Point(compression="int8", workload=Curve())
    job = replace(job_of(point, 0), loss=lambda model, _: model(torch.tensor([1])).sum())
    with alone(), pytest.raises(TypeError, match="int8 needs dense gradients"):
        Loop(job, nn.Embedding(4, 4, sparse=True)).run(1)
