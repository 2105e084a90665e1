"""Whole trials on two ranks: those that train what their mode says are `ok`, all others are found.

Each honest model runs in some modes here; `HONEST` says in which modes it can't run, and why.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from dtsweep import Measure, Sweep
from dtsweep.metrics.rank_result import RankResult
from dtsweep.metrics.rows import explaining_failure
from dtsweep.sweep.modes import MODES
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import Task, task_of
from dtsweep.sync.groups import forget_groups
from dtsweep.worker.attempt import run_attempt
from dtsweep.worker.rank import become_rank
from tests.ranks import free_ports, spawn

WORKERS = 2
WIDTH = 16
CPU = torch.device("cpu")
SHORT = Measure(
    half_width=None,
    warmup_steps=2,
    min_steps=4,
    min_seconds=0,
    max_steps=4,
    max_seconds=60,
    exchange="off",
)
MODE_NAMES = [name for name, mode in MODES.items() if not mode.needs_ray]
SHARDED = ("fsdp_grad", "fsdp", "hsdp")
LIBERAL = {"find_unused_parameters": True}


def rows_of(samples: range) -> Tensor:
    numbers = torch.arange(samples.start, samples.stop, dtype=torch.float32)
    return torch.stack([torch.sin(k * numbers + k) for k in range(1, WIDTH + 1)], dim=1)


def mean_square(model: Any, batch: Tensor) -> Tensor:
    answer: Tensor = model(batch).square().mean()
    return answer


@dataclass(frozen=True)
class Subject:
    """What a workload trains, and how."""

    make: Callable[[], nn.Module]
    loss: Callable[[Any, Any], Tensor] = mean_square
    batch: Callable[[range], Any] = rows_of
    ddp_options: Mapping[str, Any] = field(default_factory=dict)
    weight: Callable[[Any], Tensor] | None = None
    optimizer: Callable[[Any, float], Any] | None = None
    may_be_unchecked: bool = False
    cannot: tuple[str, ...] = ()
    """Modes that can't carry it."""


@dataclass(frozen=True)
class Workload:
    """Trains one of `HONEST` or `LIES`."""

    name: str

    @property
    def subject(self) -> Subject:
        return HONEST[self.name][0] if self.name in HONEST else LIES[self.name][0]

    def build(self) -> nn.Module:
        return self.subject.make()

    def batch(self, samples: range, device: torch.device) -> Any:
        return self.subject.batch(samples)

    def loss(self, model: Any, batch: Any) -> Tensor:
        return self.subject.loss(model, batch)

    def samples_in(self, batch: Any) -> int:
        return len(batch)

    @property
    def ddp_options(self) -> Mapping[str, Any]:
        return self.subject.ddp_options

    @property
    def weight(self) -> Callable[[Any], Tensor] | None:
        return self.subject.weight

    @property
    def optimizer(self) -> Callable[[Any, float], Any] | None:
        return self.subject.optimizer


def in_groups(parameters: Any, learning_rate: float) -> torch.optim.Optimizer:
    own = list(parameters)
    groups = [{"params": own[:2], "weight_decay": 0.1}, {"params": own[2:]}]
    return torch.optim.AdamW(groups, lr=learning_rate)


def plain_sgd(parameters: Any, learning_rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=learning_rate)


def sharded_sgd(parameters: Any, learning_rate: float) -> torch.optim.Optimizer:
    return ZeroRedundancyOptimizer(parameters, torch.optim.SGD, lr=learning_rate)


def head_sgd(parameters: Any, learning_rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(list(parameters)[-2:], lr=learning_rate)


def own_sgd(parameters: Any, learning_rate: float) -> Descent:
    return Descent(parameters)


def noisy_sgd(parameters: Any, learning_rate: float) -> Descent:
    return Descent(parameters, noise=0.01)


def seldom(batch: Tensor) -> Tensor:
    return (batch[:, 0] > 0.9).sum()


def positives(batch: Tensor) -> Tensor:
    return 1 + (batch[:, 0] > 0).sum()


class Descent:
    """An optimizer that is none of torch's, which may add noise."""

    def __init__(self, parameters: Any, noise: float = 0.0) -> None:
        self.param_groups = [{"params": list(parameters)}]
        self.noise = noise

    @torch.no_grad()
    def step(self) -> None:
        for parameter in self.param_groups[0]["params"]:
            if parameter.grad is not None:
                parameter.sub_(0.01 * parameter.grad)
                parameter.add_(self.noise * torch.randn_like(parameter))

    def zero_grad(self) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = None


# Models


def plain_block() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())


class Experts(nn.Module):
    """One of two layers, by the data."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = torch.tanh(self.layers[int(x.sum() > 0)](x))
        return answer


class Residual(nn.Module):
    """Left out by chance."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x if random.random() < 0.4 else x + self.layer(x)


class Sided(nn.Module):
    """Has a second output."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.tanh(self.layer(x))
        return hidden, 2 * hidden


class Sides(nn.Module):
    """Blocks and a model with second outputs, which the data may leave unused."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(Sided()) for _ in range(2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        side = x
        for block in self.blocks:
            x, side = block(x)
            x = x + side if float(x.detach().sum()) > 0 else x
        return x, side


class Shifted(nn.Module):
    """Has buffers that are larger than its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("places", torch.ones(64, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.layer(x + self.get_buffer("places")[: len(x)])
        return answer


class Follows(nn.Module):
    """Takes away a running mean of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        mean = self.get_buffer("mean")
        mean.lerp_(x.detach().mean(dim=0), 0.5)
        answer: Tensor = self.layer(x - mean.clone())
        return answer


class Stack(nn.Module):
    """Equal blocks; what is particular about them is their kind."""

    def __init__(self, kind: str = "plain") -> None:
        super().__init__()
        self.kind = kind
        make = {"experts": Experts, "random depth": Residual}.get(kind, plain_block)
        self.blocks = nn.ModuleList(make() for _ in range(3))
        self.head = nn.Linear(WIDTH, 2)
        self.never = nn.Linear(WIDTH, 2) if kind == "unused" else None
        self.teacher: nn.Module | None = None
        if kind == "teacher":
            self.teacher = nn.Linear(WIDTH, 2).requires_grad_(requires_grad=False)
        if kind == "frozen":
            self.blocks[1].requires_grad_(requires_grad=False)
        if kind == "tied":
            self.blocks[2][0].weight = self.blocks[0][0].weight
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        for number in self._order(x):
            block = self.blocks[number]
            if self.kind == "one of two" and number == 1:
                # Both are called; one of them is used.
                both = [block(x), self.blocks[2](x)]
                x = both[distributed.get_rank()]
                break
            if self.kind == "checkpoints":
                x = checkpoint(block, x, use_reentrant=False)
            elif self.kind != "layer drop" or random.random() > 0.3:
                x = block(x)
        out: Tensor = self.head(x)
        if self.teacher is not None:
            with torch.no_grad():
                for slow, fast in zip(
                    self.teacher.parameters(), self.head.parameters(), strict=True
                ):
                    slow.lerp_(fast, 0.1)
            out = out - self.teacher(x)
        return out

    def _order(self, x: Tensor) -> tuple[int, ...]:
        """Blocks in the order of this pass."""
        if self.kind == "in turns":
            return (0, 1, 2) if self.calls % 2 else (2, 1, 0)
        swaps = (0, 1, 2) if distributed.get_rank() == 0 else (1, 0, 2)
        if self.kind == "other order":
            return swaps
        return (0, 1, 2)


class Noisy(nn.Module):
    """Draws from a generator of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.generator = Stack(), torch.Generator().manual_seed(1)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.inner(x + 0.1 * torch.rand(x.shape, generator=self.generator))
        return answer


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTM(1, WIDTH, batch_first=True), nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(self.cell(x.unsqueeze(2))[0][:, -1])
        return answer


class Turned(nn.Module):
    """A complex matrix and a complex vector."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Parameter(torch.randn(WIDTH, WIDTH, dtype=torch.complex64))
        self.shift = nn.Parameter(torch.randn(WIDTH, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = (x.to(torch.complex64) @ self.turn + self.shift).abs()
        return out


class Looked(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(50, WIDTH, **options), nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.table((x.abs() * 49).long()).mean(dim=1))
        return out


class Attends(nn.Module):
    """Blocks of attention, and an embedding that is tied to the head."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, WIDTH)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True) for _ in range(2)
        )
        self.head = nn.Linear(WIDTH, 20, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.table((x.abs() * 19).long())
        for block in self.blocks:
            hidden = block(hidden)
        out: Tensor = self.head(hidden)
        return out


def layers(*between: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), *between, nn.Tanh(), nn.Linear(WIDTH, 2))


def picture_net() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)),
        nn.Conv2d(1, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 2),
    ).to(memory_format=torch.channels_last)


def normed() -> nn.Module:
    model = layers()
    nn.utils.parametrizations.weight_norm(model[0])
    return model


def compiled() -> nn.Module:
    return torch.compile(layers(), backend="eager")  # type: ignore[return-value]


def twice(model: Any, batch: Tensor) -> Tensor:
    answer: Tensor = (model(batch) - model(batch.flip(1))).square().mean()
    return answer


def sides_by_data(model: Any, batch: Tensor) -> Tensor:
    out, side = model(batch)
    answer: Tensor = out.square().mean()
    return answer + side.square().mean() if float(batch.sum()) > 0 else answer


def thrice(model: Any, batch: Tensor) -> Tensor:
    anchor, near, far = (model(rows) for rows in (batch, batch + 0.1, batch.flip(1)))
    answer: Tensor = (anchor - near).square().mean() + (anchor - far).square().mean()
    return answer


def with_noise(samples: range) -> Tensor:
    return rows_of(samples) + 0.1 * torch.rand(len(samples), WIDTH)


def with_penalty(model: Any, batch: Tensor) -> Tensor:
    batch = batch.clone().requires_grad_()
    out = model(batch)
    (slope,) = torch.autograd.grad(out.sum(), batch, create_graph=True)
    answer: Tensor = out.square().mean() + slope.square().mean()
    return answer


def ragged(samples: range) -> list[Tensor]:
    return [rows_of(range(n, n + 1 + n % 3)) for n in samples]


def over_ragged(model: Any, batch: list[Tensor]) -> Tensor:
    answer: Tensor = torch.stack([model(rows).mean(dim=0) for rows in batch]).square().mean()
    return answer


HONEST: dict[str, tuple[Subject, dict[str, Any]]] = {
    "plain": (Subject(Stack), {}),
    "bf16": (Subject(Stack), {"precision": "bf16"}),
    "dropout": (Subject(lambda: layers(nn.Dropout(0.3))), {}),
    "own generator": (Subject(Noisy), {}),
    "batch norm": (Subject(lambda: layers(nn.BatchNorm1d(WIDTH))), {}),
    "tied": (Subject(lambda: Stack("tied")), {}),
    "tied decoder": (Subject(Attends), {}),
    "frozen": (Subject(lambda: Stack("frozen")), {}),
    "unused": (Subject(lambda: Stack("unused"), ddp_options=LIBERAL), {}),
    # Ranks leave out different blocks, which shards can't carry.
    "layer drop": (
        Subject(lambda: Stack("layer drop"), ddp_options=LIBERAL, cannot=SHARDED),
        {"accumulation": 2},
    ),
    # In blocks, where shards carry it.
    "experts": (
        Subject(lambda: Stack("experts"), ddp_options=LIBERAL, optimizer=plain_sgd),
        {},
    ),
    "random depth": (
        Subject(
            # Behind a layer, so that backward comes to the blocks' inputs.
            lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), Stack("random depth")),
            ddp_options=LIBERAL,
            optimizer=plain_sgd,
        ),
        {},
    ),
    "three calls with buffers": (Subject(Shifted, thrice), {}),
    "running mean": (Subject(Follows, twice, may_be_unchecked=True), {}),
    "head alone": (Subject(Stack, optimizer=head_sgd), {"clip_norm": 0.01}),
    "noise in batch": (
        Subject(lambda: layers(nn.Dropout(0.3)), batch=with_noise, weight=positives),
        {"accumulation": 2},
    ),
    "side outputs": (Subject(Sides, sides_by_data), {}),
    "blocks in turns": (Subject(lambda: Stack("in turns")), {}),
    "checkpoints": (Subject(lambda: Stack("checkpoints")), {}),
    "checkpointed blocks": (
        Subject(lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), Stack(), nn.Dropout(0.3))),
        {"checkpointing": "blocks", "accumulation": 2},
    ),
    # A forward reads parameters of another module.
    "teacher": (Subject(lambda: Stack("teacher"), cannot=SHARDED), {}),
    "lstm": (Subject(Recurrent), {}),
    "ragged": (Subject(Stack, over_ragged, ragged), {}),
    "complex": (Subject(Turned), {}),
    "embedding": (Subject(lambda: Looked(padding_idx=0)), {}),
    "sparse": (Subject(lambda: Looked(sparse=True), cannot=SHARDED), {}),
    "pictures": (Subject(picture_net), {}),
    "weight norm": (Subject(normed), {}),
    "compiled": (Subject(compiled), {}),
    "two calls": (Subject(Stack, twice), {}),
    # A second backward needs what was freed.
    "gradient penalty": (Subject(layers, with_penalty, cannot=SHARDED), {}),
    "double": (Subject(lambda: Stack().double(), batch=lambda s: rows_of(s).double()), {}),
    "groups": (Subject(Stack, optimizer=in_groups), {"clip_norm": 0.01}),
    "weighted": (Subject(Stack, weight=positives), {"accumulation": 2, "clip_norm": 0.01}),
    "seldom weighted": (Subject(Stack, weight=seldom), {"accumulation": 2}),
    "own optimizer": (Subject(Stack, optimizer=own_sgd), {}),
}
"""What is trained, and fields of the point."""


def in_mode(mode: str, **fields: Any) -> dict[str, Any]:
    node_size = {"node_size": 1} if "node_size" in MODES[mode].reads else {}
    period = {"sync_period": 2} if "sync_period" in MODES[mode].reads else {}
    return {"sync": mode, **node_size, **period, **fields}


def sampled() -> list[tuple[str, str]]:
    """Each model in `ddp`, in one sharded mode and in one other, which take turns."""
    sharded = itertools.cycle(SHARDED)
    others = itertools.cycle([mode for mode in MODE_NAMES if mode not in ("ddp", *SHARDED)])
    cases = []
    for name, (subject, _) in HONEST.items():
        modes = ["ddp", next(sharded), next(others)]
        cases += [(name, mode) for mode in modes if mode not in subject.cannot]
    return cases


def around(model: Any, batch: Tensor) -> Tensor:
    return mean_square(model.module, batch)


class AroundAtFirst:
    """Goes round the wrapper for some calls, then not."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, model: Any, batch: Tensor) -> Tensor:
        self.calls += 1
        # Two steps of warm-up, four of the window.
        return mean_square(getattr(model, "module", model) if self.calls < 7 else model, batch)


def by_rank(model: Any, batch: Tensor) -> Tensor:
    return mean_square(model, batch) * (1 + 9 * distributed.get_rank())


def times_rank(model: Any, batch: Tensor) -> Tensor:
    return mean_square(model, batch) * distributed.get_rank()


def scaled_by_hook() -> nn.Module:
    """Gradients are scaled once more, by a hook that should have averaged them."""
    model = layers()
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: gradient * WORKERS)
    return model


def summed_by_hook() -> nn.Module:
    """Gradients are exchanged by hooks, and not divided."""
    model = layers()

    def summed(gradient: Tensor) -> Tensor:
        total = gradient.clone()
        distributed.all_reduce(total)
        return total

    for parameter in model.parameters():
        parameter.register_hook(summed)
    return model


LIES: dict[str, tuple[Subject, dict[str, Any], str, str]] = {
    "blocks in another order": (
        Subject(lambda: Stack("other order")),
        {"sync": "fsdp"},
        "user_error",
        "on rank 0 blocks.0, on rank 1 blocks.1",
    ),
    "blocks that backward does not come to": (
        Subject(lambda: Stack("one of two")),
        {"sync": "fsdp"},
        "user_error",
        "workers come to the model's blocks in different orders",
    ),
    "forward writes to parameters": (
        Subject(lambda: Looked(max_norm=0.1)),
        {},
        "wrong_parameters",
        "differ between workers",
    ),
    "an optimizer that draws": (
        Subject(Stack, optimizer=noisy_sgd),
        {},
        "wrong_parameters",
        "differ between workers",
    ),
    "copies that draw": (
        Subject(Stack, optimizer=noisy_sgd),
        in_mode("hsdp"),
        "wrong_parameters",
        "differ between workers",
    ),
    "round the wrapper": (
        Subject(layers, around, optimizer=own_sgd),
        {},
        "wrong_gradient",
        "call model(...) itself",
    ),
    "round at first": (
        Subject(layers, AroundAtFirst()),
        {},
        "wrong_parameters",
        "differ between workers",
    ),
    "a wrapper of its own": (
        Subject(lambda: DistributedDataParallel(layers())),
        {"sync": "fsdp"},
        "user_error",
        "give the plain model",
    ),
    "hooks that exchange": (
        Subject(summed_by_hook),
        {"sync": "ring"},
        "wrong_traffic",
        "declare exchanges = True",
    ),
    "an optimizer that exchanges": (
        Subject(layers, optimizer=sharded_sgd),
        {},
        "wrong_traffic",
        "declare exchanges = True",
    ),
    "checked: loss by rank": (Subject(layers, by_rank), {}, "wrong_gradient", "is above 0.01"),
    "checked: loss times the rank": (
        Subject(layers, times_rank),
        {},
        "wrong_gradient",
        "is above 0.01",
    ),
    "hooks in shards": (
        Subject(scaled_by_hook),
        {"sync": "fsdp"},
        "user_error",
        "has a hook on its gradient, which FSDP loses",
    ),
}
"""What is trained, fields of the point, status and words of its reason.

Those that are named so are found by `Measure(check=True)` alone.
"""


def points() -> dict[str, Point]:
    fields = {
        f"{name} in {mode}": {"workload": Workload(name), **in_mode(mode, **HONEST[name][1])}
        for name, mode in sampled()
    }
    fields |= {name: {"workload": Workload(name), **lie[1]} for name, lie in LIES.items()}
    return {
        name: Point(**{"workers": WORKERS, "micro_batch": 4, "sync": "ddp", **each})
        for name, each in fields.items()
    }


def measure_all(rank: int, folder: Path, names: dict[str, tuple[str, bool]], port: int) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORKERS
    )
    context = become_rank(rank, CPU, workload=None, own_variables=())
    results = {}
    for name, point in points().items():
        attempt_id, is_checked = names[name]
        results[name] = run_attempt(
            replace(context, workload=point.workload), task_for(point, attempt_id, is_checked)
        )
    torch.save(results, folder / f"{rank}.pt")
    distributed.barrier()
    forget_groups()
    distributed.destroy_process_group()


def task_for(point: Point, attempt_id: str, is_checked: bool) -> Task:
    sweep = Sweep(
        workload=point.workload,
        axes={"workers": [WORKERS]},
        measure=replace(SHORT, check=is_checked),
    )
    return replace(task_of(sweep, point), attempt_id=attempt_id)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, RankResult]]:
    folder = tmp_path_factory.mktemp("exact")
    names = {
        name: (f"attempt{number}", name.startswith("checked") or name not in LIES)
        for number, name in enumerate(points())
    }
    spawn(measure_all, args=(folder, names, *free_ports(1)), nprocs=WORKERS)
    ranks = [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(WORKERS)]
    return {name: {rank: own[name] for rank, own in enumerate(ranks)} for name in points()}


Results = dict[str, dict[int, RankResult]]


@pytest.mark.parametrize(("name", "mode"), sampled())
def test_an_honest_model_is_ok(results: Results, name: str, mode: str) -> None:
    ranks = results[f"{name} in {mode}"]
    assert explaining_failure(ranks) == ("ok", None)
    measured = ranks[0].measured
    assert measured is not None
    has_check = MODES[mode].agree == "gradients" or MODES[mode].shards
    if has_check and not HONEST[name][0].may_be_unchecked:
        assert measured.gradient_error is not None
        assert measured.gradient_error < (0.01 if name == "bf16" else 1e-5)


def test_honest_models_can_be_compared_with_one_worker(results: Results) -> None:
    measured = {case: ranks[0].measured for case, ranks in results.items() if case not in LIES}
    reasons = {
        case.partition(" in ")[0]: found.unchecked_reason
        for case, found in measured.items()
        if found is not None and found.unchecked_reason
    }
    assert list(reasons) == ["running mean"], reasons


@pytest.mark.parametrize("name", LIES)
def test_another_training_is_found(results: Results, name: str) -> None:
    status, reason = explaining_failure(results[name])
    assert (status, LIES[name][2]) == (LIES[name][2], status)
    assert LIES[name][3] in str(reason)
