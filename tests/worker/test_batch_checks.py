"""Checks that a trial trained on the batches asked for and exchanged gradients, on two ranks."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, distributed, nn

from dtsweep import Measure, Sweep
from dtsweep.metrics.rank_result import RankResult
from dtsweep.metrics.rows import explaining_failure
from dtsweep.results.statuses import FLAG_MEANINGS
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import Task, task_of
from dtsweep.sync.mode import Job
from dtsweep.worker import gradients
from dtsweep.worker.attempt import run_attempt
from dtsweep.worker.batch_checks import BatchError, check_batch, digest_of, tensors_in
from dtsweep.worker.copies import RankSums, gradients_judged, parameters_judged
from dtsweep.worker.gradients import sums_and_norms
from dtsweep.worker.model_work import _steps_alone
from dtsweep.worker.rank import become_rank
from tests.ranks import spawn
from tests.sharded import ShardedOptimizer

WORKERS = 2
SHORT = Measure(
    half_width=None, warmup_steps=2, min_steps=4, min_seconds=0, max_steps=8, max_seconds=0.4
)
"""What follows a window may last half of its longest time, and does."""
STEPS = 10
"""Of a trial that has all the steps of `EXACT`, its warm-up among them."""
EXACT = replace(SHORT, min_steps=8, max_seconds=60)


@dataclass(frozen=True)
class Block:
    """A small network with dropout and two ways into it."""

    goes_round: str = ""
    """`all`: the wrapper is never called.

    `beside`: its first layer is called by itself as well, which DDP notices.
    """

    same_batch: bool = False

    def build(self) -> nn.Module:
        return nn.Sequential(
            nn.Linear(8, 16), nn.Dropout(0.1), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1)
        )

    def batch(self, samples: range, device: torch.device) -> Tensor:
        numbers = range(len(samples)) if self.same_batch else samples
        return torch.tensor(
            [[float((number * 7 + k * 3) % 11) for k in range(8)] for number in numbers],
            device=device,
        )

    def loss(self, model: Any, batch: Tensor) -> Tensor:
        inner = model.module if self.goes_round else model
        answer: Tensor = (
            model(batch).square().mean()
            if self.goes_round != "all"
            else inner(batch).square().mean()
        )
        if self.goes_round == "beside":
            answer = answer + inner[0](batch).square().mean()
        return answer


@dataclass(frozen=True)
class Sharded(ShardedOptimizer, Block):
    """Its optimizer has another one inside, of this worker's share of the parameters."""

    exchanges: ClassVar = True


@dataclass(frozen=True)
class Shuffled(Block):
    """Its optimizer has the parameters in another order on each worker, as sets of them do."""

    def optimizer(self, parameters: Any, learning_rate: float) -> torch.optim.Optimizer:
        own = list(parameters)
        return torch.optim.AdamW(own[:: 1 - 2 * distributed.get_rank()], lr=learning_rate)


class OfShare(torch.optim.Optimizer):
    """Updates this worker's share of the parameters, and broadcasts them."""

    def __init__(self, parameters: Any, learning_rate: float) -> None:
        self.everyone = list(parameters)
        super().__init__(self.everyone[distributed.get_rank() :: WORKERS], {"lr": learning_rate})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # it knows no closure
        for parameter in self.param_groups[0]["params"]:
            parameter.sub_(self.defaults["lr"] * parameter.grad)
        for number, parameter in enumerate(self.everyone):
            distributed.broadcast(parameter.data, src=number % WORKERS)

    def zero_grad(self, set_to_none: bool = True) -> None:
        for parameter in self.everyone:
            parameter.grad = None


@dataclass(frozen=True)
class ByHand(Block):
    """Shards its updates by hand."""

    exchanges: ClassVar = True

    def optimizer(self, parameters: Any, learning_rate: float) -> torch.optim.Optimizer:
        return OfShare(parameters, learning_rate)


class Descent:
    """An optimizer that is none of torch's; each worker may add noise of its own."""

    def __init__(self, parameters: Any, noise: float) -> None:
        self.parameters, self.noise = list(parameters), noise

    @torch.no_grad()
    def step(self) -> None:
        for parameter in self.parameters:
            parameter.sub_(0.01 * parameter.grad + self.noise * torch.randn_like(parameter))

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None


@dataclass(frozen=True)
class OwnDescent(Block):
    noise: float = 0.0

    def optimizer(self, parameters: Any, learning_rate: float) -> Any:
        return Descent(parameters, self.noise)


class Rewriting(nn.Module):
    """Scales its weight by what it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.layer.weight.mul_(1 - 1e-3 * x.mean())
        answer: Tensor = self.layer(x)
        return answer


@dataclass(frozen=True)
class Rewrites(Block):
    def build(self) -> nn.Module:
        return Rewriting()


@dataclass(frozen=True)
class RoundFirst(Block):
    """Calls what is inside the wrapper until shortly before the window ends."""

    calls: ClassVar[list[int]] = []

    def loss(self, model: Any, batch: Tensor) -> Tensor:
        self.calls.append(1)
        inner = model.module if len(self.calls) < STEPS else model
        answer: Tensor = inner(batch).square().mean()
        return answer


@dataclass(frozen=True)
class Ends(Block):
    """Has 16 samples, and none after them."""

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return super().batch(range(min(samples.start, 16), min(samples.stop, 16)), device)

    def loss(self, model: Any, batch: Tensor) -> Tensor:
        return super().loss(model, batch if len(batch) else torch.zeros(4, 8))


@dataclass(frozen=True)
class Stops(Block):
    """Gives what its window has, and then fails on the last worker."""

    fault: str = ""

    def batch(self, samples: range, device: torch.device) -> Tensor:
        step = samples.start // (len(samples) * WORKERS)
        if self.fault and step >= STEPS and distributed.get_rank() == WORKERS - 1:
            raise (
                MemoryError(self.fault)
                if self.fault == "full"
                else IndexError(f"{self.fault}\nof all")
            )
        return super().batch(samples, device)


@dataclass(frozen=True)
class Miscounts(Stops):
    """Fails where it counts the samples of that batch."""

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return Block.batch(self, samples, device) + (
            samples.start >= STEPS * len(samples) * WORKERS
        )

    def samples_in(self, batch: Tensor) -> int:
        if float(batch.min()) >= 1 and distributed.get_rank() == WORKERS - 1:
            raise KeyError("mask")
        return len(batch)


class Branched(nn.Module):
    """Uses one of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 1) for _ in range(2))

    def forward(self, batch: Tensor) -> Tensor:
        answer: Tensor = self.layers[int(batch[0, 0]) % 2](batch)
        return answer


@dataclass(frozen=True)
class Branches(Block):
    """Takes a layer that depends on the batch: others on each worker, and from step to step."""

    ddp_options: ClassVar = {"find_unused_parameters": True}

    def build(self) -> nn.Module:
        return Branched()


SILENT: list[int] = []
"""Of the steps in the trial under way, 1 for those without the exchange, else 0."""


FAILS = ("compared", "first", "silent", "alike", "in a quick turn")

QUICK = ("honest", "fails in a quick turn")
"""Cases whose exchange is measured as by default, the others by rounds."""

ALIKE = ("compared", "alike")
"""Where all workers fail."""


@dataclass(frozen=True)
class Diverges(Block):
    """Fails after the window, on the last worker without the exchange, or on all with it."""

    where: str = ""

    def build(self) -> nn.Module:
        SILENT.clear()
        # No buffers: with them a first step without the exchange shares those, and a rank that
        # fails keeps one waiting.
        return nn.Linear(8, 1)

    def loss(self, model: Any, batch: Tensor) -> Tensor:
        is_silent = not getattr(model, "require_backward_grad_sync", True)
        SILENT.append(int(is_silent))
        is_at = {
            # Two steps warm up, the window has eight.
            "compared": len(SILENT) == 2 + 8 + 1,
            "first": is_silent and sum(SILENT) == 1,
            "silent": is_silent and sum(SILENT) == 3,
            "alike": not is_silent and sum(SILENT) >= 3,
        }
        if is_at[self.where] and (self.where in ALIKE or distributed.get_rank() == WORKERS - 1):
            raise FloatingPointError("far\naway")
        return super().loss(model, batch)


@dataclass(frozen=True)
class Fixed(Block):
    """Gives 32 rows, whatever it is asked for."""

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return super().batch(range(32), device)


@dataclass(frozen=True)
class Columns(Block):
    """Has its samples in the second dimension, and says so."""

    columns: int | None = None

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return torch.ones(8, self.columns or len(samples), device=device)

    def samples_in(self, batch: Tensor) -> int:
        return batch.shape[1]


UNSEEDED = torch.Generator()


@dataclass(frozen=True)
class Augmented(Block):
    """Draws from the random states that a trial seeds."""

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return super().batch(samples, device) + torch.rand(len(samples), 8, device=device)


@dataclass(frozen=True)
class Whims(Block):
    """Gives other data at each call."""

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return torch.rand(len(samples), 8, generator=UNSEEDED).to(device)


@dataclass(frozen=True)
class Nested(Block):
    """Gives a mapping of what models take, with a number and a scalar in it."""

    def batch(self, samples: range, device: torch.device) -> Any:
        rows = torch.ones(len(samples), 8, device=device)
        return {
            "inputs": [rows, (rows.bfloat16(),)],
            "scale": torch.tensor(2.0),
            "name": "x",
            "many": 7,
        }


def points() -> dict[str, Point]:
    honest, round_all = Block(), Block(goes_round="all")
    fields: dict[str, dict[str, Any]] = {
        "honest": {"workload": honest},
        "accumulates": {"workload": honest, "accumulation": 2},
        "same batch": {"workload": Block(same_batch=True)},
        "ends": {"workload": Ends()},
        "ends alone": {"workload": Ends(), "sync": "local_sgd", "sync_period": 2},
        "stops": {"workload": Stops(fault="the end")},
        "stops alone": {"workload": Stops(fault="the end"), "sync": "local_sgd", "sync_period": 2},
        "stops full": {"workload": Stops(fault="full")},
        "stops counting": {"workload": Miscounts()},
        "branches": {"workload": Branches()},
        **{
            f"fails {where}": {"workload": Diverges(where=where)}
            for where in ("compared", "first", "silent", "alike")
        },
        "fails in a quick turn": {"workload": Diverges(where="first")},
        "sharded": {"workload": Sharded()},
        "shuffled": {"workload": Shuffled()},
        "by hand": {"workload": ByHand()},
        "own descent": {"workload": OwnDescent()},
        "round with own descent": {"workload": OwnDescent(goes_round="all")},
        "parts by noise": {"workload": OwnDescent(noise=1e-3)},
        "parts by forward": {"workload": Rewrites()},
        "parts by forward in ring": {"workload": Rewrites(), "sync": "ring"},
        "parts before the end": {"workload": RoundFirst()},
        "beside": {"workload": Block(goes_round="beside")},
        "local": {"workload": honest, "sync": "local_sgd", "sync_period": 2},
    }
    for rate, precision in ((1e-2, "bf16"), (1e-7, "fp32"), (0.0, "fp32")):
        fields[f"honest {rate} {precision}"] = {
            "workload": honest,
            "learning_rate": rate,
            "precision": precision,
        }
        fields[f"round {rate} {precision}"] = {
            "workload": round_all,
            "learning_rate": rate,
            "precision": precision,
        }
    return {
        name: Point(**{"workers": WORKERS, "micro_batch": 4, "sync": "ddp", **each})
        for name, each in fields.items()
    }


def measure_all(rank: int, folder: Path, tasks: dict[str, Task]) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORKERS
    )
    context = become_rank(rank, torch.device("cpu"), workload=Block(), own_variables=())
    results = {}
    for case, point in points().items():
        results[case] = run_attempt(replace(context, workload=point.workload), tasks[case])
    torch.save(results, folder / f"{rank}.pt")
    distributed.barrier()
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, RankResult]]:
    """Of each case what the two ranks have to say."""
    folder = tmp_path_factory.mktemp("checks")
    tasks = {
        case: task_of(
            Sweep(workload=point.workload, axes={"workers": [WORKERS]}, measure=measure), point
        )
        for case, point in points().items()
        for measure in [EXACT if case.startswith(("stops", "fails", "parts before")) else SHORT]
        for measure in [measure if case in QUICK else replace(measure, exchange="precise")]
    }
    spawn(measure_all, args=(folder, tasks), nprocs=WORKERS)
    ranks = [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(WORKERS)]
    return {case: {rank: own[case] for rank, own in enumerate(ranks)} for case in points()}


Results = dict[str, dict[int, RankResult]]


@pytest.mark.parametrize("case", [name for name in points() if name.startswith("round")])
def test_gradients_that_were_not_exchanged_are_found_at_any_learning_rate_and_precision(
    results: Results, case: str
) -> None:
    status, reason = explaining_failure(results[case])
    assert status == "wrong_gradient"
    assert reason is not None
    assert reason.startswith(
        "rank 0: gradients of 6 of 6 parameters differ between workers by up to "
    )
    assert "call model(...) itself" in reason


@pytest.mark.parametrize("case", [name for name in points() if name.startswith("parts")])
def test_parameters_that_part_are_found(results: Results, case: str) -> None:
    status, reason = explaining_failure(results[case])
    assert status == "wrong_parameters"
    assert re.match(r"rank 0: \d of \d parameters differ between workers by up to ", str(reason))
    assert "a loss that did not always call model(...) itself" in str(reason)
    for result in results[case].values():
        assert result.measured is not None
        assert (result.measured.gradients_agree, result.measured.parameters_agree) == (True, False)


@pytest.mark.parametrize("case", ["ends", "ends alone"])
def test_data_that_ran_out_is_found_after_the_window(results: Results, case: str) -> None:
    status, reason = explaining_failure(results[case])
    assert status == "user_error"
    assert str(reason).startswith(
        "rank 0: BatchError: batch gave a tensor of 0 samples where micro_batch=4 asked for 4"
    )


@pytest.mark.parametrize(
    ("case", "status", "reason"),
    [
        ("stops", "user_error", "rank 1: IndexError: the end"),
        ("stops alone", "user_error", "rank 1: IndexError: the end"),
        ("stops full", "oom_host", "rank 1: MemoryError: full"),
        ("stops counting", "user_error", "rank 1: KeyError: 'mask'"),
    ],
)
def test_a_batch_that_fails_after_the_window_on_one_rank_keeps_no_other_waiting(
    results: Results, case: str, status: str, reason: str
) -> None:
    assert explaining_failure(results[case]) == (status, f"{reason} (after the window)")
    for result in results[case].values():
        # What was measured is kept, and nothing follows it.
        assert result.measured is not None
        assert result.measured.steps["part"].tolist() == ["warmup"] * 2 + ["window"] * 8
        assert result.measured.exchange_isolated_s is None
    assert results[case][0].status == "ok"


@pytest.mark.parametrize(
    "case", [name for name in points() if not name.startswith(("round", "parts", "ends", "stops"))]
)
def test_nothing_else_is_accused(results: Results, case: str) -> None:
    assert explaining_failure(results[case]) == ("ok", None)
    agree = [
        result.measured.gradients_agree for result in results[case].values() if result.measured
    ]
    # Equal batches can have equal gradients without an exchange, too; local updates are each
    # worker's own.
    assert agree == [None if case in ("same batch", "local", "fails compared") else True] * WORKERS
    if not case.startswith("fails"):
        measured = [result.measured for result in results[case].values()]
        assert [found and found.parameters_agree for found in measured] == [True] * WORKERS


@pytest.mark.parametrize("case", [f"fails {where}" for where in FAILS])
def test_a_step_that_fails_after_the_window_costs_what_follows_alone(
    results: Results, case: str
) -> None:
    measured = [result.measured for result in results[case].values() if result.measured is not None]
    assert len(measured) == WORKERS
    (reason,) = {rank.exchange_reason for rank in measured}
    ranks = range(WORKERS) if case.removeprefix("fails ") in ALIKE else [WORKERS - 1]
    assert reason in [
        f"a step after the window failed on rank {rank}: FloatingPointError: far" for rank in ranks
    ]
    assert all(set(rank.steps["part"]) == {"warmup", "window"} for rank in measured)


def test_steps_without_the_exchange_leave_none_to_the_next_that_ddp_asks_for(
    results: Results,
) -> None:
    for result in results["branches"].values():
        assert result.measured is not None
        assert {"exchange", "no_exchange"} <= set(result.measured.steps["part"])
        assert result.measured.exchange_reason is None


@pytest.mark.parametrize(
    ("other", "found"),
    [
        (lambda sums: sums, True),
        (lambda sums: sums * (1 + 1e-6), True),
        (lambda sums: sums * torch.tensor([1, 1.01, 1]), False),
        (lambda sums: sums + torch.tensor([1.0, 0, 0]), False),
        (lambda sums: sums[:1], None),
    ],
    ids=["equal", "rounded otherwise", "norms differ", "sums differ", "fewer parameters"],
)
def test_sums_and_norms_are_compared_parameter_by_parameter(other: Any, found: bool | None) -> None:
    sums = torch.tensor([[3.0, 2.0, 100], [-1.0, 0.5, 10]], dtype=torch.float64)
    ranks = [rank_sums(b"a", gradients=sums), rank_sums(b"b", gradients=other(sums))]
    agree, reason = gradients_judged(ranks)
    assert agree is found
    assert (reason is None) is (found is True)


def test_sums_and_norms_are_exact_however_a_gradient_is_divided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gradients, "CHUNK", 7)
    layer, table, frozen = nn.Linear(5, 4), nn.Embedding(6, 3, sparse=True), nn.Linear(2, 2)
    (
        layer(torch.randn(8, 5)).square().sum() + table(torch.tensor([1, 1, 4])).square().sum()
    ).backward()
    parameters = [*layer.parameters(), *table.parameters(), *frozen.parameters()]
    found = sums_and_norms([p.grad for p in parameters], counts=[p.numel() for p in parameters])
    dense = [torch.zeros_like(p) if p.grad is None else p.grad.to_dense() for p in parameters]
    expected = [
        [float(each.double().sum()), float(each.double().norm()), each.numel()] for each in dense
    ]
    assert found.tolist() == [pytest.approx(row, rel=1e-12) for row in expected]


@pytest.mark.parametrize(
    ("other", "found"),
    [
        (lambda sums: sums.clone(), True),
        (lambda sums: sums * (1 + 1e-7), True),
        (lambda sums: sums + torch.tensor([1e-3, 0, 0]), False),
        (lambda sums: sums[:1], None),
        (lambda _: None, None),
    ],
    ids=["equal", "rounded otherwise", "sums differ", "fewer parameters", "unreadable"],
)
def test_parameters_are_compared_by_sums_and_norms(other: Any, found: bool | None) -> None:
    sums = torch.tensor([[3.0, 2.0, 100], [-1.0, 0.5, 10]], dtype=torch.float64)
    ranks = [rank_sums(parameters=sums), rank_sums(parameters=other(sums))]
    agree, reason = parameters_judged(ranks)
    assert agree is found
    assert (reason is None) is (found is True)


def test_without_a_gradient_nothing_can_be_told() -> None:
    none = torch.tensor([[0.0, 0.0, 4]], dtype=torch.float64)
    ranks = [rank_sums(digest, gradients=none) for digest in (b"a", b"b")]
    assert gradients_judged(ranks) == (None, "the optimizer was given no gradient")
    unknown = torch.full((1, 3), float("nan"), dtype=torch.float64)
    assert gradients_judged([rank_sums(d, gradients=unknown) for d in (b"a", b"b")])[0] is None


def test_ranks_are_compared_where_they_have_the_same_part_of_a_parameter() -> None:
    low = torch.tensor([[1.0, 2.0, 4], [5.0, 6.0, 8]], dtype=torch.float64)
    high = torch.tensor([[3.0, 4.0, 4], [5.0, 6.0, 8]], dtype=torch.float64)
    in_shards = [
        rank_sums(parameters=sums, parts=[part, ""])
        for part, sums in (("0", low), ("1", high), ("0", low), ("1", high))
    ]
    assert parameters_judged(in_shards) == (True, None)
    assert gradients_judged([rank_sums(bytes(i), gradients=low, parts=[part, part])
                             for i, part in enumerate("0123")])[0] is None  # fmt: skip
    # The fourth rank has another copy of the second part.
    agree, reason = parameters_judged([*in_shards[:3], rank_sums(parameters=low, parts=["1", ""])])
    assert agree is False
    assert str(reason).startswith("1 of 2 parameters differ between workers by up to 50 %")
    alone = [
        rank_sums(parameters=low, parts=["0", "0"]),
        rank_sums(parameters=low, parts=["1", "1"]),
    ]
    assert parameters_judged(alone) == (None, None)


def rank_sums(
    digest: bytes = b"",
    *,
    gradients: torch.Tensor | None = None,
    parameters: torch.Tensor | None = None,
    parts: Sequence[str] = (),
) -> RankSums:
    sums = gradients if gradients is not None else parameters
    count = 2 if sums is None else len(sums)
    return RankSums(
        model_rank=0,
        digest=digest,
        parts=parts or [""] * count,
        gradients=gradients,
        parameters=parameters,
        tolerances=[1e-5] * 2,
    )


def job_of(workload: Any, **fields: Any) -> Job:
    point = Point(**{"workload": workload, "micro_batch": 4, **fields})
    return Job(point=point, rank=0, device=torch.device("cpu"), loss=workload.loss)


@pytest.mark.parametrize(
    "workload",
    [Block(), Columns(), Nested(), Augmented()],
    ids=["rows", "columns", "nested", "augmented"],
)
def test_a_batch_of_the_samples_that_were_asked_for_is_accepted(workload: Any) -> None:
    assert check_batch(job_of(workload), seed=1) == []


def test_a_batch_of_another_size_is_refused_with_both_numbers_and_the_axis() -> None:
    with pytest.raises(
        BatchError, match=r"a tensor of 32 samples where micro_batch=4 asked for 4; .* samples_in"
    ):
        check_batch(job_of(Fixed()), seed=1)
    with pytest.raises(
        BatchError, match=r"samples_in\(batch\) counts 5 samples where micro_batch=4 asked for 4"
    ):
        check_batch(job_of(Columns(columns=5)), seed=1)


def test_other_data_for_the_same_numbers_is_flagged() -> None:
    assert check_batch(job_of(Whims()), seed=1) == ["unrepeatable"]
    assert "unrepeatable" in FLAG_MEANINGS


class Closed(Tensor):
    """Does not say what is in it."""

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is Tensor.cpu:
            raise TypeError("closed")
        return super().__torch_function__(function, types, args, kwargs or {})


UNREADABLE: dict[str, Callable[[Tensor], Tensor]] = {
    "meta": lambda tensor: tensor.to("meta"),
    "sparse meta": lambda tensor: tensor.to_sparse().to("meta"),
    "oneDNN": lambda tensor: tensor.to_mkldnn(),  # type: ignore[operator]  # torch's stub has it as a property
    "nested meta": lambda tensor: torch.nested.as_nested_tensor(
        [*tensor.to("meta")], layout=torch.jagged
    ),
    "class of its own": lambda tensor: tensor.as_subclass(Closed),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_what_can_not_be_read_of_a_batch_costs_no_trial_and_differs_by_its_shape(kind: str) -> None:
    @dataclass(frozen=True)
    class Unreadable(Whims):
        """Gives other data at each call, which nobody sees."""

        def batch(self, samples: range, device: torch.device) -> Any:
            return UNREADABLE[kind](super().batch(samples, device))

    assert check_batch(job_of(Unreadable()), seed=1) == []
    small, large, other = (UNREADABLE[kind](torch.rand(rows, 3)) for rows in (2, 4, 2))
    assert digest_of(small) == digest_of(other) != digest_of(large)
    # What can be read beside it counts.
    assert digest_of([small, torch.ones(1)]) != digest_of([small, torch.zeros(1)])


@pytest.mark.parametrize(
    ("weight", "found"),
    [
        ("many", "'many'"),
        (None, "None"),
        (-1, "-1"),
        (float("nan"), "nan"),
        (torch.ones(3), r"a Tensor of shape \(3,\)"),
    ],
)
def test_a_weight_that_is_no_number_is_refused_before_anything_is_measured(
    weight: Any, found: str
) -> None:
    @dataclass(frozen=True)
    class Weighs(Block):
        def weight(self, batch: Tensor) -> Any:
            return weight

    with pytest.raises(BatchError, match=rf"weight\(batch\) gave {found}; it must return a number"):
        check_batch(job_of(Weighs()), seed=1)


@pytest.mark.parametrize(
    "weight", [0, 2.5, np.int64(3), np.array(6), torch.tensor(4), torch.tensor([5.0])]
)
def test_a_weight_is_any_number_of_at_least_0(weight: Any) -> None:
    @dataclass(frozen=True)
    class Weighs(Block):
        def weight(self, batch: Tensor) -> Any:
            return weight

    assert check_batch(job_of(Weighs()), seed=1) == []


def test_a_digest_is_of_values_types_and_shapes() -> None:
    ones = torch.ones(2, 4)
    others = [
        ones.clone(),
        torch.ones(4, 2),
        ones.double(),
        torch.ones(2, 4, dtype=torch.int32),
        ones.T.contiguous().T,
    ]
    assert [digest_of([ones]) == digest_of([other]) for other in others] == [
        True,
        False,
        False,
        False,
        True,
    ]
    assert digest_of({"a": ones.to_sparse()}) == digest_of([torch.ones(2, 4).to_sparse()])
    kinds = [
        torch.tensor(1.0),
        torch.tensor([True]),
        torch.ones(2, dtype=torch.complex64),
        torch.zeros(0, 3),
    ]
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    assert len({digest_of(kind) for kind in [*kinds, nested, ones.bfloat16()]}) == 6
    again = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    assert digest_of(nested) == digest_of(again)
    assert digest_of(torch.full((2,), float("nan"))) == digest_of(torch.full((2,), float("nan")))
    assert len(list(tensors_in(Nested().batch(range(2), torch.device("cpu"))))) == 3


@pytest.mark.parametrize(
    ("workload", "workers", "optimizer", "is_counted"),
    [
        (Block(), 2, None, True),
        (ByHand(), 1, None, True),
        (ByHand(), 2, "AdamW", True),
        (ByHand(), 2, "ZeroRedundancyOptimizer", False),
        (ByHand(), 2, None, False),
    ],
)
def test_an_optimizer_that_may_ask_other_ranks_is_not_stepped_by_one_alone(
    workload: Any, workers: int, optimizer: str | None, is_counted: bool
) -> None:
    assert _steps_alone(Point(workload=workload, workers=workers), optimizer) == is_counted
