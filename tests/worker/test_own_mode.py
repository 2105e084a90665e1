"""Workloads that make their model parallel by themselves (`sync="own"`), on four ranks of gloo.

Each is a whole attempt. What it trained is compared with plain PyTorch in this process.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from dtsweep import OwnMode, Sweep, SweepError
from dtsweep.measure.clock import CpuClock
from dtsweep.metrics.rank_result import RankResult
from dtsweep.metrics.rows import step_columns
from dtsweep.session.attempt import run_attempt
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.constraints import impossible
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import Task
from dtsweep.sync.mode import Job
from dtsweep.sync.own import Own
from dtsweep.worker.rank import RankContext
from tests.contract.regression import Weights, job_of, weights
from tests.sync.test_awkward_models import WIDTH, rows_of
from tests.worker.on_ranks import Trials, run_trials, window

RANKS = 4
STEPS = (0, 1, 2, 3, 4, 5, 7)
"""Numbers of the steps that are trained: one batch after the window is looked at alone."""
RATE = 0.05
KEPT: dict[str, Any] = {}
"""Of this rank: models after their window, by the name of the workload."""


@dataclass(frozen=True)
class Layers:
    """Two layers, trained alike by each of `WAYS`."""

    way: str

    @property
    def own_mode(self) -> OwnMode:
        return WAYS[self.way][0]

    def build(self) -> nn.Module:
        return nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.Tanh(), nn.Linear(2 * WIDTH, WIDTH))

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return rows_of(samples)

    def loss(self, model: Any, batch: Tensor) -> Tensor:
        mean: Tensor = (model(batch) - batch).square().mean()
        return mean

    def prepare(self, model: nn.Module, job: Job) -> Any:
        KEPT[self.way] = model, copy.deepcopy(model)
        return WAYS[self.way][1](model, job)


def descent(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=RATE, foreach=False)


def in_tensors(model: nn.Module, mesh: DeviceMesh) -> None:
    """Divide the first layer's outputs and the second layer's inputs."""
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})


def tensor_parallel(model: nn.Module, job: Job) -> Any:
    mesh = job.mesh()
    in_tensors(model, mesh["model"])
    if mesh["data"].size() > 1:
        fully_shard(model, mesh=mesh["data"])
    return model, descent(model)


def bf16_shards(model: nn.Module, job: Job) -> Any:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    fully_shard(model, mesh=job.mesh()["data"], mp_policy=policy)
    return model, descent(model)


def too_early(model: nn.Module, job: Job) -> Any:
    optimizer = descent(model)
    fully_shard(model, mesh=job.mesh()["data"])
    return model, optimizer


def in_ddp(model: nn.Module, job: Job) -> Any:
    return nn.parallel.DistributedDataParallel(model), descent(model)


def alone(model: nn.Module, job: Job) -> Any:
    return model, descent(model)


@dataclass(frozen=True)
class Staged(Layers):
    """Layers as a pipeline of two stages, with a step of its own.

    The first one sends activations to the next rank, which sends gradients back.
    """

    def prepare(self, model: Any, job: Job) -> Any:
        stage = [model[:2], model[2:]][job.model_rank]
        KEPT[self.way] = stage, copy.deepcopy(model)
        KEPT["copies"] = job.mesh()["data"].get_group()
        return stage, descent(stage)

    def train_step(
        self, model: Any, optimizer: Any, batches: Iterator[Any], mark: Callable[[str], None]
    ) -> Any:
        for batch in batches:
            mark("data")
            loss = self._train_on(model, batch, distributed.get_rank())
            mark("backward")
        for parameter in model.parameters():
            distributed.all_reduce(parameter.grad, group=KEPT["copies"])
            parameter.grad /= 2
        mark("sync")
        optimizer.step()
        optimizer.zero_grad()
        mark("optimizer")
        return loss

    def _train_on(self, stage: nn.Module, batch: Tensor, rank: int) -> Tensor | None:
        """Forward and backward; the loss on the last stage."""
        if rank % 2 == 0:
            hidden = stage(batch)
            distributed.send(hidden.detach(), rank + 1)
            gradient = torch.empty_like(hidden)
            distributed.recv(gradient, rank + 1)
            hidden.backward(gradient)
            return None
        received = torch.empty(len(batch), 2 * WIDTH, requires_grad=True)
        distributed.recv(received.data, rank - 1)
        loss: Tensor = (stage(received) - batch).square().mean()
        loss.backward()
        assert received.grad is not None
        distributed.send(received.grad, rank - 1)
        return loss


PERIOD = 3


@dataclass(frozen=True)
class Local(Layers):
    """Layers, whose parameters are averaged after every `sync_period` steps."""

    def prepare(self, model: nn.Module, job: Job) -> Any:
        return model, (descent(model), [job.point.sync_period, 0])

    def train_step(
        self, model: Any, optimizer: Any, batches: Iterator[Any], mark: Callable[[str], None]
    ) -> Any:
        update, count = optimizer
        for batch in batches:
            loss = self.loss(model, batch)
            loss.backward()
        update.step()
        update.zero_grad()
        count[1] += 1
        if count[1] % count[0] == 0:
            for parameter in model.parameters():
                distributed.all_reduce(parameter.data)
                parameter.data /= RANKS
        return loss


EXACT = OwnMode(semantics="exact")
HALVES = replace(EXACT, model_parallel=2)
BY_GRADIENTS = replace(EXACT, agree="gradients")
WAYS: dict[str, tuple[OwnMode, Callable[[nn.Module, Job], Any]]] = {
    "tensors": (HALVES, tensor_parallel),
    "stages": (HALVES, alone),
    "bf16": (OwnMode(semantics="exact"), bf16_shards),
    "ddp": (BY_GRADIENTS, in_ddp),
    "alone": (EXACT, alone),
    "alone, by gradients": (BY_GRADIENTS, alone),
    "alone, said so": (OwnMode(semantics="local", agree="nothing"), alone),
    "local": (OwnMode(semantics="local", reads=("sync_period",)), alone),
    "too early": (EXACT, too_early),
    "nothing": (EXACT, lambda model, job: None),
    "no optimizer": (EXACT, lambda model, job: (model, None)),
}
COMPARED = ("tensors", "stages", "bf16", "ddp")
"""Ways whose weights are compared with those of one process."""
KINDS = {"stages": Staged, "local": Local}
"""Kinds of workloads that have a step of their own, by the ways that they train."""
SHORT = window(4, exchange="off")


def point_of(way: str) -> Point:
    kind = KINDS.get(way, Layers)
    period = PERIOD if way == "local" else None
    return Point(workers=RANKS, micro_batch=4, sync="own", sync_period=period, workload=kind(way))


def train_and_keep(context: RankContext, task: Task) -> tuple[RankResult, Any]:
    """Run an attempt; of what is compared also the weights that it began and ended with."""
    result = run_attempt(context, task)
    if context.workload.way not in COMPARED:
        return result, None
    model, built = KEPT[context.workload.way]
    return result, (weights(built), weights(model))


@pytest.fixture(scope="module")
def ran() -> Trials:
    cases = {way: (SHORT, point_of(way)) for way in WAYS}
    return run_trials(cases, attempt=train_and_keep)


@pytest.fixture(scope="module")
def trials(ran: Trials) -> Trials:
    results = {
        way: {rank: result for rank, (result, _) in of_ranks.items()}
        for way, of_ranks in ran.results.items()
    }
    return replace(ran, results=results)


def trained_in(ran: Trials, way: str) -> list[Any]:
    """Of each rank the weights before and after training."""
    return [trained for _, trained in ran.results[way].values()]


def with_weights(values: Weights) -> nn.Module:
    model = Layers("alone").build()
    nn.utils.vector_to_parameters(torch.from_numpy(values.copy()), model.parameters())
    return model


def plain(built: Weights, *, data_parallel: int, steps: Sequence[int]) -> Weights:
    """Train in one process with the whole batches."""
    model = with_weights(built)
    optimizer = descent(model)
    size = 4 * data_parallel
    for step in steps:
        optimizer.zero_grad()
        Layers("alone").loss(model, rows_of(range(step * size, (step + 1) * size))).backward()
        optimizer.step()
    return weights(model)


def distance(found: Weights, expected: Weights, built: Weights) -> float:
    """Distance from the expected weights, as a share of the way that training went."""
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected - built))


@pytest.mark.parametrize(("way", "farthest"), [("tensors", 1e-5), ("bf16", 0.05), ("ddp", 1e-5)])
def test_a_workload_of_its_own_trains_as_one_process_does(
    ran: Trials, way: str, farthest: float
) -> None:
    groups = point_of(way).data_parallel
    for built, found in trained_in(ran, way):
        expected = plain(built, data_parallel=groups, steps=STEPS)
        assert distance(found, expected, built) < farthest
        fewer = plain(built, data_parallel=groups, steps=STEPS[:-1])
        assert distance(found, fewer, built) > farthest


def test_stages_of_a_pipeline_train_their_part_and_the_last_one_has_the_loss(
    ran: Trials, trials: Trials
) -> None:
    stages = trained_in(ran, "stages")
    built = stages[0][0]
    expected = plain(built, data_parallel=2, steps=STEPS)
    for first, last in (stages[:2], stages[2:]):
        assert distance(np.concatenate([first[1], last[1]]), expected, built) < 1e-5
    ranks = trials.measured("stages")
    assert ["loss" in rank.steps for rank in ranks] == [False, True] * 2
    row = trials.row("stages")
    # The window begins with the third step.
    before = with_weights(plain(built, data_parallel=2, steps=STEPS[:2]))
    loss = Layers("alone").loss(before, rows_of(range(16, 24)))
    assert row["loss_first"] == pytest.approx(float(loss.detach()), rel=1e-5)
    assert row["comm_method"] is None
    assert row["sync_s"] > 0
    table = step_columns(trials.results["stages"])
    assert table is not None
    in_window = table["part"] == "window"
    known = ~table["loss"].mask[in_window]  # type: ignore[attr-defined]
    assert known.tolist() == ([False] * 4 + [True] * 4) * 2


def test_models_that_workers_share_count_their_samples_once(trials: Trials) -> None:
    row = trials.row("tensors")
    assert (row["status"], row["global_batch"], row["optimizer"]) == ("ok", 8, None)
    assert (row["data_parallel"], row["model_parallel"]) == (2, 2)
    assert row["samples_per_s"] == pytest.approx(8 / row["step_mean_s"])
    assert row["optimizer_class"] == "SGD"
    # Of the whole model: 8 × 16 + 16 + 16 × 8 + 8.
    assert row["parameters"] == 280
    assert row["flops_per_sample"] == trials.row("ddp")["flops_per_sample"]
    # How many operations a worker does is not known.
    assert row.get("operations_per_step") is None


def test_what_a_workload_sends_is_counted(trials: Trials) -> None:
    # A pass of 4 samples sums (4, 8) activations in forward and nothing in backward, whose inputs
    # need no gradient; then each worker's half of the model is gathered and reduced by FSDP2.
    sent = trials.row("tensors")["bytes_sent_per_step"]
    activations = 4 * WIDTH * 4
    # 8 × 16 + 16 × 8 + 16 values are divided, 8 are not.
    half_bytes = ((280 - WIDTH) / 2 + WIDTH) * 4
    gathered = half_bytes / 2
    # gloo reduces and scatters as an all-reduce does.
    assert sent == pytest.approx(activations + gathered + half_bytes, rel=0.02)


def test_a_period_of_the_workload_is_measured_from_one_exchange_to_the_next(trials: Trials) -> None:
    row = trials.row("local")
    assert (row["status"], row["reason"]) == ("ok", None)
    assert row["parameters_agree"] is True
    parameters = (WIDTH + 1) * 2 * WIDTH + (2 * WIDTH + 1) * WIDTH
    assert row["bytes_sent_per_step"] == 2 * (RANKS - 1) / RANKS * 4 * parameters / PERIOD


def test_workers_that_exchange_nothing_are_found_where_it_is_declared_otherwise(
    trials: Trials,
) -> None:
    assert trials.row("ddp")["gradients_agree"] is True
    for way, status in (("alone", "wrong_parameters"), ("alone, by gradients", "wrong_gradient")):
        assert trials.row(way)["status"] == status
        assert "with sync=own dtsweep exchanges nothing" in trials.row(way)["reason"]
    row = trials.row("alone, said so")
    assert (row["status"], row["semantics"], row["parameters_agree"]) == ("ok", "local", None)
    assert row["agree"] == "nothing"


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("nothing", "Layers.prepare gave NoneType; return the model, a torch module"),
        ("no optimizer", "Layers.prepare gave an optimizer without step(): NoneType; return one"),
        (
            "too early",
            "Layers.prepare gave an optimizer of 4 parameters that the model no longer has, so "
            "they would not be trained; make the optimizer after fully_shard",
        ),
    ],
)
def test_what_prepare_returns_must_be_a_model_and_an_optimizer(
    trials: Trials, way: str, words: str
) -> None:
    row = trials.row(way)
    assert row["status"] == "user_error"
    assert words in row["reason"]


@dataclass(frozen=True)
class StepAlone:
    """A workload without a loss, whose step marks and returns what it is told."""

    phase: str = "forward"
    gives: Any = None

    own_mode = EXACT

    def build(self) -> nn.Module:
        return nn.Linear(1, 1)

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return torch.zeros(len(samples), 1)

    def prepare(self, model: nn.Module, job: Job) -> Any:
        return model, None

    def train_step(self, model: Any, optimizer: Any, batches: Any, mark: Any) -> Any:
        mark(self.phase)
        return self.gives


def one_step(workload: StepAlone) -> Any:
    """What a step of the mode gives."""
    mode = Own(job_of(Point(sync="own", workload=workload), 0))
    mode.prepare(workload.build(), lambda parameters: None)  # type: ignore[arg-type, return-value]
    clock = CpuClock()
    clock.start()
    return mode.step(iter(()), clock)


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        (StepAlone(phase="backwards"), r"mark\('backwards'\): train_step marks the end of one of"),
        (StepAlone(gives="x"), "StepAlone.train_step gave 'x'; return the loss, a scalar, or None"),
        (StepAlone(gives=torch.zeros(2)), "return the loss, a scalar, or None"),
    ],
)
def test_a_train_step_says_what_it_marks_and_returns_by_name(
    workload: StepAlone, words: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        one_step(workload)


def test_a_train_step_may_return_any_scalar() -> None:
    for loss in (1, 0.5, torch.tensor(0.5), torch.ones(1, 1)):
        assert one_step(StepAlone(gives=loss)) == float(loss)
    assert one_step(StepAlone()) is None


def test_a_workload_with_prepare_is_trained_by_it_unless_the_sweep_says_otherwise() -> None:
    (point,) = [c.point for c in candidates(Sweep(workload=StepAlone(), axes={"workers": [2]}))]
    assert (point.sync, point.semantics) == ("own", "exact")
    both = Sweep(workload=Layers("ddp"), axes={"sync": ["ddp", "own"]})
    assert [c.point.sync for c in candidates(both)] == ["ddp", "own"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "NoneType has no prepare(model, job), which sync=own needs"),
        (
            {"workers": 3, "workload": Layers("tensors")},
            "model_parallel=2 does not divide workers=3; use a multiple of it",
        ),
        (
            {"sync": "ddp", "workload": StepAlone()},
            "StepAlone has no loss(model, batch), which ddp needs; sync=own calls its train_step",
        ),
        (
            {"clip_norm": 1.0, "workload": StepAlone()},
            "does not read clip_norm; if it does, name it in OwnMode(reads=…)",
        ),
        (
            {"optimizer": "adam", "workload": Layers("alone")},
            'if prepare reads it, declare OwnMode(reads=("optimizer",))',
        ),
        ({"node_size": 2, "workers": 2, "workload": Layers("alone")}, "own has no node_size"),
    ],
)
def test_points_that_an_own_mode_can_not_train_have_a_reason(
    fields: dict[str, Any], reason: str
) -> None:
    assert str(impossible(Point(**{"sync": "own", **fields}))).endswith(reason)


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"own_mode": None}, "Declared.own_mode is None"),
        ({"own_mode": None, "own_mod": EXACT}, "did you call it 'own_mod'?"),
        ({"own_mode": lambda _: EXACT}, "Declared.own_mode is a method; put @property above it"),
        (
            {"own_mode": property(lambda workload: workload.parallel)},
            "Declared.own_mode fails: AttributeError: 'Declared' object has no",
        ),
        (
            {"own_mode": OwnMode(semantics="exact", reads=("optimiser",))},
            "has 'optimiser', which is not a field of a point; did you mean 'optimizer'?",
        ),
        (
            {"prepare": None, "prepare_model": lambda *_: None},
            "has own_mode but no method prepare(model, job), without which it has no effect; did "
            "you call it 'prepare_model'?",
        ),
        ({"own_mode": BY_GRADIENTS, "train_step": lambda *_: None}, "agree='gradients'"),
    ],
)
def test_a_declaration_that_can_not_be_used_is_refused(
    attributes: dict[str, Any], words: str
) -> None:
    workload = type("Declared", (Layers,), attributes)("alone")
    with pytest.raises(SweepError, match=re.escape(words)):
        Sweep(workload=workload, axes={"workers": [1]})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"semantics": "precise"}, "use one of exact, lossy, stale, local"),
        ({"agree": "weights"}, "use one of gradients, parameters"),
        ({"model_parallel": 0}, "at least 1"),
        ({"reads": "optimizer"}, "is no tuple"),
    ],
)
def test_an_own_mode_has_values_of_its_fields(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(SweepError, match=words):
        OwnMode(**{"semantics": "exact", **fields})
