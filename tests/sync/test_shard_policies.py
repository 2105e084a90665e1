"""Types of gathers, and what is kept after forward: mathematics, messages and memory."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from dtsweep.measure.traffic import Counting
from dtsweep.sweep.point import Point
from dtsweep.sync.checkpoints import checkpoint_blocks
from dtsweep.sync.mode import Job
from dtsweep.sync.passes import batches_of_steps, make_optimizer
from dtsweep.sync.shard_policies import param_groups_of
from tests.contract.loop import Loop
from tests.contract.regression import Weights, job_of, weights
from tests.ranks import results_by_case

WIDTH, DEPTH = 16, 4
STEPS = 3
BLOCKS_BYTES = 4 * DEPTH * (WIDTH * WIDTH + 2 * WIDTH)
REST_BYTES = 4 * 2 * (WIDTH * WIDTH + WIDTH)
"""Parameters of the blocks and of the rest, in fp32; they divide by 4."""

Seen = dict[str, Any]


class Block(nn.Module):
    """A layer around which its input goes, and a factor that autocast leaves alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.factor = nn.Parameter(torch.linspace(0.9, 1.1, WIDTH))
        self.types: list[tuple[torch.dtype, torch.dtype]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.types.append((x.dtype, self.layer.weight.dtype))
        return x + self.factor * self.layer(x).tanh()


@dataclass(frozen=True)
class Net:
    """Blocks between two layers of the same size."""

    def build(self) -> nn.Sequential:
        blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        return nn.Sequential(nn.Linear(WIDTH, WIDTH), *blocks, nn.Linear(WIDTH, WIDTH))

    def blocks(self, model: nn.Sequential) -> list[nn.Module]:
        return list(model[1:-1])

    def batch(self, samples: range, device: torch.device) -> Tensor:
        numbers = torch.arange(samples.start, samples.stop, dtype=torch.float32)
        return torch.stack([torch.sin(k * numbers + k) for k in range(1, WIDTH + 1)], dim=1)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        wrong: Tensor = model(batch) - batch.cos()
        return wrong.square().mean()


BF16_SHARDS: dict[str, Any] = {"sync": "fsdp", "shard_precision": "bf16"}
VARIANTS: dict[str, dict[str, Any]] = {
    "fsdp": {"sync": "fsdp"},
    "fsdp bf16": BF16_SHARDS,
    "fsdp_grad bf16": {"sync": "fsdp_grad", "shard_precision": "bf16"},
    "hsdp never": {"sync": "hsdp", "reshard": "never", "node_size": 2},
    "fsdp bf16 checkpointed": {**BF16_SHARDS, "checkpointing": "blocks"},
}
WORKERS = 4


def point_of(name: str) -> Point:
    return Point(
        workers=WORKERS,
        micro_batch=4,
        accumulation=2,
        learning_rate=0.5,
        precision="bf16" if "bf16" in name else "fp32",
        workload=Net(),
        **VARIANTS[name],
    )


def model_of() -> Any:
    torch.manual_seed(0)
    return Net().build()


def local_bytes(tensors: Iterable[Any]) -> int:
    """Bytes that this rank has; the counter of steps, a number each, is left out."""
    local = [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors]
    return sum(tensor.nbytes for tensor in local if tensor.dim())


def noting(point: Point, rank: int, model: nn.Module, noted: list[int]) -> Job:
    """A job that notes the bytes of the parameters behind each forward pass."""
    job = job_of(point, rank)

    def loss(whole: nn.Module, batch: Tensor) -> Tensor:
        value = job.loss(whole, batch)
        noted.append(local_bytes(model.parameters()))
        return value

    return replace(job, loss=loss)


def trained(name: str, rank: int) -> Seen:
    """Train as a rank of a variant; note what there is after forward, and what a step sends."""
    point, model, after_forward = point_of(name), model_of(), list[int]()
    if point.checkpointing:
        checkpoint_blocks(model, point.workload)
    loop = Loop(noting(point, rank, model, after_forward), model)
    mode = loop.mode
    loop.run(STEPS - 1)
    with Counting() as counting:
        loop.run(1)
    seen: Seen = {
        "sent": float(counting.bytes_sent or 0),
        "weights": weights(model).astype(float),
        "after_forward": after_forward[-1],
        "types": set(itertools.chain(*(block.types for block in model[1:-1]))),
        "without_exchange": mode.bytes_without_exchange(),
    }
    loop.run(2, without=("gradients", "parameters"))
    seen["left_over"] = [
        parameter.unsharded_accumulated_grad
        for module in mode._sharded  # type: ignore[attr-defined]
        for parameter in module._get_fsdp_state()._fsdp_param_group.fsdp_params
    ]
    loop.run(2)
    seen["after_forward_again"] = after_forward[-1]
    mode.close()
    return seen


@dataclass(frozen=True)
class Equal(Net):
    """Layers of which each rank can have an equal part."""

    def build(self) -> nn.Sequential:
        return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(WORKERS)))

    def blocks(self, model: nn.Sequential) -> list[nn.Module]:
        return list(model)


def kept(mode: str, rank: int) -> Seen:
    """Shares of the model's bytes that are there when the second update of AdamW begins."""
    node_size = 2 if mode == "hsdp" else None
    fields: dict[str, Any] = {"workers": WORKERS, "micro_batch": 1, "node_size": node_size}
    point = Point(sync=mode, optimizer="adamw", workload=Equal(), **fields)
    model, after_forward, found = Equal().build(), list[int](), Seen()
    loop = Loop(noting(point, rank, model, after_forward), model)
    optimizer = loop.mode._optimizer  # type: ignore[attr-defined]

    def look(*_: Any) -> None:
        state = getattr(optimizer, "optim", optimizer).state.values()
        found["parameters"] = local_bytes(model.parameters())
        found["gradients"] = local_bytes(parameter.grad for parameter in model.parameters())
        found["state"] = local_bytes(value for values in state for value in values.values())

    loop.run(1)
    optimizer.register_step_pre_hook(look)
    loop.run(1)
    found["after forward"] = after_forward[-1]
    found["without exchange"] = loop.mode.bytes_without_exchange()
    loop.mode.close()
    return {name: count / (4 * WORKERS * WIDTH * WIDTH) for name, count in found.items()}


KEPT = ("parameters", "gradients", "state", "after forward", "without exchange")
MODES = ("ddp", "zero1", "fsdp_grad", "fsdp", "hsdp")


Ranks = list[dict[str, Seen]]


@pytest.fixture(scope="module")
def ranks() -> Ranks:
    return results_by_case(trained, VARIANTS, workers=WORKERS)


@pytest.fixture(scope="module")
def kept_by_ranks() -> Ranks:
    return results_by_case(kept, MODES, workers=WORKERS)


@pytest.mark.parametrize(
    ("mode", "shares"),
    [
        ("ddp", (1, 1, 2, 1, 0)),
        ("zero1", (1, 1, 2 / 4, 1, 0)),
        # Without the exchange gradients are whole, and parameters where blocks free theirs.
        ("fsdp_grad", (1 / 4, 1 / 4, 2 / 4, 1, 1)),
        ("fsdp", (1 / 4, 1 / 4, 2 / 4, 1 / 4, 2)),
        ("hsdp", (1 / 2, 1 / 2, 2 / 2, 1 / 2, 2)),
    ],
)
def test_a_rank_keeps_its_share_of_parameters_gradients_and_state(
    kept_by_ranks: Ranks, mode: str, shares: tuple[float, ...]
) -> None:
    expected = dict(zip(KEPT, shares, strict=True))
    assert [rank[mode] for rank in kept_by_ranks] == [expected] * WORKERS


def shares(point: Point) -> Iterator[list[Tensor]]:
    """The batches of each step, of all ranks and passes."""
    jobs = [batches_of_steps(job_of(point, rank)) for rank in range(point.workers)]
    return ([batch for own in step for batch in own] for step in zip(*jobs, strict=True))


def by_one_process(point: Point, *, casts: bool) -> Weights:
    """Run all passes one after another.

    Args:
        point: what is trained.
        casts: True computes with parameters, and inputs of blocks, that are rounded to bf16.
    """
    model = model_of()
    optimizer = make_optimizer(model.parameters(), point=point)
    loss = job_of(point, 0).loss
    for batches in itertools.islice(shares(point), STEPS):
        for batch in batches:
            rounded = copy.deepcopy(model)
            if casts:
                rounded.to(torch.bfloat16)
                for module in (rounded, *rounded[1:-1]):
                    module.register_forward_pre_hook(lambda _, x: x[0].to(torch.bfloat16))
            (loss(rounded, batch) / len(batches)).backward()
            for parameter, own in zip(model.parameters(), rounded.parameters(), strict=True):
                gradient = own.grad.float()
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        optimizer.step()
        optimizer.zero_grad()
    return weights(model).astype(float)


def distance(found: Weights, expected: Weights) -> float:
    """From weights to the expected ones, as a share of the way that training went."""
    start = weights(model_of())
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected - start))


TOLERANCE = {True: 1e-3, False: 1e-5}
"""Largest distance, by whether parameters are rounded.

Weights that differ in their last bit may be rounded to neighbouring numbers in bf16.
"""

BF16 = [name for name in VARIANTS if "bf16" in name]


def test_the_tolerance_tells_rounded_parameters_from_whole_ones() -> None:
    point = point_of("fsdp bf16")
    rounded, whole = (by_one_process(point, casts=casts) for casts in (True, False))
    assert distance(whole, rounded) > 2 * TOLERANCE[True]


WHOLE = BLOCKS_BYTES + REST_BYTES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "blocks", "rest", "gathered"),
    [
        ("fsdp", 1 / 4, 1, 1),
        ("fsdp bf16", 1 / 4, 1 / 2, 1 / 2),
        ("fsdp_grad bf16", 1 / 2, 1 / 2, None),
        ("hsdp never", 1, 1, 0),
    ],
)
def test_parameters_after_forward_and_without_the_exchange_are_what_the_point_says(
    ranks: Ranks, name: str, blocks: float, rest: float, gathered: float | None
) -> None:
    for found in (rank[name] for rank in ranks):
        expected = blocks * BLOCKS_BYTES + rest * REST_BYTES
        assert found["after_forward"] == expected
        # Also when steps without the exchange have kept all of them whole.
        assert found["after_forward_again"] == expected
        # Without it gradients are whole, in fp32.
        assert gathered is None or found["without_exchange"] == (1 + gathered) * WHOLE


def sent_by(name: str) -> float:
    """Bytes that a worker sends in a step of two passes, by the formulas of the modes.

    Blocks are gathered once or twice, the rest of the model once. gloo reduces by an all-reduce,
    which sends twice as much.
    """
    n, m = WORKERS, 2
    gathered = {
        "fsdp": 2 * (n - 1) / n * BLOCKS_BYTES,
        "fsdp bf16": (n - 1) / n * BLOCKS_BYTES,
        "fsdp bf16 checkpointed": (n - 1) / n * BLOCKS_BYTES,
        "fsdp_grad bf16": (n - 1) / n * BLOCKS_BYTES / 2,
        "hsdp never": (m - 1) / m * BLOCKS_BYTES,
    }[name]
    size = 2 if name in BF16 else 4
    if name == "hsdp never":
        rest = (m - 1) / m * REST_BYTES
        reduced = 2 * (m - 1) / m * WHOLE + 2 * (n / m - 1) / (n / m) * WHOLE / m
    else:
        rest = (n - 1) / n * REST_BYTES * size / 4
        reduced = 2 * (n - 1) / n * WHOLE
    return 2 * (gathered + rest + reduced)


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_trains_as_one_process_does_in_its_type_and_sends_what_the_formulas_say(
    ranks: Ranks, name: str
) -> None:
    casts = name in BF16
    expected = by_one_process(point_of(name), casts=casts)
    kind = torch.bfloat16 if casts else torch.float32
    for found in (rank[name] for rank in ranks):
        assert distance(found["weights"], expected) < TOLERANCE[casts]
        assert found["types"] == {(kind, kind)}
        assert found["sent"] == pytest.approx(sent_by(name), rel=0.001)
        # Steps without the exchange leave no gradients to later ones.
        assert set(found["left_over"]) == {None}


@pytest.mark.parametrize(("group", "groups"), [(None, []), ("its own", ["its own"])])
def test_a_module_has_one_group_of_parameters_or_none_before_torch_2_13(
    group: str | None, groups: list[str]
) -> None:
    class Old(FSDPModule, nn.Module):
        def __new__(cls) -> Any:
            return object.__new__(cls)

        def _get_fsdp_state(self) -> Any:
            return SimpleNamespace(_fsdp_param_group=group)

    assert list(param_groups_of(Old())) == groups
