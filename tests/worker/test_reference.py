"""`Measure(check=True)`: the first step's gradient against one worker's, on two ranks."""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, distributed, nn

from dtsweep.hardware.memory import peak_bytes
from dtsweep.hardware.random_states import set_seed
from dtsweep.metrics.rank_result import Measured, RankResult
from dtsweep.session.attempt import run_attempt
from dtsweep.sweep.mode_info import ModeInfo
from dtsweep.sweep.modes import MODES
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import Task
from dtsweep.sync.fsdp import Fsdp
from dtsweep.sync.mode import Job, SyncMode, load_mode
from dtsweep.sync.passes import batches_of_steps, loss_in_precision, make_optimizer
from dtsweep.sync.ring import Ring
from dtsweep.worker import gradients
from dtsweep.worker.gradients import IN_SHARDS
from dtsweep.worker.loop import ModeLoop
from dtsweep.worker.rank import RankContext
from dtsweep.worker.reference import GradientCheck, UncheckedError, gradient_of_one_worker
from dtsweep.workloads import Cifar10Cnn
from tests.declared import declare
from tests.sharded import ShardedOptimizer
from tests.sync.test_awkward_models import Applied
from tests.worker.on_ranks import Trials, run_trials, window

SHORT = window(4, max_seconds=0.5)
WORKERS, FEATURES = 2, 8
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Net:
    """A small network; what is particular about it is its kind."""

    kind: str = "plain"

    def build(self) -> nn.Module:
        if self.kind == "draws otherwise":
            # Each rank builds with other weights; a mode gives all of them rank 0's.
            torch.manual_seed(distributed.get_rank())
        if self.kind == "unused":
            return forked()
        first, second = (nn.Linear(FEATURES, FEATURES) for _ in range(2))
        layers: list[Any] = [first, nn.ReLU(), second, nn.Linear(FEATURES, 1)]
        if self.kind == "tied":
            layers[2].weight = layers[0].weight
        if self.kind == "old weight norm":
            torch.nn.utils.weight_norm(layers[0])
        if self.kind == "spectral norm":
            torch.nn.utils.parametrizations.spectral_norm(layers[0])
        if self.kind == "hook":
            layers[0].weight.register_hook(lambda gradient: gradient * 3)
        between = {
            "dropout": nn.Dropout(0.5),
            "batch norm": nn.BatchNorm1d(FEATURES),
            "drift": drift(),
        }
        layers.insert(1, between.get(self.kind, nn.Identity()))
        model = nn.Sequential(*layers)
        if self.kind == "closure":
            layers[1].inner = nn.Linear(FEATURES, FEATURES)

            def through_inner(rows: Tensor) -> Tensor:
                answer: Tensor = layers[1].inner(rows)
                return answer

            layers[1].forward = through_inner
        if self.kind == "compiled":
            return torch.compile(model, backend="eager")  # type: ignore[return-value]
        return model

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return rows_of(samples).to(device)

    def loss(self, model: Any, batch: Tensor) -> Tensor:
        used = model.module if self.kind == "goes round" else model
        answer: Tensor = used(batch).square()
        if self.kind == "exchanges":
            seen = answer.detach().sum()
            distributed.all_reduce(seen)
            return answer.sum() / seen
        if self.kind == "by rank":
            return answer.mean() * (distributed.get_rank() + 1)
        if self.kind == "raises elsewhere" and not hasattr(model, "device_ids"):
            raise TypeError("this is no DistributedDataParallel")
        if self.kind == "out of memory" and not hasattr(model, "device_ids"):
            torch.empty(2**60)
        return answer.sum() if self.kind == "sum" else answer.mean()

    @property
    def ddp_options(self) -> dict[str, Any]:
        return {"find_unused_parameters": True} if self.kind == "unused" else {}


@dataclass(frozen=True)
class OwnOptimizer(ShardedOptimizer, Net):
    """Has an optimizer of torch's, with another one inside of this worker's share."""


@dataclass(frozen=True)
class Annealed(Net):
    """Has a loss that changes from call to call."""

    def loss(self, model: Any, batch: Tensor) -> Tensor:
        calls = vars(self).get("calls", 0) + 1
        vars(self)["calls"] = calls
        return super().loss(model, batch) / calls


def forked() -> nn.Module:
    """A branch that some batches take, and one that none takes."""
    layers = {name: nn.Linear(FEATURES, FEATURES) for name in ("trunk", "some", "never")}

    def forward(of: Any, rows: Tensor) -> Tensor:
        answer: Tensor = of.trunk(rows)
        return answer + of.some(rows) if rows[0, 0] > 0 else answer

    return Applied(forward, **layers)


def drift() -> nn.Module:
    """Scales by how often it was called, which is in no buffer."""

    def forward(of: Any, rows: Tensor) -> Tensor:
        of.calls += 1
        return rows * of.calls

    return Applied(forward, calls=0)


def rows_of(samples: range) -> Tensor:
    return torch.stack(
        [torch.randn(FEATURES, generator=torch.Generator().manual_seed(n)) for n in samples]
    )


EXACT = [
    name
    for name, mode in MODES.items()
    if not mode.needs_ray and Point(sync=name).semantics == "exact"
]
WITHOUT_RAY = [name for name, mode in MODES.items() if not mode.needs_ray]


def in_mode(mode: str, **fields: Any) -> dict[str, Any]:
    """Fields of a point in a mode, on two workers.

    Each a node by itself, where the mode knows nodes.
    """
    return {"sync": mode, **fields} | ({"node_size": 1} if "node_size" in MODES[mode].reads else {})


def point_of(**fields: Any) -> Point:
    return Point(**{"workers": WORKERS, "micro_batch": 4, "sync": "ddp", **fields})


AGREEING: dict[str, dict[str, Any]] = {
    **{
        kind: {"workload": Net(kind)}
        for kind in (
            *("dropout", "batch norm", "tied", "unused", "hook", "sum"),
            *("draws otherwise", "spectral norm", "drift", "compiled"),
        )
    },
    "accumulates": {"workload": Net("dropout"), "accumulation": 3},
    "accumulates tied": {"workload": Net("tied"), "accumulation": 3},
    "counts passes": {"workload": Net("drift"), "accumulation": 3},
    "own optimizer": {"workload": OwnOptimizer("dropout")},
    "counts losses": {"workload": Annealed(), "accumulation": 2},
    "keeps samples": {"workload": Cifar10Cnn()},
    "bf16 accumulates": {"workload": Net("dropout"), "precision": "bf16", "accumulation": 3},
    **{
        f"{mode} tied": in_mode(mode, workload=Net("tied"), accumulation=2)
        for mode in ("fsdp", "hsdp", "ring", "zero1")
    },
    "fsdp compiled": in_mode("fsdp", workload=Net("compiled")),
    "hsdp dropout": in_mode("hsdp", workload=Net("dropout"), accumulation=2),
    "ring dropout": in_mode("ring", workload=Net("dropout"), accumulation=2),
}
"""Where one worker has the same gradient."""

WRONG = {f"{mode} by rank": in_mode(mode, workload=Net("by rank")) for mode in EXACT}
"""Where it has another one."""


class OwnGradients(Ring):
    """Sums nothing."""

    def sum_over_ranks(self, values: Tensor) -> None:
        values.mul_(self._job.point.workers)


class OwnShards(Fsdp):
    """Never reduces."""

    def prepare(self, model: nn.Module, make_optimizer: Any) -> None:
        super().prepare(model, make_optimizer)
        for module in self._sharded:
            module.set_requires_gradient_sync(requires_gradient_sync=False, recurse=False)


OF_TESTS = {
    "own gradients": replace(MODES["ring"], implementation=f"{__name__}:OwnGradients"),
    "own shards": replace(MODES["fsdp"], implementation=f"{__name__}:OwnShards"),
    "shards": ModeInfo(
        implementation=MODES["fsdp"].implementation,
        semantics=lambda _: "exact",
        reads={},
        shards=True,
    ),
}
"""Modes: two that are wrong, and one that does not say what agrees."""

TRIALS: dict[str, dict[str, Any]] = {
    **{mode: in_mode(mode, workload=Net("dropout"), accumulation=2) for mode in WITHOUT_RAY},
    **{mode: {"workload": Net(), "sync": mode} for mode in OF_TESTS},
    "fsdp exchanges": {"workload": Net("exchanges"), "sync": "fsdp"},
    "exchanges": {"workload": Net("exchanges")},
    "without": {"workload": Net("exchanges")},
    "out of memory": {"workload": Net("out of memory")},
    "goes round": {"workload": Net("goes round")},
    "by rank": {"workload": Net("by rank")},
}
"""What is measured as a whole, all but `without` with the check."""


@dataclass(frozen=True)
class Seen:
    """What a rank saw in the first steps of a trial."""

    error: float | None
    losses: list[float]
    drawn: list[float]


def first_steps(point: Point, rank: int, *, is_checked: bool) -> Seen:
    """Do as an attempt does, without a window."""
    point = replace(point, workload=replace(point.workload))
    job = Job(
        point=point,
        rank=rank,
        device=CPU,
        loss=loss_in_precision(point, CPU),
        ddp_options=getattr(point.workload, "ddp_options", {}),
    )
    set_seed(7)
    model = point.workload.build()
    next(next(batches_of_steps(job)))
    seeds = range(8, 8 + point.workers)
    stands_here = is_checked and (rank == 0 or MODES[point.sync].shards)
    mode = load_mode(point.sync)(job)
    check = GradientCheck(job, mode, model, seeds=seeds, limit_s=60) if stands_here else None
    drawn = [random.random(), float(np.random.random()), float(torch.rand(()))]
    mode.prepare(model, functools.partial(make_optimizer, point=point))
    set_seed(seeds[rank])
    loop = ModeLoop(job, mode)
    with check or contextlib.nullcontext():
        loop.run("warmup", range(3))
    mode.close()
    return Seen(
        check.error if check else None, [float(loss) for loss in loop.segments[-1].losses], drawn
    )


def both_ways(context: RankContext, task: Task) -> tuple[Seen, Seen | None]:
    """The first steps with the check and, where the loss is every rank's, without it."""
    point = task.point_of(context.workload)
    seen = first_steps(point, context.rank, is_checked=True)
    if context.workload == Net("by rank"):
        return seen, None
    return seen, first_steps(point, context.rank, is_checked=False)


def attempt(context: RankContext, task: Task) -> RankResult:
    with pytest.MonkeyPatch.context() as patch:
        declare(patch, OF_TESTS)
        return run_attempt(context, task)


@pytest.fixture(scope="module")
def seen() -> dict[str, dict[int, Any]]:
    """What each rank saw in the first steps of a case, with and without the check."""
    cases = {case: (SHORT, point_of(**fields)) for case, fields in (AGREEING | WRONG).items()}
    return run_trials(cases, attempt=both_ways).results


@pytest.fixture(scope="module")
def trials() -> Iterator[Trials]:
    with pytest.MonkeyPatch.context() as patch:
        declare(patch, OF_TESTS)
        cases = {
            case: (replace(SHORT, check=case != "without"), point_of(**fields))
            for case, fields in TRIALS.items()
        }
        yield run_trials(cases, attempt=attempt)


@pytest.mark.parametrize("case", AGREEING)
def test_workers_together_have_the_gradient_of_one_and_train_as_without_the_check(
    seen: dict[str, dict[int, Any]], case: str
) -> None:
    errors = [checked.error for checked, _ in seen[case].values()]
    assert errors[0] < 1e-6
    # Rank 0 speaks for all: they are given the same.
    assert errors[1:] == [None]
    # The same samples and random numbers, from the same weights and buffers.
    for checked, plain in seen[case].values():
        assert (checked.losses, checked.drawn) == (plain.losses, plain.drawn)


@pytest.mark.parametrize("case", WRONG)
def test_a_gradient_that_is_another_one_is_found_in_every_exact_mode(
    seen: dict[str, dict[int, Any]], case: str
) -> None:
    assert 0.2 < seen[case][0][0].error < 1


@pytest.mark.parametrize("mode", WITHOUT_RAY)
def test_every_exact_mode_is_checked_where_the_settings_ask_for_it(
    trials: Trials, mode: str
) -> None:
    measured = trials.measured(mode)[0]
    assert "unchecked" not in measured.flags
    if mode not in EXACT:
        assert measured.gradient_error is None
        return
    assert measured.gradient_error is not None
    assert measured.gradient_error < 1e-6
    agreement: tuple[bool | None, str | None] = (True, None)
    if MODES[mode].shards:
        agreement = (None, IN_SHARDS)
    assert (measured.gradients_agree, measured.gradients_reason) == agreement


@pytest.mark.parametrize(
    ("case", "least", "most"),
    [
        ("own gradients", 0.1, 2),
        ("own shards", 0.99, 2),
        ("goes round", 0.1, 2),
        ("by rank", 0.2, 1),
    ],
)
def test_what_trains_another_gradient_is_found(
    trials: Trials, case: str, least: float, most: float
) -> None:
    row = trials.row(case)
    assert least < row["gradient_error"] < most
    assert row["status"] == "wrong_gradient"
    assert f"gradient_error {row['gradient_error']:.2g}" in row["reason"]
    if case == "by rank":
        assert row["gradients_agree"] is True
        assert "is above 0.01" in row["reason"]


def test_a_model_is_the_same_product_in_every_mode(trials: Trials) -> None:
    names = ("model_digest", "parameters", "flops_per_sample", "hardware_flops_per_sample")
    of_modes = [trials.measured(mode)[0] for mode in WITHOUT_RAY]
    ((digest, parameters, flops, _),) = {tuple(getattr(m, n) for n in names) for m in of_modes}
    # Two layers of 8 × 8 and one of 8 × 1 with biases; three products each, but for the first one's
    # input.
    assert (len(str(digest)), parameters) == (16, 2 * (64 + 8) + 9)
    assert flops == 2 * (3 * (64 + 64 + 8) - 64)


def test_a_mode_in_shards_need_not_declare_what_agrees(trials: Trials) -> None:
    row = trials.row("shards")
    assert (row["status"], row["reason"]) == ("ok", None)
    assert "each worker has a share of every gradient alone" in row["gradients_reason"]


@pytest.mark.parametrize("case", ["exchanges", "fsdp exchanges", "out of memory"])
def test_what_can_not_be_checked_is_flagged_and_costs_no_trial(trials: Trials, case: str) -> None:
    assert [result.status for result in trials.results[case].values()] == ["ok", "ok"]
    measured = trials.measured(case)[0]
    assert measured.gradient_error is None
    assert measured.unchecked_reason
    assert "unchecked" in measured.flags
    assert "unchecked" not in trials.measured("without")[0].flags


# In one process


def job_of(workload: Any, **fields: Any) -> Job:
    point = Point(**{"workload": workload, "micro_batch": 4, "sync": "ddp", **fields})
    return Job(point=point, rank=0, device=CPU, loss=workload.loss)


@pytest.mark.usefixtures("world_of_one")
@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("old weight norm", "Only Tensors created explicitly by the user (graph leaves) support"),
        ("closure", "not checked: a copy of the model does not hold all of it"),
        ("raises elsewhere", "TypeError: this is no DistributedDataParallel"),
        ("exchanges", "not checked: the workload exchanges with the other workers by itself"),
    ],
)
def test_the_log_says_why_it_can_not_be_checked(
    kind: str, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    drawn, model = torch.get_rng_state(), Net(kind).build()
    torch.set_rng_state(drawn)
    check = check_of(Net(kind), model)
    assert (check.flags, check.expected) == (["unchecked"], {})
    assert why in capfd.readouterr().err
    assert torch.equal(torch.get_rng_state(), drawn)
    assert all(parameter.grad is None for parameter in model.parameters())


class Kept:
    """A base with a slot that is no field."""

    __slots__ = ("factor",)
    factor: float


@dataclass(frozen=True, slots=True)
class Slotted(Kept):
    """A workload without a dictionary of its fields, one of which is not set."""

    kept: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", 2.0)

    def build(self) -> nn.Module:
        return nn.Linear(FEATURES, 1)

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return rows_of(samples).to(device)

    def loss(self, model: Any, batch: Tensor) -> Tensor:
        answer: Tensor = model(batch).square().mean() * self.factor
        return answer


@pytest.mark.usefixtures("world_of_one")
def test_a_workload_with_slots_is_checked() -> None:
    check = check_of(Slotted(), Slotted().build())
    assert (check.flags, len(check.expected)) == ([], 2)


@pytest.mark.parametrize(("workers", "accumulation"), [(1, 3), (3, 1), (2, 3)])
def test_passes_one_after_another_give_the_gradient_of_one_large_batch(
    workers: int, accumulation: int
) -> None:
    job = job_of(Net(), workers=workers, accumulation=accumulation)
    model = Net().build()
    found = gradient_of_one_worker(job, model, seeds=range(workers), limit_s=60)
    assert [parameter.grad for parameter in model.parameters()] == [None] * len(found)
    model(rows_of(range(job.point.global_batch))).square().mean().backward()
    for gradient, parameter in zip(found, model.parameters(), strict=True):
        assert parameter.grad is not None
        assert torch.allclose(gradient, parameter.grad, atol=1e-7)


def test_a_reference_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(UncheckedError, match=r"one worker's passes for all take more than 0 s"):
        gradient_of_one_worker(job_of(Net(), workers=4), Net().build(), seeds=range(4), limit_s=0)


def check_of(workload: Any, model: nn.Module, mode: SyncMode | None = None) -> GradientCheck:
    job = job_of(workload)
    return GradientCheck(job, mode or SyncMode(job), model, seeds=[0], limit_s=60)


def given(model: nn.Module, change: Any) -> float | None:
    """Have a mode exchange a changed first gradient, and then another one."""
    mode = SyncMode(job_of(Net()))
    with check_of(Net(), model, mode) as check:
        for factor in (1.0, 5.0):
            model.zero_grad()
            model(rows_of(range(4))).square().mean().backward()
            for parameter in model.parameters():
                parameter.grad = change(parameter.grad * factor)
            mode.before_update()
    return check.error


def test_an_error_is_the_difference_as_a_share_of_the_norm_over_all_parameters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gradients, "_CHUNK", 7)
    for factor, expected in ((1, 0), (2, 1), (0, 1), (-1, 2)):
        error = given(Net().build(), lambda gradient, factor=factor: gradient * factor)
        assert error == pytest.approx(expected, abs=1e-6)
    assert given(Net().build(), lambda _: None) == pytest.approx(1)
    rounded = given(Net().build(), lambda gradient: gradient.half().float())
    assert rounded == pytest.approx(2e-4, rel=0.5)


def test_the_log_names_the_parameter_that_differs_most(capfd: pytest.CaptureFixture[str]) -> None:
    given(Net().build(), lambda gradient: gradient * (2 if gradient.shape == (1, FEATURES) else 1))
    assert "most of it in 4.weight" in capfd.readouterr().err


def test_memory_that_the_check_needs_is_in_no_peak() -> None:
    model = nn.Linear(4000, 4000)
    before = peak_bytes(CPU)

    @dataclass(frozen=True)
    class Wide(Net):
        def batch(self, samples: range, device: torch.device) -> Tensor:
            return torch.ones(len(samples), 4000)

    with check_of(Wide(), model) as check:
        assert len(check.expected) == 2
        # A copy of 64 MB, its gradient and the sum.
        assert peak_bytes(CPU) < before + 100e6
    assert check.expected == {}
    assert peak_bytes(CPU) < before + 32e6


def test_a_peak_of_memory_from_before_the_check_counts() -> None:
    model = Net().build()
    usual: dict[str, Any] = {"stop_reason": "precise", "skipped_steps": 0, "window_steps": 1}
    measured = Measured(steps={}, window_s=1.0, memory_peak_bytes=1, **usual)
    before = peak_bytes(CPU)
    torch.ones(2**26)
    check = check_of(Net(), model)
    assert check.added_to(measured).memory_peak_bytes > before + 100e6
    assert peak_bytes(CPU) < before + 100e6


@pytest.mark.usefixtures("world_of_one")
def test_parts_that_torch_does_not_know_leave_the_gradient_unchecked() -> None:
    mode = SyncMode(job_of(Net()))
    mode.trained = nn.Sequential(nn.Linear(FEATURES, FEATURES // 2))
    with check_of(Net(), Net().build(), mode) as check:
        mode.before_update()
    assert check.unchecked_reason == "the trained model has no parameter 0.weight of the same shape"
