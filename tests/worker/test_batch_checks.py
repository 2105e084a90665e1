"""Checks that a trial trained on the batches asked for and exchanged gradients, on two ranks."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, distributed, nn

from dtsweep.results.statuses import FLAG_MEANINGS
from dtsweep.sweep.point import Point
from dtsweep.sync.mode import Job
from dtsweep.worker import gradients
from dtsweep.worker.batch_checks import BatchError, check_batch, digest_of, tensors_in
from dtsweep.worker.copies import RankSums, gradients_judged, parameters_judged
from dtsweep.worker.gradients import _sums_and_norms
from tests.sharded import Descent, ShardedOptimizer
from tests.sync.test_awkward_models import Applied
from tests.worker.on_ranks import Trials, run_trials, window

WORKERS = 2
SHORT = window(4, max_steps=8, max_seconds=0.4)
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
        used = inner if self.goes_round == "all" else model
        answer: Tensor = used(batch).square().mean()
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


@dataclass(frozen=True)
class OwnDescent(Block):
    noise: float = 0.0

    def optimizer(self, parameters: Any, learning_rate: float) -> Any:
        return Descent(parameters, self.noise)


def rewrite(layer: nn.Module, inputs: tuple[Tensor]) -> None:
    """Scale a weight by what the layer has seen."""
    with torch.no_grad():
        layer.weight.mul_(1 - 1e-3 * inputs[0].mean())  # type: ignore[operator]  # a tensor


@dataclass(frozen=True)
class Rewrites(Block):
    def build(self) -> nn.Module:
        layer = nn.Linear(8, 1)
        layer.register_forward_pre_hook(rewrite)
        return layer


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
            kind = MemoryError if self.fault == "full" else IndexError
            raise kind(f"{self.fault}\nof all")
        return super().batch(samples, device)


@dataclass(frozen=True)
class Branches(Block):
    """Takes a layer that depends on the batch: others on each worker, and from step to step."""

    ddp_options: ClassVar = {"find_unused_parameters": True}

    def build(self) -> nn.Module:
        layers = nn.ModuleList(nn.Linear(8, 1) for _ in range(2))
        return Applied(lambda of, batch: of.layers[int(batch[0, 0]) % 2](batch), layers=layers)


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


WORKLOADS: dict[str, Any] = {
    **{name: Block() for name in ("honest", "local")},
    **{name: Stops(fault="the end") for name in ("stops", "stops alone")},
    **{f"fails {where}": Diverges(where=where) for where in FAILS[:-1]},
    **{name: Rewrites() for name in ("parts by forward", "parts by forward in ring")},
    "fails in a quick turn": Diverges(where="first"),
    "stops full": Stops(fault="full"),
    "same batch": Block(same_batch=True),
    "ends": Ends(),
    "branches": Branches(),
    "sharded": Sharded(),
    "shuffled": Shuffled(),
    "own descent": OwnDescent(),
    "round with own descent": OwnDescent(goes_round="all"),
    "parts by noise": OwnDescent(noise=1e-3),
    "parts before the end": RoundFirst(),
    "beside": Block(goes_round="beside"),
}
LOCAL: dict[str, Any] = {"sync": "local_sgd", "sync_period": 2}
FIELDS: dict[str, dict[str, Any]] = {
    "stops alone": LOCAL,
    "local": LOCAL,
    "parts by forward in ring": {"sync": "ring"},
}


def points() -> dict[str, Point]:
    fields = {name: {"workload": each, **FIELDS.get(name, {})} for name, each in WORKLOADS.items()}
    for rate, precision in ((1e-2, "bf16"), (0.0, "fp32")):
        usual: dict[str, Any] = {"learning_rate": rate, "precision": precision}
        fields[f"honest {rate} {precision}"] = {"workload": Block(), **usual}
        fields[f"round {rate} {precision}"] = {"workload": Block(goes_round="all"), **usual}
    return {
        name: Point(**{"workers": WORKERS, "micro_batch": 4, "sync": "ddp", **each})
        for name, each in fields.items()
    }


@pytest.fixture(scope="module")
def trials() -> Trials:
    cases = {}
    for case, point in points().items():
        measure = EXACT if case.startswith(("stops", "fails", "parts before")) else SHORT
        if case not in QUICK:
            measure = replace(measure, exchange="precise")
        cases[case] = (measure, point)
    return run_trials(cases)


@pytest.mark.parametrize("case", [name for name in points() if name.startswith("round")])
def test_gradients_that_were_not_exchanged_are_found_at_any_learning_rate_and_precision(
    trials: Trials, case: str
) -> None:
    status, reason = trials.failure(case)
    assert status == "wrong_gradient"
    words = "rank 0: gradients of 6 of 6 parameters differ between workers by up to .*call model"
    assert re.match(words, str(reason))


@pytest.mark.parametrize("case", [name for name in points() if name.startswith("parts")])
def test_parameters_that_part_are_found(trials: Trials, case: str) -> None:
    status, reason = trials.failure(case)
    assert status == "wrong_parameters"
    assert re.match(r"rank 0: \d of \d parameters differ between workers by up to ", str(reason))
    assert "a loss that did not always call model(...) itself" in str(reason)
    for measured in trials.measured(case):
        assert (measured.gradients_agree, measured.parameters_agree) == (True, False)


def test_data_that_ran_out_is_found_after_the_window(trials: Trials) -> None:
    status, reason = trials.failure("ends")
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
    ],
)
def test_a_batch_that_fails_after_the_window_on_one_rank_keeps_no_other_waiting(
    trials: Trials, case: str, status: str, reason: str
) -> None:
    assert trials.failure(case) == (status, f"{reason} (after the window)")
    for measured in trials.measured(case):
        # What was measured is kept, and nothing follows it.
        assert measured.steps["part"].tolist() == ["warmup"] * 2 + ["window"] * 8
        assert measured.exchange_isolated_s is None
    assert trials.results[case][0].status == "ok"


@pytest.mark.parametrize(
    "case", [name for name in points() if not name.startswith(("round", "parts", "ends", "stops"))]
)
def test_nothing_else_is_accused(trials: Trials, case: str) -> None:
    assert trials.failure(case) == ("ok", None)
    # Equal batches can have equal gradients without an exchange, too; local updates are each
    # worker's own.
    agree = None if case in ("same batch", "local", "fails compared") else True
    for measured in trials.measured(case):
        assert measured.gradients_agree is agree
        assert measured.parameters_agree or case.startswith("fails")


@pytest.mark.parametrize("case", [f"fails {where}" for where in FAILS])
def test_a_step_that_fails_after_the_window_costs_what_follows_alone(
    trials: Trials, case: str
) -> None:
    measured = trials.measured(case)
    (reason,) = {rank.exchange_reason for rank in measured}
    ranks = range(WORKERS) if case.removeprefix("fails ") in ALIKE else [WORKERS - 1]
    assert reason in [
        f"a step after the window failed on rank {rank}: FloatingPointError: far" for rank in ranks
    ]
    assert all(set(rank.steps["part"]) == {"warmup", "window"} for rank in measured)


def test_steps_without_the_exchange_leave_none_to_the_next_that_ddp_asks_for(
    trials: Trials,
) -> None:
    for measured in trials.measured("branches"):
        assert {"exchange", "no_exchange"} <= set(measured.steps["part"])
        assert measured.exchange_reason is None


@pytest.mark.parametrize(
    ("other", "same_gradients", "same_parameters"),
    [
        (lambda sums: sums.clone(), True, True),
        (lambda sums: sums * (1 + 1e-7), True, True),
        (lambda sums: sums * torch.tensor([1, 1.01, 1]), False, False),
        # By the norm, and of a gradient by the root of the number of its elements.
        (lambda sums: sums + torch.tensor([1.0, 0, 0]), False, False),
        (lambda sums: sums + torch.tensor([1.2e-5, 0, 0]), True, False),
        (lambda sums: sums[:1], None, None),
        (lambda _: None, None, None),
    ],
    ids=["equal", "rounded", "norms", "sums", "sums of small values", "fewer", "unreadable"],
)
def test_sums_and_norms_are_compared_parameter_by_parameter(
    other: Any, same_gradients: bool | None, same_parameters: bool | None
) -> None:
    sums = torch.tensor([[3.0, 2.0, 100], [-1.0, 0.5, 10]], dtype=torch.float64)
    ranks = [
        rank_sums(digest, gradients=own, parameters=own)
        for digest, own in ((b"a", sums), (b"b", other(sums)))
    ]
    for (agree, reason), expected in (
        (gradients_judged(ranks), same_gradients),
        (parameters_judged(ranks), same_parameters),
    ):
        assert agree is expected
        assert (reason is None) is (expected is True)


def test_sums_and_norms_are_exact_however_a_gradient_is_divided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gradients, "_CHUNK", 7)
    layer, table, frozen = nn.Linear(5, 4), nn.Embedding(6, 3, sparse=True), nn.Linear(2, 2)
    for output in (layer(torch.randn(8, 5)), table(torch.tensor([1, 1, 4]))):
        output.square().sum().backward()
    parameters = [*layer.parameters(), *table.parameters(), *frozen.parameters()]
    found = _sums_and_norms([p.grad for p in parameters], counts=[p.numel() for p in parameters])
    dense = [torch.zeros_like(p) if p.grad is None else p.grad.to_dense() for p in parameters]
    for row, each in zip(found.tolist(), dense, strict=True):
        sums = [float(each.double().sum()), float(each.double().norm()), each.numel()]
        assert row == pytest.approx(sums, rel=1e-12)


def test_without_a_gradient_nothing_can_be_told() -> None:
    for value in (0.0, float("nan")):
        sums = torch.tensor([[value, value, 4]] * 2, dtype=torch.float64)
        ranks = [rank_sums(digest, gradients=sums) for digest in (b"a", b"b")]
        assert gradients_judged(ranks) == (None, "the optimizer was given no gradient")


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
    alone = [rank_sums(parameters=low, parts=[part, part]) for part in "01"]
    assert parameters_judged(alone) == (None, None)


def rank_sums(
    digest: bytes = b"",
    *,
    gradients: torch.Tensor | None = None,
    parameters: torch.Tensor | None = None,
    parts: Sequence[str] = ("", ""),
) -> RankSums:
    sums: Any = {"gradients": gradients, "parameters": parameters}
    return RankSums(model_rank=0, digest=digest, parts=parts, tolerances=[1e-5] * 2, **sums)


def job_of(workload: Any, **fields: Any) -> Job:
    point = Point(**{"workload": workload, "micro_batch": 4, **fields})
    return Job(point=point, rank=0, device=torch.device("cpu"), loss=workload.loss)


@pytest.mark.parametrize("workload", [Block(), Columns(), Nested(), Augmented()])
def test_a_batch_of_the_samples_that_were_asked_for_is_accepted(workload: Any) -> None:
    assert check_batch(job_of(workload), seed=1) == []


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        (Fixed(), "a tensor of 32 samples where micro_batch=4 asked for 4; .* samples_in"),
        (Columns(columns=5), r"samples_in\(batch\) counts 5 samples where micro_batch=4 asked"),
    ],
)
def test_a_batch_of_another_size_is_refused_with_both_numbers_and_the_axis(
    workload: Any, words: str
) -> None:
    with pytest.raises(BatchError, match=words):
        check_batch(job_of(workload), seed=1)


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


@dataclass(frozen=True)
class Weighs(Block):
    """Has the same weight for each batch."""

    gives: Any = None

    def weight(self, batch: Tensor) -> Any:
        return self.gives


@pytest.mark.parametrize(
    ("weight", "found"),
    [("many", "'many'"), (-1, "-1"), (np.nan, "nan"), (torch.ones(3), r"a Tensor of shape \(3,\)")],
)
def test_a_weight_that_is_no_number_is_refused_before_anything_is_measured(
    weight: Any, found: str
) -> None:
    with pytest.raises(BatchError, match=rf"weight\(batch\) gave {found}; it must return a number"):
        check_batch(job_of(Weighs(gives=weight)), seed=1)


def test_a_weight_is_any_number_of_at_least_0() -> None:
    for weight in (0, 2.5, np.int64(3), np.array(6), torch.tensor(4), torch.tensor([5.0])):
        assert check_batch(job_of(Weighs(gives=weight)), seed=1) == []


def test_a_digest_is_of_values_types_and_shapes() -> None:
    def nested() -> Tensor:
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)

    ones = torch.ones(2, 4)
    for same in (ones.clone(), ones.T.contiguous().T):
        assert digest_of([ones]) == digest_of([same])
    for other in (torch.ones(4, 2), ones.double(), torch.ones(2, 4, dtype=torch.int32)):
        assert digest_of([ones]) != digest_of([other])
    assert digest_of({"a": ones.to_sparse()}) == digest_of([torch.ones(2, 4).to_sparse()])
    kinds = [torch.tensor(1.0), torch.tensor([True]), torch.ones(2, dtype=torch.complex64)]
    kinds += [torch.zeros(0, 3), nested(), ones.bfloat16()]
    assert len({*map(digest_of, kinds)}) == 6
    assert digest_of(nested()) == digest_of(nested())
    assert digest_of(torch.full((2,), float("nan"))) == digest_of(torch.full((2,), float("nan")))
    assert len(list(tensors_in(Nested().batch(range(2), torch.device("cpu"))))) == 3
