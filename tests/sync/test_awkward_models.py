"""Models that are awkward for a mode: trained as `ddp` trains them, or refused by their names.

One spawn of two ranks runs all cases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.tensor import DTensor

from dtsweep.sweep.point import Point
from dtsweep.sync import block_order
from dtsweep.sync.mode import Job
from tests.contract.loop import Loop
from tests.ranks import free_ports, join, results_of, spawn

RANKS, STEPS = 2, 4
WIDTH = 8

Result = str | list[Tensor]
"""Message of the refusal, or the parameters after training."""


def transposed() -> nn.Module:
    """A layer whose weight is not contiguous in memory."""
    layer = nn.Linear(WIDTH, 6)
    layer.weight = nn.Parameter(layer.weight.detach().T.contiguous().T)
    return nn.Sequential(layer, nn.Tanh(), nn.Linear(6, 2))


class Applied(nn.Module):
    """A module by functions: one makes its parts, the other is its forward pass."""

    def __init__(self, forward: Callable[[Any, Tensor], Any], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self._forward = forward

    def forward(self, x: Tensor) -> Any:
        return self._forward(self, x)


def side_outputs() -> nn.Module:
    """Blocks with a second output, which one rank alone uses."""

    def block_forward(block: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.tanh(block.layer(x)), block.layer(x)

    def forward(model: Any, x: Tensor) -> Tensor:
        for block in model.blocks:
            x, side = block(x)
            if distributed.get_rank():
                x = x + side
        return x

    blocks = [Applied(block_forward, layer=nn.Linear(WIDTH, WIDTH)) for _ in range(2)]
    return Applied(forward, blocks=nn.ModuleList(blocks))


def empty() -> nn.Module:
    rest = nn.Parameter(torch.empty(0))
    return Applied(lambda of, x: of.layer(x) + of.rest.sum(), layer=nn.Linear(WIDTH, 2), rest=rest)


def unused() -> nn.Module:
    layers = {name: nn.Linear(WIDTH, 2) for name in ("used", "unused")}
    return Applied(lambda of, x: of.used(x), **layers)


def expanded() -> nn.Module:
    model = Applied(lambda of, x: of.layer(x) + of.places[0], layer=nn.Linear(WIDTH, 2))
    model.register_buffer("places", torch.arange(2.0).expand(3, 2))
    return model


def mixed() -> nn.Module:
    """Trained parameters of two types."""
    return Applied(
        lambda of, x: of.second(of.first(x).bfloat16()).float(),
        first=nn.Linear(WIDTH, 4),
        second=nn.Linear(4, 4, dtype=torch.bfloat16),
    )


def complex_one() -> nn.Module:
    """Complex matrices, large enough for a low rank, and a real one."""
    return Applied(
        lambda of, x: (x.to(torch.complex64) @ of.turn.T).abs() * of.scale,
        turn=nn.Parameter(torch.randn(24, WIDTH, dtype=torch.complex64)),
        scale=nn.Parameter(torch.randn(24)),
    )


def frozen() -> nn.Module:
    """A frozen integer parameter and a frozen bf16 one before trained ones of fp32."""
    shift = torch.ones(WIDTH, dtype=torch.bfloat16)
    return Applied(
        lambda of, x: of.layer(x[:, of.codes] + of.shift.float()),
        codes=nn.Parameter(torch.arange(WIDTH), requires_grad=False),
        shift=nn.Parameter(shift, requires_grad=False),
        layer=nn.Linear(WIDTH, 4),
    )


def places(x: Tensor) -> Tensor:
    return (x[:, 0].abs() * 100).long() % 9


def looked_up(**options: Any) -> nn.Module:
    """An embedding that is looked up; options make its gradients or its forward special."""
    table = nn.Embedding(9, WIDTH, **options)
    return Applied(
        lambda of, x: of.head(of.table(places(x))), table=table, head=nn.Linear(WIDTH, 2)
    )


def hooked(method: str) -> nn.Module:
    """A model with a hook on the gradient of a parameter."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2))
    getattr(model[0].weight, method)(lambda gradient: None)
    return model


def sparse_table() -> nn.Module:
    """An embedding alone, whose gradients are sparse."""
    return Applied(lambda of, x: of.table(places(x)), table=nn.Embedding(9, WIDTH, sparse=True))


class Answer:
    """An object that no sharding mode looks into."""

    def __init__(self, value: Tensor) -> None:
        self.value = value


def answering() -> nn.Module:
    """Blocks that return an object of a class of their own."""

    def forward(of: Any, x: Tensor) -> Tensor:
        for block in of.blocks:
            x = block(x).value
        return x

    def block() -> nn.Module:
        inside = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
        return Applied(lambda of, x: Answer(of.inside(x)), inside=inside)

    return Applied(forward, blocks=nn.ModuleList(block() for _ in range(2)))


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


def stack(*orders: Sequence[int]) -> Callable[[], nn.Module]:
    """The blocks that each rank calls, in its order."""
    return partial(Stack, lambda _, rank: orders[rank])


def later(passes: int, rank: int) -> Sequence[int]:
    return (1, 0, 2) if rank and passes == STEPS - 1 else (0, 1, 2)


def rows_of(samples: range) -> Tensor:
    numbers = torch.arange(samples.start, samples.stop, dtype=torch.float32)
    return torch.stack([torch.sin(k * numbers + k) for k in range(1, WIDTH + 1)], dim=1)


@dataclass(frozen=True)
class Workload:
    """Trains a model that a function makes."""

    make: Callable[[], nn.Module]
    ddp_options: Mapping[str, Any] = field(default_factory=dict)

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return rows_of(samples).to(device)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        answer: Tensor = model(batch).square().mean()
        return answer


@dataclass(frozen=True)
class BySparseAdam(Workload):
    """Trains it by an optimizer that takes sparse gradients alone."""

    def optimizer(self, parameters: Any, learning_rate: float) -> torch.optim.Optimizer:
        return torch.optim.SparseAdam(list(parameters), lr=learning_rate)


BY_TABLE: dict[str, Any] = {"workload": BySparseAdam(sparse_table)}
SPARSE: dict[str, dict[str, Any]] = {
    "ddp": {},
    "local_sgd": {"sync_period": 2, "local_momentum": "reset"},
    "diloco": {"sync_period": 2},
    "gossip": {},
    "federated": {"sync_period": 2},
}
"""Modes that leave sparse gradients as they are, with fields of the point."""

POWERSGD: dict[str, Any] = {"compression": "powersgd", "compression_rank": 8}
SAME: dict[str, tuple[str, Callable[[], nn.Module], dict[str, Any]]] = {
    "zero1 with frozen parameters of other types": ("zero1", frozen, {}),
    "fsdp with a transposed parameter": ("fsdp", transposed, {}),
    "fsdp_grad with objects between blocks": ("fsdp_grad", answering, {}),
    "fsdp with blocks in turns": ("fsdp", partial(Stack, in_turns), {}),
    "fsdp with second outputs": ("fsdp", side_outputs, {}),
    "powersgd of complex parameters": ("ddp", complex_one, POWERSGD),
}
"""Mode, model and settings that train as `ddp` does; compressed ones alike on all ranks."""

SPARSE_LOOKUP = partial(looked_up, sparse=True)
REFUSED: dict[str, tuple[Any, ...]] = {
    "clip_norm can't clip sparse gradients": ("ddp", SPARSE_LOOKUP, {"clip_norm": 1.0}),
    "zero1 needs trained parameters of one type": ("zero1", mixed),
    "the parameter rest has no elements": ("fsdp", empty),
    "scale (torch.float32) are in one FSDP block": ("fsdp", complex_one),
    "0.weight has a hook on its gradient": ("fsdp", partial(hooked, "register_hook")),
    "has a hook on its gradient, which FSDP loses": (
        "fsdp_grad",
        partial(hooked, "register_post_accumulate_grad_hook"),
    ),
    "table has sparse gradients": ("fsdp", SPARSE_LOOKUP),
    "table rewrites its parameters in forward": ("fsdp", partial(looked_up, max_norm=1.0)),
    "use sync=fsdp_grad": ("fsdp", answering),
    "after the rest of the model on rank 0 layers.0, on rank 1 layers.1": (
        "fsdp",
        stack((0, 1, 2), (1, 0, 2)),
    ),
    "after layers.0 on rank 0 layers.1, on rank 1 layers.2": ("fsdp_grad", stack((0, 1), (0, 2))),
    "after layers.1 on rank 0 layers.2, on rank 1 the end of loss": (
        "fsdp",
        stack((0, 1, 2), (0, 1)),
    ),
    "ddp_options = {'find_unused_parameters': True}": ("ddp", unused),
    "SparseAdam takes sparse gradients alone, and ring makes": ("ring", sparse_table, BY_TABLE),
    "local_momentum=average or synchronous_steps makes them dense; use Adam": (
        "local_sgd",
        sparse_table,
        {**BY_TABLE, "synchronous_steps": 2},
    ),
    "the buffer places share memory": ("ddp", expanded),
    "elements of the buffer places": ("ring", expanded),
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
    model = make()
    try:
        loop = Loop(job, model)
        loop.run(STEPS)
    except (ValueError, RuntimeError) as error:
        return str(error)
    loop.mode.close()
    return [
        (p.full_tensor() if isinstance(p, DTensor) else p).detach().clone()
        for p in model.parameters()
    ]


def on_rank(rank: int) -> dict[str, Any]:
    results: dict[str, Any] = {
        name: (trained(rank, mode, make, **fields), trained(rank, "ddp", make))
        for name, (mode, make, fields) in SAME.items()
    }
    for words, (mode, make, *rest) in REFUSED.items():
        fields = rest[0] if rest else {}
        results[words] = trained(rank, mode, make, **fields)
    for mode, fields in SPARSE.items():
        results[f"sparse {mode}"] = trained(rank, mode, sparse_table, **BY_TABLE, **fields)
    return results


def on_rank_until_a_block(rank: int, folder: Path, port: int) -> None:
    join(rank, workers=RANKS, port=port)
    block_order.PATIENCE_S = 3.0
    (folder / f"{rank}.txt").write_text(str(trained(rank, "fsdp", partial(Stack, later))))


@pytest.fixture(scope="module")
def of_ranks() -> list[dict[str, Any]]:
    """Results of every case, by rank."""
    return results_of(on_rank, workers=RANKS)


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
    (start,) = sparse_table().parameters()
    for results in of_ranks:
        found = results[f"sparse {mode}"]
        assert not isinstance(found, str), found
        assert float((found[0] - start.detach()).norm()) > 0.01


def _model(name: str) -> nn.Module:
    torch.manual_seed(0)
    return SAME[name][1]()


def test_a_rank_that_calls_other_blocks_in_a_later_pass_does_not_wait_for_the_others(
    tmp_path: Path,
) -> None:
    spawn(on_rank_until_a_block, args=(tmp_path, *free_ports(1)), nprocs=RANKS)
    said = (tmp_path / "1.txt").read_text()
    assert "on rank 1 layers.1, on another, for 3 s, perhaps layers.0" in said
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
