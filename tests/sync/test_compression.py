"""What a mode does with a compression, on processes without Ray.

Every compression in `ddp`; in other modes one for each way that payloads take, which is all that a
mode knows of a compression. One that leaves nothing out (`topk` and `randomk` of everything) must
change nothing; of the others ranks must get the same bits, which are as near to the exact mean as
the compression promises.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, distributed, nn

from dtsweep.measure.clock import CpuClock
from dtsweep.measure.traffic import Counting
from dtsweep.sweep.compressions import CODINGS, COMPRESSIONS, reads_of
from dtsweep.sweep.constraints import impossible
from dtsweep.sweep.modes import MODES
from dtsweep.sweep.point import Point
from dtsweep.sync.groups import forget_groups, position
from dtsweep.sync.mode import Job, load_mode
from dtsweep.sync.passes import batches_of_steps, loss_in_precision, make_optimizer
from tests.ranks import spawn

CPU = torch.device("cpu")
STEPS = 4
PERIOD = 2
WIDTH, SIDE = 70, 9

FARTHEST = {"fp16": 1e-3, "bf16": 5e-3, "int8": 0.05, "int4": 0.8}
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
        if self.is_channels_last:
            convolutions = [
                nn.Unflatten(1, (1, 3, 3)),
                nn.Conv2d(1, 4, 2),
                nn.Tanh(),
                nn.Conv2d(4, 6, 2),
            ]
            model = nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(6, 1)).to(
                getattr(torch, self.dtype)
            )
            return model.to(memory_format=torch.channels_last)
        layers = [
            nn.Linear(SIDE, WIDTH),
            nn.Tanh(),
            nn.Linear(WIDTH, WIDTH),
            nn.Tanh(),
            nn.Linear(WIDTH, 1),
        ]
        return nn.Sequential(*layers).to(getattr(torch, self.dtype))

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
        words = [
            self.mode,
            str(self.compression),
            *(f"{name}={value}" for name, value in self.fields.items()),
        ]
        return " ".join(
            [*words, *self.options, *([self.dtype] if self.dtype != "float32" else [])]
        ) + (" channels_last" * self.is_channels_last)

    def point(self, workers: int) -> Point:
        reads = MODES[self.mode].reads
        return Point(
            workers=workers,
            micro_batch=6,
            sync=self.mode,
            sync_period=PERIOD if "sync_period" in reads else None,
            node_size=(2 if workers % 2 == 0 else 1) if "node_size" in reads else None,
            compression=self.compression,
            learning_rate=0.05,
            workload=Curve(
                dtype=self.dtype, ddp_options=self.options, is_channels_last=self.is_channels_last
            ),
            **self.fields,
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
    for name, fields in (
        ("bf16", {}),
        ("randomk", {}),
        ("topk", {}),
        ("topk", {"compression_coding": "zstd"}),
        ("int8", {}),
        ("int8", {"compression_coding": "zstd"}),
        ("powersgd", {}),
    ):
        yield case_of(mode, name, **fields)


def all_of(mode: str) -> Iterator[Case]:
    """The mode with every compression, coded if possible."""
    for name in COMPRESSIONS:
        codings = CODINGS if "compression_coding" in reads_of(name) else ()
        for coding in (None, *codings):
            fields = {} if coding is None else {"compression_coding": coding}
            yield Case(mode=mode, compression=name, fields=fields)


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
        found += [*all_of("ddp"), *options_of_ddp(), *channels_last()]
        found.append(case_of("ring", "topk", bucket_bytes=3000))
    return list({str(case): case for case in found if impossible(case.point(2)) is None}.values())


ALL = {workers: cases(workers) for workers in (1, 2, 3, 4)}
WORLDS = tuple(ALL)
IS_LOSSLESS = [
    (case, workers)
    for workers, found in ALL.items()
    for case in found
    if case.compression and case.dtype == "float64"
]
LOSSY = [
    (case, workers)
    for workers, found in ALL.items()
    for case in found
    if case.compression and case.dtype == "float32"
]


def train(case: Case, *, workers: int, rank: int) -> dict[str, Any]:
    """Train as the common loop does; the last period's exchange is held against the exact one."""
    point = case.point(workers)
    job = Job(
        point=point,
        rank=rank,
        device=CPU,
        loss=loss_in_precision(point, CPU),
        ddp_options=point.workload.ddp_options,
    )
    torch.manual_seed(rank)
    model, clock, batches = point.workload.build(), CpuClock(), batches_of_steps(job)
    mode = load_mode(point.sync)(job)
    mode.prepare(model, functools.partial(make_optimizer, point=point))
    clock.start()
    for step in range(STEPS):
        if step == STEPS - PERIOD:
            mode.watch()
        mode.step(next(batches), clock)
        clock.end_step()
    wall_s = clock.stop()
    weights = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
    seen, times, alone = mode.seen(), clock.times(), None
    if MODES[point.sync].can_leave_out:
        before = position()
        mode.step(next(batches), clock, without=MODES[point.sync].can_leave_out)
        alone = position() - before
        mode.step(next(batches), clock)
    with Counting() as counting:
        mode.exchange_alone()
        mode.exchange_alone()
    found = {"weights": weights, "seen": seen, "times": times, "wall_s": wall_s, "silent": alone}
    found["sent_alone"] = counting.bytes_sent
    mode.close()
    return {**found, "position": position()}


def train_all(rank: int, workers: int, folder: Path) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=workers
    )
    torch.save(
        {str(case): train(case, workers=workers, rank=rank) for case in ALL[workers]},
        folder / f"{rank}.pt",
    )
    distributed.barrier()
    forget_groups()
    distributed.destroy_process_group()


Results = dict[str, dict[str, Any]]
TrainedBy = Callable[[int], list[Results]]


@pytest.fixture(scope="module")
def trained_by(tmp_path_factory: pytest.TempPathFactory) -> TrainedBy:
    """From a number of workers to what each of its ranks has trained, by case."""

    @functools.cache
    def trained(workers: int) -> list[Results]:
        folder = tmp_path_factory.mktemp(f"workers{workers}")
        spawn(train_all, args=(workers, folder), nprocs=workers)
        return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(workers)]

    return trained


def error(ranks: list[Results], case: Case) -> float:
    """Of the exchange that was watched: the difference to the exact mean, as a share of that."""
    apart, norm = np.sum([rank[str(case)]["seen"] for rank in ranks], axis=0)
    return float(np.sqrt(apart / norm))


def test_every_compression_and_every_way_of_every_mode_is_trained_here() -> None:
    pairs = {(case.mode, case.compression) for case in ALL[2] if case.compression}
    assert {name for _, name in pairs} == set(COMPRESSIONS)
    assert set(CARRYING) == {name for name in MODES if MODES[name].carries} - {"parameter_server"}
    ways = {(mode, COMPRESSIONS[name].exchange) for mode, name in pairs}
    assert ways == {(mode, way) for mode in CARRYING for way in MODES[mode].carries}


@pytest.mark.parametrize(("case", "workers"), IS_LOSSLESS, ids=str)
def test_what_leaves_nothing_out_changes_nothing(
    trained_by: TrainedBy, case: Case, workers: int
) -> None:
    ranks = trained_by(workers)
    kept = {name: value for name, value in case.fields.items() if name == "accumulation"}
    plain = Case(
        mode=case.mode,
        compression=None,
        fields=kept,
        dtype="float64",
        is_channels_last=case.is_channels_last,
    )
    exact = str(plain)
    for rank in ranks:
        assert torch.allclose(
            rank[str(case)]["weights"], rank[exact]["weights"], rtol=0, atol=1e-12
        )
    assert error(ranks, case) < 1e-12


def test_weights_that_lie_in_memory_otherwise_than_their_indices_say_train_alike(
    trained_by: TrainedBy,
) -> None:
    ddp, *others = (
        str(Case(mode=mode, compression=None, dtype="float64", is_channels_last=True))
        for mode in ("ddp", "zero1", "ring")
    )
    for rank in trained_by(2):
        for other in others:
            assert torch.allclose(rank[other]["weights"], rank[ddp]["weights"], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("case", "workers"), LOSSY, ids=str)
def test_ranks_get_the_same_bits_as_near_to_the_mean_as_the_compression_is(
    trained_by: TrainedBy, case: Case, workers: int
) -> None:
    ranks = trained_by(workers)
    assert all(
        torch.equal(rank[str(case)]["weights"], ranks[0][str(case)]["weights"]) for rank in ranks
    )
    if case.compression in FARTHEST:
        assert 0 < error(ranks, case) < FARTHEST[case.compression]
    else:
        assert error(ranks, case) > 0


@pytest.mark.parametrize("workers", WORLDS)
def test_ranks_stay_in_step_and_steps_without_exchange_exchange_nothing(
    trained_by: TrainedBy, workers: int
) -> None:
    for case in ALL[workers]:
        assert len({rank[str(case)]["position"] for rank in trained_by(workers)}) == 1
        assert {rank[str(case)]["silent"] for rank in trained_by(workers)} <= {0, None}


@pytest.mark.parametrize("workers", WORLDS)
def test_phases_add_up_to_the_step_and_only_what_compresses_has_that_phase(
    trained_by: TrainedBy, workers: int
) -> None:
    for case in ALL[workers]:
        for rank in trained_by(workers):
            times = rank[str(case)]["times"]
            phases = [values for name, values in times.items() if name not in ("start_s", "step_s")]
            assert np.allclose(np.sum(phases, axis=0), times["step_s"])
            assert ("compress_s" in times) == (case.compression is not None)
            if case.compression:
                assert times["compress_s"].sum() > 0


def test_an_exchange_alone_codes_what_steps_code_not_zeros(trained_by: TrainedBy) -> None:
    coded = [
        case
        for case, workers in LOSSY
        if workers == 2 and case.fields == {"compression_coding": "zstd"}
    ]
    assert {case.mode for case in coded} == {
        m for m in CARRYING if "all_to_all" in MODES[m].carries
    }
    for case in coded:
        plain = replace(case, fields={})
        for rank in trained_by(2):
            assert rank[str(case)]["sent_alone"] > 0.4 * rank[str(plain)]["sent_alone"]


def train_one_parameter(rank: int, folder: Path) -> None:
    """A bucket of which DDP makes a new one of the same parameters after the first exchange."""
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    weights = []
    for fields in ({}, {"compression": "topk", "compression_ratio": 1.0}):
        point = Point(workers=2, learning_rate=10.0, workload=Curve(), **fields)
        job = Job(
            point=point,
            rank=rank,
            device=CPU,
            loss=lambda model, batch: model(batch).square().mean(),
        )
        torch.manual_seed(0)
        model = nn.Linear(520, 520, bias=False)
        mode, clock = load_mode("ddp")(job), CpuClock()
        mode.prepare(model, functools.partial(make_optimizer, point=point))
        clock.start()
        for step in range(3):
            torch.manual_seed(10 * step + rank)
            mode.step(iter([torch.randn(4, 520)]), clock)
        weights.append(nn.utils.parameters_to_vector(model.parameters()).detach().clone())
    assert torch.allclose(*weights, rtol=0, atol=1e-6)


def test_a_bucket_that_is_made_anew_of_the_same_parameters_is_averaged(tmp_path: Path) -> None:
    spawn(train_one_parameter, args=(tmp_path,), nprocs=2)


def refuse_sparse(rank: int, folder: Path) -> None:
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=1
    )
    point = Point(compression="int8", workload=Curve())
    job = Job(point=point, rank=0, device=CPU, loss=lambda model, _: model(torch.tensor([1])).sum())
    mode = load_mode("ddp")(job)
    mode.prepare(nn.Embedding(4, 4, sparse=True), functools.partial(make_optimizer, point=point))
    clock = CpuClock()
    clock.start()
    with pytest.raises(TypeError, match="int8 needs dense gradients"):
        mode.step(next(batches_of_steps(job)), clock)


def test_sparse_gradients_are_refused_by_name(tmp_path: Path) -> None:
    spawn(refuse_sparse, args=(tmp_path,), nprocs=1)
