"""What is seen of a user's training loop after its window, on two ranks with real exchanges."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed, nn
from torch.distributed import distributed_c10d
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from dtsweep.hardware.readiness import free_memory_bytes
from dtsweep.loops import own_after
from dtsweep.loops.own_checks import OTHER_PARTS, Judge, likeness, ranks_per_model
from dtsweep.loops.own_facts import COMPILED, NO_MODEL, ForwardWatch
from dtsweep.loops.own_loop import ENDED, OwnLoop
from dtsweep.measure.stopping import LEAST_STEPS
from dtsweep.measure.store_group import GaveUpError, StoreGroup
from dtsweep.metrics.rank_result import Measured
from dtsweep.metrics.summary import columns_of_steps
from dtsweep.metrics.window_view import mark_warmup
from dtsweep.worker.copies import part_of
from dtsweep.worker.exchange_cost import room_bytes
from dtsweep.worker.gradients import collectives
from dtsweep.worker.rank import become_rank
from tests.loops.test_own_loop import CPU, MEASURE, WORKLOAD, task
from tests.ranks import spawn

STEPS = 30
SAME = TensorDataset(torch.ones(64, 4))
DATA = TensorDataset(torch.randn(64, 4, generator=torch.Generator().manual_seed(0)))
CALLS: list[int | None] = []
"""Collectives before each batch of the loop under way."""


def batches(data: TensorDataset = DATA, *, is_distributed: bool = True) -> Iterator[torch.Tensor]:
    """Batches of this rank without end, with a loader as people write it."""
    sampler = DistributedSampler(data) if is_distributed else None
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    for (batch,) in itertools.chain.from_iterable(itertools.repeat(loader)):
        time.sleep(0.002)
        CALLS.append(collectives())
        yield batch


def model_of_layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def wrapped() -> DistributedDataParallel:
    return DistributedDataParallel(model_of_layers())


Hook = Callable[[nn.Module], object]


def train(
    model: nn.Module,
    *,
    before: Hook = lambda _: None,
    after: Hook = lambda _: None,
    optimizer: torch.optim.Optimizer | None = None,
    steps: int | None = None,
    **other: Any,
) -> None:
    """A loop as people write it, with hooks before and after a step of the optimizer."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in itertools.islice(batches(**other), steps):
        optimizer.zero_grad()
        model(batch).float().square().mean().backward()
        before(model)
        optimizer.step()
        after(model)


def ddp() -> None:
    train(wrapped())


def ddp_compressed() -> None:
    model = wrapped()
    model.register_comm_hook(None, fp16_compress_hook)
    train(model)


def accumulating() -> None:
    """Only the last of three passes exchanges."""
    model = wrapped()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number, batch in enumerate(batches()):
        is_last = number % 3 == 2
        with nullcontext() if is_last else model.no_sync():
            model(batch).square().mean().backward()
        if is_last:
            optimizer.step()
            optimizer.zero_grad()


def sharded() -> None:
    model = model_of_layers()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    fully_shard(model[0], mp_policy=policy)  # type: ignore[index]  # a Sequential
    fully_shard(model, mp_policy=policy)
    train(
        model,
        before=lambda model: nn.utils.clip_grad_norm_(model.parameters(), 1.0),
        optimizer=torch.optim.AdamW(model.parameters(), lr=0.01),
    )


def zero1() -> None:
    # Its module compiles code when it is imported.
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = wrapped()
    train(model, optimizer=ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.01))


def local_sgd() -> None:
    """Every fifth step averages parameters."""
    model, numbers = model_of_layers(), itertools.count()

    def average(model: nn.Module) -> None:
        if next(numbers) % 5 == 0:
            for parameter in model.parameters():
                distributed.all_reduce(parameter.data)
                parameter.data /= 2

    train(model, after=average, optimizer=torch.optim.SGD(model.parameters(), lr=1e-5))


def adversarial(*models: nn.Module) -> None:
    optimizers = [torch.optim.Adam(model.parameters(), lr=1e-3) for model in models]
    for batch in batches():
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()


def in_tensor_parallel() -> None:
    """Both ranks load the same batches, for parts of one model."""
    model = model_of_layers()
    plan: Any = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    parallelize_module(model, init_device_mesh("cpu", (2,)), plan)
    train(model, is_distributed=False)


def in_own_shards() -> None:
    """As DeepSpeed's ZeRO: the optimizer has a shard of each group, and steps once for each."""
    model = wrapped()
    rank = distributed.get_rank()
    parameters = [p for p in model.parameters() if p.numel() % 2 == 0]
    shards = [nn.Parameter(p.detach().reshape(2, -1)[rank].clone()) for p in parameters]
    optimizer = torch.optim.SGD([{"params": [shard]} for shard in shards], lr=0.01)
    groups = optimizer.param_groups
    for batch in batches():
        model.zero_grad()
        model(batch).square().mean().backward()
        for group, shard, parameter in zip(groups, shards, parameters, strict=True):
            assert parameter.grad is not None
            shard.grad = parameter.grad.reshape(2, -1)[rank].clone()
            optimizer.param_groups = [group]
            optimizer.step()
            parts = [torch.empty_like(shard) for _ in range(2)]
            distributed.all_gather(parts, shard.detach())
            parameter.data = torch.stack(parts).reshape(parameter.shape)
        optimizer.param_groups = groups


def of_gradients(value: float) -> None:
    """All gradients are this value after the exchange."""
    train(wrapped(), before=lambda model: [p.grad.fill_(value) for p in model.parameters()])  # type: ignore[union-attr]  # they have one


def cleared() -> None:
    """Gradients are gone when the optimizer has stepped."""
    model = wrapped()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer.register_step_post_hook(lambda *_: optimizer.zero_grad())
    train(model, optimizer=optimizer)


def failing() -> None:
    """Rank 1 fails in a step without the exchange."""
    model = wrapped()

    def fail(*_: object) -> None:
        if distributed.get_rank() and not model.require_backward_grad_sync:
            raise ValueError("mine")

    model.module.register_forward_hook(fail)
    train(model)


LOOPS: dict[str, Callable[[], None]] = {
    "ddp": ddp,
    "ddp_of_same_batches": lambda: train(wrapped(), data=SAME, is_distributed=False),
    "same_batches_alone": lambda: train(model_of_layers(), data=SAME, is_distributed=False),
    "ddp_compressed": ddp_compressed,
    "accumulating": accumulating,
    "sharded": sharded,
    "zero1": zero1,
    "local_sgd": local_sgd,
    "alone": lambda: train(model_of_layers()),
    # Parameters part, although something is exchanged.
    "alone_with_a_mean_loss": lambda: train(
        model_of_layers(), before=lambda _: distributed.all_reduce(torch.ones(1))
    ),
    "of_two_stages": lambda: train(nn.Linear(4, 1 + distributed.get_rank())),
    "cleared": cleared,
    "in_tensor_parallel": in_tensor_parallel,
    "in_own_shards": in_own_shards,
    "not_finite": lambda: of_gradients(torch.nan),
    "of_zeros": lambda: of_gradients(0.0),
    "adversarial": lambda: adversarial(wrapped(), wrapped()),
    "half adversarial": lambda: adversarial(wrapped(), model_of_layers()),
    "precise": ddp,
    "precise sharded": sharded,
    "off": ddp,
    "failing": failing,
    "ended": lambda: train(wrapped(), steps=MEASURE.warmup_steps + LEAST_STEPS),
}

USUAL: dict[str, Any] = {"min_steps": STEPS}
SETTINGS: dict[str, dict[str, Any]] = {
    # Rounds after a window take half of `max_seconds` at most.
    "precise": {"exchange": "precise", "max_seconds": 2},
    "precise sharded": {"exchange": "precise", "max_seconds": 2},
    "off": {"exchange": "off"},
}


def measure_on(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = distributed.FileStore(str(folder / "agree"), 2)  # type: ignore[attr-defined]  # missing in torch's stub
    context = become_rank(rank, CPU, workload=WORKLOAD, own_variables=())
    # The loop whose parameters part is looked at for so long.
    own_after.CHECKED_S = 0.3
    sent, calls = {}, {}
    forward = DistributedDataParallel.forward
    for case, loop in LOOPS.items():
        keys = distributed_c10d.PrefixStore(case, store)
        group = StoreGroup(keys, rank=rank, workers=2, timeout_s=60)
        distributed.init_process_group(
            "gloo", init_method=f"file://{folder}/{case}", rank=rank, world_size=2
        )
        job = task(2, **(USUAL | SETTINGS.get(case, {})))
        CALLS.clear()
        sent[case] = OwnLoop(job, context, group).run(loop)
        calls[case] = [*CALLS, collectives()]
        distributed.destroy_process_group()
    assert DistributedDataParallel.forward is forward
    torch.save((sent, calls), folder / f"{rank}.pt")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What each rank measured, and its collectives before each batch."""
    folder = tmp_path_factory.mktemp("own")
    spawn(measure_on, args=(folder,), nprocs=2)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]


Sent = list[dict[str, Measured]]
"""What each rank measured, by the loop's name."""


@pytest.fixture
def sent(ran: list[Any]) -> Sent:
    return [measured for measured, _ in ran]


def row_of(ranks: list[Measured]) -> dict[str, Any]:
    """Columns of the trial that are made from steps."""
    point = task(2).point
    nodes = ["a"] * len(ranks)
    return columns_of_steps(point, mark_warmup(point, ranks), nodes=nodes, wanted=None)


@pytest.mark.parametrize(
    ("case", "semantics", "gradients_agree", "reason"),
    [
        ("ddp", "exact", True, None),
        ("accumulating", "exact", True, None),
        ("adversarial", "exact", True, None),
        ("zero1", "exact", True, None),
        ("sharded", "exact", None, "each worker has a share of every gradient"),
        ("ddp_compressed", "lossy", True, None),
        ("ddp_of_same_batches", "exact", True, "all workers loaded the same batches"),
        ("same_batches_alone", "not_exchanged", True, "needs use_cpu=True"),
        ("in_tensor_parallel", "exact", True, None),
        ("in_own_shards", "exact", None, "the model's own are equal"),
        ("not_finite", "exact", True, "gradients are not finite"),
        ("of_zeros", "exact", True, "all gradients are zeros"),
        ("local_sgd", "local", False, "gradients differ between workers, and parameters are equal"),
        ("alone", "not_exchanged", False, "no collective was called"),
        ("alone_with_a_mean_loss", "not_exchanged", False, "collectives in it: "),
        ("half adversarial", "unknown", False, "gradients of 4 of 8 parameters differ"),
        ("of_two_stages", "unknown", None, "workers' optimizers have different parameters"),
        ("cleared", "exact", None, "the optimizer has no gradients after its step"),
    ],
)
def test_semantics_are_what_gradients_and_parameters_show(
    sent: Sent, case: str, semantics: str, gradients_agree: bool | None, reason: str | None
) -> None:
    for of_rank in sent:
        measured = of_rank[case]
        assert (measured.semantics, measured.gradients_agree) == (semantics, gradients_agree)
        assert (measured.gradients_reason is None) == (reason is None)
        assert (reason or "") in str(measured.gradients_reason)


@pytest.mark.parametrize(
    ("case", "size", "flags"),
    [
        ("ddp", 1, []),
        ("ddp_of_same_batches", 1, ["same_batches"]),
        ("in_tensor_parallel", 2, []),
        ("sharded", 1, []),
    ],
)
def test_ranks_that_load_the_same_batches_share_a_model_or_are_flagged(
    sent: Sent, case: str, size: int, flags: list[str]
) -> None:
    for of_rank in sent:
        assert (of_rank[case].model_parallel, of_rank[case].flags) == (size, flags)


def rank_of(batches: str | None, *, data_ranks: list[int] | None = None, part: str = "") -> Any:
    return {"batches": batches, "data_ranks": data_ranks, "parts": [part], "shapes": ""}


@pytest.mark.parametrize(
    ("ranks", "sizes"),
    [
        ([rank_of("a"), rank_of("b")], [1, 1]),
        # All parameters are whole: the loader is wrong.
        ([rank_of("a"), rank_of("a")], [1, 1]),
        ([rank_of("a", part="0"), rank_of("a", part="1")], [2, 2]),
        ([rank_of("a", part=str(rank), data_ranks=[0, 1]) for rank in range(2)], [1, 1]),
        (
            [rank_of("aabb"[rank], data_ranks=[rank % 2, rank % 2 + 2]) for rank in range(4)],
            [2] * 4,
        ),
        # Tensor parallel, and the two replicas load the same as well.
        ([rank_of("a", data_ranks=[rank % 2, rank % 2 + 2]) for rank in range(4)], [2] * 4),
        ([rank_of(None), rank_of("a", part="1")], [None, 1]),
    ],
)
def test_equal_batches_are_one_models_unless_their_ranks_exchange_gradients(
    ranks: list[Any], sizes: list[int | None]
) -> None:
    assert ranks_per_model(ranks) == sizes


def test_workers_with_parts_of_a_sequence_exchange_gradients_and_share_a_model() -> None:
    # Two groups of two; FSDP shards over all four.
    ranks = [rank_of("aabb"[rank], data_ranks=[0, 1, 2, 3]) for rank in range(4)]
    assert ranks_per_model(ranks) == [1] * 4
    assert ranks_per_model(ranks, context=2) == [2] * 4


def seen_on(batches: str | None, *, gradients: Sequence[float], **other: Any) -> Any:
    """What a rank sends of a step with these gradients, whose parameters are the same numbers."""
    sums = [(value, abs(value), 9) for value in gradients]
    return {
        **rank_of(batches),
        **{"parts": [""] * len(sums), "model": None, "collectives": 4, "given": len(sums)},
        **{"gradients": sums, "before": sums, "after": sums},
        **other,
    }


@pytest.mark.parametrize(("ranks", "part"), [(None, "rank 3"), (1, ""), (2, "tensor parallel 1")])
def test_a_layer_that_megatron_has_divided_is_a_part(
    ranks: int | None, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = SimpleNamespace(
        model_parallel_is_initialized=lambda: ranks is not None,
        get_tensor_model_parallel_world_size=lambda: ranks,
        get_tensor_model_parallel_rank=lambda: 1,
    )
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", state)
    weight, bias = torch.zeros(4), torch.zeros(1)
    weight.tensor_model_parallel = True
    assert (part_of(weight, rank=3), part_of(bias, rank=3)) == (part, "")


@pytest.mark.parametrize("last", [1.0, 2.0])
@pytest.mark.parametrize(
    ("batches", "data_ranks", "is_shared"),
    [("aa", None, True), ("aabb", None, True), ("abcd", None, False), ("aa", [0, 1], False)],
)
def test_ranks_of_equal_batches_and_other_gradients_may_have_parts_of_a_model(
    batches: str, data_ranks: list[int] | None, is_shared: bool, last: float
) -> None:
    # Megatron's layers are divided without a trace in their parameters; a known wrapper tells.
    ranks = [
        seen_on(loaded, gradients=(1.0 + rank, last**rank), data_ranks=data_ranks)
        for rank, loaded in enumerate(batches)
    ]
    verdict = Judge(may_go_on=False)(ranks)
    assert (verdict["gradients_reason"] == OTHER_PARTS) == is_shared
    assert (verdict["ranks_per_model"] == [None] * len(ranks)) == is_shared
    assert is_shared or "parameters differ" in verdict["gradients_reason"]


@pytest.mark.parametrize(
    ("case", "wrapper", "precision", "rate"),
    [
        ("ddp", "DistributedDataParallel", "fp32", 0.01),
        ("ddp_compressed", "DistributedDataParallel with fp16_compress_hook", "fp32", 0.01),
        ("sharded", "fully_shard", "bf16", 0.01),
        ("local_sgd", "none", "fp32", 1e-5),
    ],
)
def test_facts_are_read_off_the_loops_objects(
    sent: Sent, case: str, wrapper: str, precision: str, rate: float
) -> None:
    measured = sent[0][case]
    assert (measured.loop_wrapper, measured.loop_precision) == (wrapper, precision)
    assert (measured.loop_learning_rate, measured.loop_reason) == (rate, None)
    row = row_of([of_rank[case] for of_rank in sent])
    losses = np.array([of_rank[case].of_part("loss") for of_rank in sent])
    assert np.isfinite(losses).all()
    assert row["loss_last"] == pytest.approx(losses.mean(axis=0)[-1])
    # Of the measured steps, after the warm-up that is found.
    assert np.isclose(losses.mean(axis=0), row["loss_first"]).any()
    # Of the whole model, on each rank.
    assert [of_rank[case].parameters for of_rank in sent] == [49, 49]


@pytest.mark.parametrize("case", ["ddp", "accumulating", "adversarial", "sharded", "precise"])
def test_steps_without_the_exchange_follow_the_window_and_call_no_collective(
    ran: list[Any], case: str
) -> None:
    ranks = [measured[case] for measured, _ in ran]
    silent, other = (len(rank.of_part("step_s", "no_exchange")) for rank in ranks)
    assert silent == other > 0
    row = row_of(ranks)
    assert (row["comm_method"], row["comm_reason"]) == ("difference", None)
    # On a busy machine a few short steps without it may take longer.
    assert row["exchange_share"] < 1
    assert row["exchange_share_low"] < row["exchange_share"] < row["exchange_share_high"]
    for _, calls in ran:
        begun = np.diff(calls[case][:: 3 if case == "accumulating" else 1])
        # Rounds have steps of both kinds in turns.
        if case != "precise":
            assert begun[-silent:].tolist() == [0] * silent
            # The first ones set the model up, and one more leads the turn: it still gathers shards.
            assert (begun[3 : -silent - 2] > 0).all()


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("off", "Measure(exchange='off')"),
        ("alone", "workers exchange nothing"),
        ("local_sgd", "need a model in DistributedDataParallel or fully_shard"),
        ("zero1", "not possible with ZeroRedundancyOptimizer"),
    ],
)
def test_a_share_that_is_unknown_has_a_reason(sent: Sent, case: str, reason: str) -> None:
    row = row_of([of_rank[case] for of_rank in sent])
    assert row["exchange_share"] is None
    assert reason in row["comm_reason"]


@pytest.mark.parametrize("case", ["precise", "precise sharded"])
def test_turns_have_steps_of_both_kinds(sent: Sent, case: str) -> None:
    measured = sent[0][case]
    counts = [len(measured.of_part("step_s", part)) for part in ("exchange", "no_exchange")]
    assert counts[0] == counts[1] >= 4


def test_two_ranks_end_at_the_same_step_also_where_their_loop_ends(sent: Sent) -> None:
    for case, first in sent[0].items():
        second = sent[1][case]
        assert (first.window_steps, first.stop_reason) == (second.window_steps, second.stop_reason)
        assert first.window_steps >= STEPS or case in ("ended", *SETTINGS)
    ended = sent[0]["ended"]
    assert (ended.stop_reason, ended.window_steps) == ("ended", LEAST_STEPS)
    # By the gradients of its first step: it had no more of them.
    assert (ended.semantics, ended.gradients_agree, ended.parameters_agree) == ("exact", True, True)
    assert ended.exchange_reason == ENDED


def test_a_step_after_the_window_that_fails_does_not_cost_the_trial(sent: Sent) -> None:
    for measured in (of_rank["failing"] for of_rank in sent):
        assert measured.window_steps >= STEPS
        assert "mine" in str(measured.exchange_reason) or "rank 1" in str(measured.exchange_reason)
        assert not len(measured.of_part("step_s", "no_exchange"))
    assert sent[0]["failing"].semantics == "exact"


def test_a_part_is_compared_with_its_copies_alone() -> None:
    def sums(norm: float) -> list[list[float]]:
        return [[1.0, norm, 10.0]]

    # Four ranks: two shards, each on two of them.
    parts = [["0"], ["1"], ["0"], ["1"]]
    same = [sums(1.0), sums(2.0), sums(1.0), sums(2.0)]
    assert likeness(same, parts, most=1e-5).agree is True
    assert likeness([*same[:3], sums(2.1)], parts, most=1e-5).agree is False
    # Shards of which nobody has a copy can't be compared.
    assert likeness(same, [["0"], ["1"], ["2"], ["3"]], most=1e-5).agree is None
    assert likeness([sums(0.0)] * 4, parts, most=1e-5).is_empty


def called(model: nn.Module, batch: torch.Tensor) -> object:
    return model(batch)


def facts_of(
    step: Callable[[nn.Module, torch.Tensor], object],
    model: nn.Module,
    trained: nn.Module | None = None,
) -> Any:
    forwards = ForwardWatch()
    optimizer = torch.optim.SGD((trained or model).parameters(), lr=0.01)
    with forwards.watched():
        step(model, torch.ones(2, 4))
    return forwards.facts([optimizer])


def autocast(model: nn.Module, batch: torch.Tensor) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(batch)


def test_the_precision_is_that_of_autocast_or_of_the_parameters() -> None:
    inside = model_of_layers()
    inside.forward = torch.autocast("cpu", dtype=torch.bfloat16)(inside.forward)  # type: ignore[method-assign]  # as Accelerate does
    pure = model_of_layers().bfloat16()
    for step, model, precision in (
        (autocast, model_of_layers(), "bf16"),
        (called, inside, "bf16"),
        (lambda model, batch: model(batch.bfloat16()), pure, "bf16"),
        (called, model_of_layers(), "fp32"),
    ):
        facts = facts_of(step, model)
        assert (facts["loop_precision"], facts["loop_wrapper"]) == (precision, "none")


def test_a_model_has_one_digest_whether_its_parts_are_called_or_the_whole() -> None:
    whole = model_of_layers()
    parts = list(whole.children())

    def part_after_part(model: nn.Module, batch: torch.Tensor) -> None:
        for part in parts:
            batch = part(batch)

    digests = {facts_of(step, whole)["model_digest"] for step in (part_after_part, called)}
    assert len(digests) == 1
    assert None not in digests
    other = nn.Sequential(nn.Linear(4, 3))
    assert facts_of(called, other)["model_digest"] not in digests
    # Also of parameters that the optimizer does not have.
    assert facts_of(called, whole, parts[2])["parameters"] == 49


def test_what_is_not_seen_is_unknown_with_the_reason() -> None:
    by_hand = facts_of(lambda model, batch: batch @ model[0].weight.T, model_of_layers())  # type: ignore[index]  # a Sequential
    assert "loop_precision" not in by_hand
    assert by_hand["loop_reason"] == NO_MODEL

    model = model_of_layers()
    compiled = torch.compile(model, backend="eager")
    compiled(torch.ones(2, 4))
    with pytest.warns(UserWarning, match="global hooks"):
        compiled_facts = facts_of(lambda _, batch: compiled(batch), model)
        assert (compiled_facts["loop_precision"], compiled_facts["loop_reason"]) == (None, COMPILED)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            under_autocast = facts_of(lambda _, batch: compiled(batch), model)
    assert under_autocast["loop_precision"] == "bf16"


@pytest.mark.parametrize(
    ("rank_1", "collectives", "batches", "semantics"),
    [
        (2.0, 4, "ab", "exact"),
        # Equal gradients of parameters that did not begin as the same.
        (3.0, 4, "ab", "unknown"),
        (2.0, 0, "aa", "not_exchanged"),
        (2.0, 0, (None, None), "not_exchanged"),
        # Whether they called collectives is not known.
        (2.0, None, "aa", "exact"),
    ],
)
def test_equal_gradients_are_exact_unless_parameters_or_batches_tell_otherwise(
    rank_1: float, collectives: int | None, batches: Sequence[str | None], semantics: str
) -> None:
    parameters = [[(value, value, 1.0)] for value in (2.0, rank_1)]
    ranks = [
        seen_on(digest, gradients=[1.0], collectives=collectives, before=own, after=own)
        for own, digest in zip(parameters, batches, strict=True)
    ]
    assert Judge()(ranks)["semantics"] == semantics


def test_ranks_decide_together_unless_one_gives_up() -> None:
    store = distributed.HashStore()  # type: ignore[attr-defined]  # missing in torch's stub
    groups = [StoreGroup(store, rank=rank, workers=2, timeout_s=60) for rank in range(2)]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda group: group.decided(group.rank + 1, sum), groups)) == [3, 3]
        # Large values do not stay.
        assert not store.check(["1/1"])
        waiting = pool.submit(groups[0].decided, 1, sum)
        groups[1].give_up("no data")
        with pytest.raises(GaveUpError, match="no data"):
            waiting.result()


def test_a_rank_has_the_room_of_its_own_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    room = room_bytes(torch.device("cpu"), workers=64)
    # Of two workers here, whatever the size of the world; other processes take some in between.
    assert room > free_memory_bytes() / 4
