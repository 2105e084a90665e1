"""Whole trials on two ranks: those that train what their mode says are `ok`, all others are found.

Each honest model runs in two modes here; `HONEST` says in which modes it can't run, and why. More
models, in `ddp`, are in `test_reference`.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from dtsweep.sweep.modes import MODES
from dtsweep.sweep.point import Point
from tests.sharded import Descent
from tests.sync.test_awkward_models import WIDTH, Applied, complex_one, looked_up, rows_of
from tests.worker.on_ranks import Trials, run_trials, window

pytestmark = pytest.mark.slow

WORKERS = 2
SHORT = window(4, exchange="off")
MODE_NAMES = [name for name, mode in MODES.items() if not mode.needs_ray]
SHARDED = ("fsdp_grad", "fsdp", "hsdp")
LIBERAL = {"find_unused_parameters": True}


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


def plain_sgd(parameters: Any, learning_rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=learning_rate)


def sharded_sgd(parameters: Any, learning_rate: float) -> torch.optim.Optimizer:
    return ZeroRedundancyOptimizer(parameters, torch.optim.SGD, lr=learning_rate)


def head_sgd(parameters: Any, learning_rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(list(parameters)[-2:], lr=learning_rate)


def noisy_sgd(parameters: Any, learning_rate: float) -> Descent:
    return Descent(parameters, noise=0.01)


def seldom(batch: Tensor) -> Tensor:
    return (batch[:, 0] > 0.9).sum()


def positives(batch: Tensor) -> Tensor:
    return 1 + (batch[:, 0] > 0).sum()


# Models


def square() -> nn.Module:
    return nn.Linear(WIDTH, WIDTH)


def plain_block() -> nn.Module:
    return nn.Sequential(square(), nn.Tanh())


def experts() -> nn.Module:
    """One of two layers, by the data."""
    layers = nn.ModuleList(square() for _ in range(2))
    return Applied(lambda of, x: torch.tanh(of.layers[int(x.sum() > 0)](x)), layers=layers)


def shifted() -> nn.Module:
    """Has buffers that are larger than its parameters."""
    model = Applied(lambda of, x: of.layer(x + of.places[: len(x)]), layer=square())
    model.register_buffer("places", torch.ones(64, WIDTH))
    return model


def follows() -> nn.Module:
    """Takes away a running mean of its input."""

    def forward(of: Any, x: Tensor) -> Tensor:
        of.mean.lerp_(x.detach().mean(dim=0), 0.5)
        answer: Tensor = of.layer(x - of.mean.clone())
        return answer

    model = Applied(forward, layer=square())
    model.register_buffer("mean", torch.zeros(WIDTH))
    return model


class Stack(nn.Module):
    """Equal blocks; what is particular about them is their kind."""

    def __init__(self, kind: str = "plain") -> None:
        super().__init__()
        self.kind = kind
        make = experts if kind == "experts" else plain_block
        self.blocks = nn.ModuleList(make() for _ in range(3))
        self.head = nn.Linear(WIDTH, 2)
        self.teacher: nn.Module | None = None
        if kind == "teacher":
            self.teacher = nn.Linear(WIDTH, 2).requires_grad_(requires_grad=False)
        if kind == "frozen":
            self.blocks[1].requires_grad_(requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        for number, block in enumerate(self.blocks):
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
                pairs = zip(self.teacher.parameters(), self.head.parameters(), strict=True)
                for slow, fast in pairs:
                    slow.lerp_(fast, 0.1)
            out = out - self.teacher(x)
        return out


def noisy() -> nn.Module:
    """Draws from a generator of its own."""
    return Applied(
        lambda of, x: of.inner(x + 0.1 * torch.rand(x.shape, generator=of.generator)),
        inner=Stack(),
        generator=torch.Generator().manual_seed(1),
    )


def layers(*between: nn.Module) -> nn.Module:
    return nn.Sequential(square(), *between, nn.Tanh(), nn.Linear(WIDTH, 2))


def twice(model: Any, batch: Tensor) -> Tensor:
    answer: Tensor = (model(batch) - model(batch.flip(1))).square().mean()
    return answer


def thrice(model: Any, batch: Tensor) -> Tensor:
    near: Tensor = (model(batch) - model(batch + 0.1)).square().mean()
    return near + twice(model, batch)


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
    "frozen": (Subject(lambda: Stack("frozen")), {}),
    "own generator": (Subject(noisy), {}),
    # In blocks, where shards carry it.
    "experts": (Subject(lambda: Stack("experts"), ddp_options=LIBERAL, optimizer=plain_sgd), {}),
    # Ranks leave out different blocks, which shards can't carry.
    "layer drop": (
        Subject(lambda: Stack("layer drop"), ddp_options=LIBERAL, cannot=SHARDED),
        {"accumulation": 2},
    ),
    "running mean": (Subject(follows, twice), {}),
    "three calls with buffers": (Subject(shifted, thrice), {}),
    "noise in batch": (
        Subject(lambda: layers(nn.Dropout(0.3)), batch=with_noise, weight=positives),
        {"accumulation": 2},
    ),
    "head alone": (Subject(Stack, optimizer=head_sgd), {"clip_norm": 0.01}),
    "checkpoints": (Subject(lambda: Stack("checkpoints")), {}),
    "checkpointed blocks": (
        Subject(lambda: nn.Sequential(square(), Stack(), nn.Dropout(0.3))),
        {"checkpointing": "blocks", "accumulation": 2},
    ),
    # A forward reads parameters of another module.
    "teacher": (Subject(lambda: Stack("teacher"), cannot=SHARDED), {}),
    "ragged": (Subject(Stack, over_ragged, ragged), {}),
    "complex": (Subject(complex_one), {}),
    "sparse": (Subject(partial(looked_up, sparse=True), cannot=SHARDED), {}),
    "double": (Subject(lambda: Stack().double(), batch=lambda s: rows_of(s).double()), {}),
    # A second backward needs what was freed.
    "gradient penalty": (Subject(layers, with_penalty, cannot=SHARDED), {}),
    "weighted": (Subject(Stack, weight=positives), {"accumulation": 2, "clip_norm": 0.01}),
    "seldom weighted": (Subject(Stack, weight=seldom), {"accumulation": 2}),
}
"""What is trained, and fields of the point."""


def in_mode(mode: str, **fields: Any) -> dict[str, Any]:
    node_size = {"node_size": 1} if "node_size" in MODES[mode].reads else {}
    period = {"sync_period": 2} if "sync_period" in MODES[mode].reads else {}
    return {"sync": mode, **node_size, **period, **fields}


def sampled() -> list[tuple[str, str]]:
    """Each model in `ddp`, and in another mode: of the sharded ones and the others in turns."""
    sharded = itertools.cycle(SHARDED)
    others = itertools.cycle([mode for mode in MODE_NAMES if mode not in ("ddp", *SHARDED)])
    cases = []
    for number, (name, (subject, _)) in enumerate(HONEST.items()):
        mode = next(sharded) if number % 2 and not subject.cannot else next(others)
        cases += [(name, "ddp"), (name, mode)]
    # Parameters of a shard that some ranks or none use.
    return [*cases, ("experts", "fsdp"), ("experts", "hsdp"), ("frozen", "fsdp")]


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


DECLARE = "declare exchanges = True"
LIES: dict[str, tuple[Subject, dict[str, Any], str, str]] = {
    "blocks that backward does not come to": (
        Subject(lambda: Stack("one of two")),
        {"sync": "fsdp"},
        "user_error",
        "workers come to the model's blocks in different orders",
    ),
    "copies that draw": (
        Subject(Stack, optimizer=noisy_sgd),
        in_mode("hsdp"),
        "wrong_parameters",
        "differ between workers",
    ),
    "a wrapper of its own": (
        Subject(lambda: DistributedDataParallel(layers())),
        {"sync": "fsdp"},
        "user_error",
        "give the plain model",
    ),
    "hooks that exchange": (Subject(summed_by_hook), {"sync": "ring"}, "wrong_traffic", DECLARE),
    "an optimizer that exchanges": (
        Subject(layers, optimizer=sharded_sgd),
        {},
        "wrong_traffic",
        DECLARE,
    ),
}
"""What is trained, fields of the point, status and words of its reason."""


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


@pytest.fixture(scope="module")
def trials() -> Trials:
    return run_trials({case: (SHORT, point) for case, point in points().items()})


@pytest.mark.parametrize(("name", "mode"), sampled())
def test_an_honest_model_is_ok(trials: Trials, name: str, mode: str) -> None:
    case = f"{name} in {mode}"
    assert trials.failure(case) == ("ok", None)


@pytest.mark.parametrize("name", LIES)
def test_another_training_is_found(trials: Trials, name: str) -> None:
    _, _, wanted, words = LIES[name]
    status, reason = trials.failure(name)
    assert status == wanted
    assert words in str(reason)
