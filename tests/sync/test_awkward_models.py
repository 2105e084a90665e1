"""Models that are awkward for a mode: trained as `ddp` trains them, or refused by their names.

One spawn of two ranks runs all cases.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.tensor import DTensor

from dtsweep.measure.clock import CpuClock
from dtsweep.sweep.point import Point
from dtsweep.sync import block_order
from dtsweep.sync.mode import Job, load_mode
from dtsweep.sync.passes import batches_of_steps, make_optimizer
from tests.ranks import free_ports, spawn

RANKS, STEPS = 2, 4
WIDTH = 8
LONGEST = timedelta(seconds=60)

Result = str | list[Tensor]
"""Message of the refusal, or the parameters after training."""


class Complex(nn.Module):
    """Complex matrices, large enough for a low rank, and a real one."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Parameter(torch.randn(24, WIDTH, dtype=torch.complex64))
        self.scale = nn.Parameter(torch.randn(24))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = (x.to(torch.complex64) @ self.turn.T).abs() * self.scale
        return out


class Frozen(nn.Module):
    """A frozen integer parameter and a frozen bf16 one before trained ones of fp32."""

    def __init__(self) -> None:
        super().__init__()
        self.codes = nn.Parameter(torch.arange(WIDTH), requires_grad=False)
        self.shift = nn.Parameter(torch.ones(WIDTH, dtype=torch.bfloat16), requires_grad=False)
        self.layer = nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x[:, self.codes] + self.shift.float())
        return out


class Mixed(nn.Module):
    """Trained parameters of two types."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, 4), nn.Linear(4, 4, dtype=torch.bfloat16)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(self.first(x).bfloat16()).float()
        return out


def transposed() -> nn.Module:
    """A layer whose weight is not contiguous in memory."""
    layer = nn.Linear(WIDTH, 6)
    layer.weight = nn.Parameter(layer.weight.detach().T.contiguous().T)
    return nn.Sequential(layer, nn.Tanh(), nn.Linear(6, 2))


class Empty(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.rest = nn.Linear(WIDTH, 2), nn.Parameter(torch.empty(0))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x) + self.rest.sum()
        return out


class Looked(nn.Module):
    """An embedding that is looked up; `options` make its gradients or its forward special."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(9, WIDTH, **options), nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.table((x[:, 0].abs() * 100).long() % 9))
        return out


def hooked(method: str) -> nn.Module:
    """A model with a hook on the gradient of a parameter."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2))
    getattr(model[0].weight, method)(lambda gradient: None)
    return model


class Table(nn.Module):
    """An embedding alone, whose gradients are sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, WIDTH, sparse=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.table((x[:, 0].abs() * 100).long() % 9)
        return out


class Answer:
    """An object that no sharding mode looks into."""

    def __init__(self, value: Tensor) -> None:
        self.value = value


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())

    def forward(self, x: Tensor) -> Answer:
        return Answer(self.inside(x))


class Answering(nn.Module):
    """Blocks that return an object of a class of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x).value
        return x


class Stack(nn.Module):
    """Equal blocks; which are called, and in which order, a function says in every pass.

    It is given the number of passes so far and the rank.
    """

    def __init__(self, order: Callable[[int, int], Sequence[int]]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(3)
        )
        self.head, self._order, self._passes = nn.Linear(WIDTH, 2), order, 0

    def forward(self, x: Tensor) -> Tensor:
        for place in self._order(self._passes, distributed.get_rank()):
            x = self.layers[place](x)
        self._passes += 1
        out: Tensor = self.head(x)
        return out


def in_turns(passes: int, _: int) -> Sequence[int]:
    return (0, 1, 2) if passes % 2 == 0 else (2, 1, 0)


def other_order(_: int, rank: int) -> Sequence[int]:
    return (1, 0, 2) if rank else (0, 1, 2)


def other_choice(_: int, rank: int) -> Sequence[int]:
    return (0, 2) if rank else (0, 1)


def one_less(_: int, rank: int) -> Sequence[int]:
    return (0, 1) if rank else (0, 1, 2)


def later(passes: int, rank: int) -> Sequence[int]:
    return other_order(passes, rank if passes == STEPS - 1 else 0)


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(WIDTH, 2), nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.used(x)
        return out


class Expanded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, 2)
        self.register_buffer("places", torch.arange(2.0).expand(3, 2))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x) + self.get_buffer("places")[0]
        return out


@dataclass(frozen=True)
class Workload:
    """Trains a model that a function makes."""

    make: Callable[[], nn.Module]
    ddp_options: Mapping[str, Any] = field(default_factory=dict)

    def batch(self, samples: range, device: torch.device) -> Tensor:
        numbers = torch.arange(samples.start, samples.stop, dtype=torch.float32, device=device)
        return torch.stack([torch.sin(k * numbers + k) for k in range(1, WIDTH + 1)], dim=1)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        answer: Tensor = model(batch).square().mean()
        return answer


@dataclass(frozen=True)
class BySparseAdam(Workload):
    """Trains it by an optimizer that takes sparse gradients alone."""

    def optimizer(self, parameters: Any, learning_rate: float) -> torch.optim.Optimizer:
        return torch.optim.SparseAdam(list(parameters), lr=learning_rate)


TABLE = BySparseAdam(Table)
SPARSE: dict[str, dict[str, Any]] = {
    "ddp": {},
    "local_sgd": {"sync_period": 2, "local_momentum": "reset"},
    "diloco": {"sync_period": 2},
    "gossip": {},
    "federated": {"sync_period": 2},
}
"""Modes that leave sparse gradients as they are, with fields of the point."""

SAME = {
    "zero1 with frozen parameters of other types": ("zero1", Frozen, {}),
    "fsdp with a transposed parameter": ("fsdp", transposed, {}),
    "fsdp_grad with objects between blocks": ("fsdp_grad", Answering, {}),
    "fsdp with blocks in turns": ("fsdp", functools.partial(Stack, in_turns), {}),
    "powersgd of complex parameters": (
        "ddp",
        Complex,
        {"compression": "powersgd", "compression_rank": 8},
    ),
}
"""Mode, model and settings that train as `ddp` does; compressed ones alike on all ranks."""

REFUSED: dict[str, tuple[Any, ...]] = {
    "clip_norm can't clip sparse gradients": (
        "ddp",
        functools.partial(Looked, sparse=True),
        {"clip_norm": 1.0},
    ),
    "zero1 needs trained parameters of one type": ("zero1", Mixed),
    "the parameter rest has no elements": ("fsdp", Empty),
    "scale (torch.float32) are in one FSDP block": ("fsdp", Complex),
    "0.weight has a hook on its gradient": (
        "fsdp",
        functools.partial(hooked, "register_hook"),
    ),
    "has a hook on its gradient, which FSDP loses": (
        "fsdp_grad",
        functools.partial(hooked, "register_post_accumulate_grad_hook"),
    ),
    "table has sparse gradients": ("fsdp", functools.partial(Looked, sparse=True)),
    "table rewrites its parameters in forward": ("fsdp", functools.partial(Looked, max_norm=1.0)),
    "use sync=fsdp_grad": ("fsdp", Answering),
    "after the rest of the model on rank 0 layers.0, on rank 1 layers.1": (
        "fsdp",
        functools.partial(Stack, other_order),
    ),
    "after layers.0 on rank 0 layers.1, on rank 1 layers.2": (
        "fsdp_grad",
        functools.partial(Stack, other_choice),
    ),
    "after layers.1 on rank 0 layers.2, on rank 1 the end of loss": (
        "fsdp",
        functools.partial(Stack, one_less),
    ),
    "ddp_options = {'find_unused_parameters': True}": ("ddp", Unused),
    "SparseAdam takes sparse gradients alone, and ring makes": ("ring", Table, {"workload": TABLE}),
    "local_momentum=average or synchronous_steps makes them dense; use Adam": (
        "local_sgd",
        Table,
        {"workload": TABLE, "synchronous_steps": 2},
    ),
    "the buffer places share memory": ("ddp", Expanded),
    "elements of the buffer places": ("ring", Expanded),
}
"""Words of a refusal: the mode and the model that are refused, and fields of the point."""


def trained(rank: int, mode_name: str, make: Callable[[], nn.Module], **fields: Any) -> Result:
    """Train on this rank: its parameters, or what is said against it."""
    point = Point(
        workers=RANKS,
        micro_batch=4,
        sync=mode_name,
        optimizer="sgd",
        learning_rate=0.05,
        **{"workload": Workload(make), **fields},
    )
    job = Job(point=point, rank=rank, device=torch.device("cpu"), loss=point.workload.loss)
    torch.manual_seed(0)
    model, clock = make(), CpuClock()
    mode, steps = load_mode(mode_name)(job), batches_of_steps(job)
    try:
        mode.prepare(model, functools.partial(make_optimizer, point=point))
        clock.start()
        for _ in range(STEPS):
            mode.step(next(steps), clock)
    except (ValueError, RuntimeError) as error:
        return str(error)
    finally:
        mode.close()
    return [
        (p.full_tensor() if isinstance(p, DTensor) else p).detach().clone()
        for p in model.parameters()
    ]


def on_rank(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS, timeout=LONGEST
    )
    results: dict[str, Any] = {
        name: (trained(rank, mode, make, **fields), trained(rank, "ddp", make))
        for name, (mode, make, fields) in SAME.items()
    }
    for words, (mode, make, *rest) in REFUSED.items():
        fields = rest[0] if rest else {}
        results[words] = trained(rank, mode, make, **fields)
    for mode, fields in SPARSE.items():
        results[f"sparse {mode}"] = trained(rank, mode, Table, workload=TABLE, **fields)
    torch.save(results, folder / f"{rank}.pt")


def on_rank_until_a_block(rank: int, folder: Path, port: int) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=RANKS,
        timeout=LONGEST,
    )
    block_order.PATIENCE_S = 1.0
    (folder / f"{rank}.txt").write_text(str(trained(rank, "fsdp", functools.partial(Stack, later))))


@pytest.fixture(scope="module")
def of_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Results of every case, by rank."""
    folder = tmp_path_factory.mktemp("awkward")
    spawn(on_rank, args=(folder,), nprocs=RANKS)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(RANKS)]


@pytest.mark.parametrize("name", SAME)
def test_a_mode_trains_it_as_ddp_does(of_ranks: list[dict[str, Any]], name: str) -> None:
    (first, by_ddp), (second, _) = (results[name] for results in of_ranks)
    assert not isinstance(first, str), first
    start = [p.detach() for p in _model(name).parameters()]
    for one, other, wanted, before in zip(first, second, by_ddp, start, strict=True):
        assert torch.equal(one, other)
        if not before.is_floating_point() and not before.is_complex():
            continue
        moved = float((wanted - before).norm())
        is_compressed = "compression" in SAME[name][2]
        allowed = 0.2 if is_compressed else 1e-5
        assert float((one - wanted).norm()) <= allowed * moved + 1e-7


@pytest.mark.parametrize("mode", SPARSE)
def test_an_optimizer_of_sparse_gradients_trains_where_they_stay_sparse(
    of_ranks: list[dict[str, Any]], mode: str
) -> None:
    torch.manual_seed(0)
    start = Table().table.weight.detach()
    for results in of_ranks:
        found = results[f"sparse {mode}"]
        assert not isinstance(found, str), found
        assert float((found[0] - start).norm()) > 0.01


def _model(name: str) -> nn.Module:
    torch.manual_seed(0)
    return SAME[name][1]()


def test_a_rank_that_calls_other_blocks_in_a_later_pass_does_not_wait_for_the_others(
    tmp_path: Path,
) -> None:
    spawn(on_rank_until_a_block, args=(tmp_path, *free_ports(1)), nprocs=RANKS)
    said = (tmp_path / "1.txt").read_text()
    assert "on rank 1 layers.1, on another, for 1 s, perhaps layers.0" in said
    assert "use sync=ddp" in said


@pytest.mark.parametrize("words", REFUSED)
def test_a_refusal_names_what_it_is_about_and_the_way_out(
    of_ranks: list[dict[str, Any]], words: str
) -> None:
    for results in of_ranks:
        said = results[words]
        assert isinstance(said, str)
        assert words in said
        assert len(said) < 250
