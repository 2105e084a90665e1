"""Workers that share a model: tensor and pipeline parallel, with data parallel around them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.distributed.pipelining import schedules
from torch.distributed.tensor import DTensor

from dtsweep.measure.clock import CpuClock
from dtsweep.sweep.constraints import impossible
from dtsweep.sweep.point import Point
from dtsweep.sync.passes import batches_of_steps, make_optimizer
from dtsweep.sync.pipeline import Pipeline, Stage, stages_of
from dtsweep.workloads import Cifar10Cnn, Gpt, Transformers
from tests.contract.loop import Loop
from tests.contract.regression import job_of
from tests.ranks import results_of
from tests.worker.on_ranks import Trials, run_trials, window

STEPS = 4
CLIP_NORM = 0.1
"""Less than the norm of every step's gradient."""

TWO = [
    {"tensor_parallel": 2},
    {"tensor_parallel": 2, "sequence_parallel": True, "clip_norm": CLIP_NORM, "accumulation": 2},
    {"pipeline_parallel": 2, "pipeline_schedule": "gpipe", "accumulation": 3},
    {"pipeline_parallel": 2, "accumulation": 4, "clip_norm": CLIP_NORM},
    {"pipeline_parallel": 2, "pipeline_schedule": "interleaved", "accumulation": 2},
    {"pipeline_parallel": 2, "pipeline_schedule": "zero_bubble", "accumulation": 4},
]
FOUR = [
    {"tensor_parallel": 2, "sync": sync, "accumulation": 2, "clip_norm": CLIP_NORM, **more}
    for sync, more in (("ddp", {}), ("fsdp", {"sequence_parallel": True}), ("fsdp_grad", {}))
]
FOUR += [
    {"pipeline_parallel": 2, "sync": sync, "accumulation": 2, "clip_norm": CLIP_NORM}
    for sync in ("ddp", "fsdp")
]
EIGHT = [
    {"tensor_parallel": 2, "pipeline_parallel": 2, "accumulation": 2, "sync": sync, **more}
    for sync, more in (("ddp", {"sequence_parallel": True}), ("fsdp", {"clip_norm": CLIP_NORM}))
]
CASES: dict[int, list[dict[str, Any]]] = {2: TWO, 4: FOUR, 8: EIGHT}
"""Fields of points by the number of workers."""


@dataclass(frozen=True)
class Doubles(Gpt):
    """A decoder in float64."""

    layers: int = 4
    width: int = 16
    sequence: int = 8
    heads: int = 4
    vocabulary: int = 32

    def build(self) -> nn.Module:
        return super().build().double()


def point_of(workers: int, fields: dict[str, Any], micro_batch: int = 2) -> Point:
    point = Point(
        workers=workers,
        micro_batch=micro_batch,
        optimizer="adamw",
        learning_rate=0.02,
        workload=Doubles(),
        **fields,
    )
    assert impossible(point) is None
    return point


def train(rank: int, workers: int) -> list[tuple[list[float | None], int]]:
    """Losses of a rank's steps, and the bytes of its parameters and optimizer state, by case."""
    return [losses_and_bytes(point_of(workers, fields), rank) for fields in CASES[workers]]


def losses_and_bytes(point: Point, rank: int) -> tuple[list[float | None], int]:
    torch.manual_seed(0)
    loop = Loop(job_of(point, rank), point.workload.build())
    losses = [None if loss is None else float(loss) for loss in loop.run(STEPS)]
    mode: Any = loop.mode
    state = [value for one in mode._optimizer.state.values() for value in one.values()]
    held = [*mode._model.parameters(), *(value for value in state if value.dim())]
    own = [each.to_local() if isinstance(each, DTensor) else each for each in held]
    loop.mode.close()
    return losses, sum(each.nbytes for each in own)


@functools.cache
def alone(groups: int, accumulation: int, clip_norm: float | None) -> list[float]:
    """Losses of one process that trains on the samples of all groups."""
    fields = {"accumulation": accumulation}
    point = point_of(1, fields, micro_batch=2 * groups)
    torch.manual_seed(0)
    model = point.workload.build()
    optimizer = make_optimizer(model.parameters(), point=point)
    steps = batches_of_steps(job_of(point, 0))
    losses = []
    for _ in range(STEPS):
        total = 0.0
        for batch in next(steps):
            loss = point.workload.loss(model, batch) / accumulation
            loss.backward()
            total += loss.item()
        if clip_norm is not None:
            assert nn.utils.clip_grad_norm_(model.parameters(), clip_norm) > clip_norm
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return losses


@functools.cache
def trained(workers: int) -> list[list[tuple[list[float | None], int]]]:
    return results_of(train, workers, workers=workers)


@pytest.mark.parametrize(
    "workers", [2, pytest.param(4, marks=pytest.mark.slow), pytest.param(8, marks=pytest.mark.slow)]
)
def test_workers_that_share_a_model_train_as_one_process_does(workers: int) -> None:
    for number, fields in enumerate(CASES[workers]):
        point = point_of(workers, fields)
        expected = alone(point.data_parallel, point.accumulation, point.clip_norm)
        losses = [ranks[number][0] for ranks in trained(workers)]
        groups = [
            next(one for one in losses[first : first + point.grid.model] if one[0] is not None)
            for first in range(0, workers, point.grid.model)
        ]
        for step, loss in enumerate(expected):
            mean = sum(float(one[step] or 0) for one in groups) / point.data_parallel
            assert mean == pytest.approx(loss, rel=1e-12), (fields, step)


def test_a_worker_holds_its_share_of_layers_and_stages() -> None:
    by_case = dict(zip(map(str, TWO), zip(*trained(2), strict=True), strict=True))
    width, layers = 16, 4
    norms, embedding, output = 2 * 2 * width, 32 * width + 8 * width, 32 * width
    matrices = 12 * width**2
    divided_biases, whole_biases = 7 * width, 2 * width
    # Parameters and the two states of AdamW, of eight bytes each.
    layer = matrices // 2 + divided_biases // 2 + whole_biases + norms
    expected = 24 * (layers * layer + embedding + output // 2 + 2 * width)
    assert [held for _, held in by_case[str(TWO[0])]] == [expected, expected]
    stage = 2 * (matrices + divided_biases + whole_biases + norms)
    first, last = 24 * (stage + embedding), 24 * (stage + 2 * width + output)
    assert [held for _, held in by_case[str(TWO[3])]] == [first, last]


@functools.cache
def trials() -> Trials:
    workload = Gpt(layers=2, width=32, sequence=16, heads=4, vocabulary=64)
    fields: dict[str, dict[str, Any]] = {
        "tensor": {"tensor_parallel": 2},
        "sequence": {"tensor_parallel": 2, "sequence_parallel": True},
        "pipeline": {"pipeline_parallel": 2, "accumulation": 4},
    }
    return run_trials(
        {
            name: (window(6), Point(workers=2, micro_batch=2, workload=workload, **own))
            for name, own in fields.items()
        }
    )


def test_bytes_sent_are_those_of_the_formula() -> None:
    hidden = 2 * 16 * 32 * 4
    scores = 2 * 16 * 64 * 4
    rows = {name: trials().row(name) for name in ("tensor", "sequence", "pipeline")}
    assert {row["status"] for row in rows.values()} == {"ok"}
    # Of two workers, an all-reduce sends what it is given, a gather the half of it, and gloo's
    # reduce-scatter as much as an all-reduce.
    tensor = 2 * 4 * hidden + hidden + scores // 2
    assert rows["tensor"]["bytes_sent_per_step"] == tensor
    norms = 5 * 2 * 32 * 4
    sequence = 2 * 4 * (hidden // 2 + hidden) + 2 * hidden // 2 + hidden + scores // 2 + norms
    assert rows["sequence"]["bytes_sent_per_step"] == sequence
    # Each pass sends activations one way and their gradients back.
    assert rows["pipeline"]["bytes_sent_per_step"] == 4 * hidden


def test_rows_say_how_workers_divide_the_model_and_how_long_they_waited() -> None:
    row = trials().row("pipeline")
    assert (row["data_parallel"], row["model_parallel"], row["global_batch"]) == (1, 2, 8)
    assert (row["pipeline_schedule"], row["bubble_expected"]) == ("1f1b", 0.2)
    ranks = trials().measured("pipeline")
    for rank in ranks:
        assert rank.stage_busy_s is not None
        assert rank.pipeline_s is not None
        assert 0 < rank.stage_busy_s < rank.pipeline_s < rank.window_s
    waits = [1 - rank.stage_busy_s / rank.pipeline_s for rank in ranks]  # type: ignore[operator]  # see above
    assert row["bubble_share"] == pytest.approx(sum(waits) / 2)
    assert "bubble_share" not in trials().row("tensor")


COSTS = {"FORWARD": 1, "FULL_BACKWARD": 2, "BACKWARD_INPUT": 1, "BACKWARD_WEIGHT": 1}


def idle_share(orders: dict[int, Sequence[Any]], stages: int) -> float:
    """Idle share of a worker that does its actions in order, each when what it needs is done."""
    ended: dict[tuple[str, int, int], int] = {}
    free = dict.fromkeys(orders, 0)
    left = {rank: [a for a in actions if a is not None] for rank, actions in orders.items()}
    work = sum(COSTS[action.computation_type.name] for action in left[0])
    while any(left.values()):
        for rank, actions in left.items():
            if not actions:
                continue
            kind, stage = actions[0].computation_type.name, actions[0].stage_index
            number = actions[0].microbatch_index
            needs = [("F", stage - 1, number)] if stage else []
            if kind in ("FULL_BACKWARD", "BACKWARD_INPUT"):
                needs = [("F", stage, number)]
                needs += [("B", stage + 1, number)] if stage < stages - 1 else []
            elif kind == "BACKWARD_WEIGHT":
                needs = [("B", stage, number)]
            if all(need in ended for need in needs):
                free[rank] = max([free[rank], *(ended[need] for need in needs)]) + COSTS[kind]
                name = {"FORWARD": "F", "BACKWARD_WEIGHT": "W"}.get(kind, "B")
                ended[name, stage, number] = free[rank]
                actions.pop(0)
    return 1 - work / max(free.values())


@pytest.mark.parametrize(("pipeline", "accumulation"), [(2, 4), (4, 4), (4, 16)])
@pytest.mark.parametrize("schedule", ["interleaved", "zero_bubble"])
def test_the_bubble_is_that_of_torchs_own_order(
    schedule: str, pipeline: int, accumulation: int
) -> None:
    names = {"interleaved": "1F1B", "zero_bubble": "ZeroBubble"}
    kind = getattr(schedules, f"ScheduleInterleaved{names[schedule]}")
    made = kind.__new__(kind)
    made.pp_group_size, made._n_microbatches, made.n_local_stages = pipeline, accumulation, 2
    made._num_stages, made.number_of_rounds = 2 * pipeline, accumulation // pipeline
    made.microbatches_per_round = pipeline
    orders = {rank: made._calculate_single_rank_operations(rank) for rank in range(pipeline)}
    if schedule == "zero_bubble":
        made.pipeline_order = orders
        orders = made._add_bubbles_to_actions(2 * pipeline)
    point = Point(
        workers=pipeline,
        pipeline_parallel=pipeline,
        pipeline_schedule=schedule,
        accumulation=accumulation,
    )
    assert point.bubble == pytest.approx(idle_share(orders, 2 * pipeline))


TINY = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"workers": 6, "tensor_parallel": 4}, "model_parallel=4 does not divide workers=6"),
        ({"workers": 3, "tensor_parallel": 3}, "tensor_parallel=3 does not divide heads=4"),
        ({"workers": 8, "pipeline_parallel": 8, "accumulation": 8}, "layers=4 are too few"),
        ({"workers": 2, "sequence_parallel": True}, "sequence_parallel needs tensor_parallel"),
        ({"workers": 2, "pipeline_schedule": "gpipe"}, "pipeline_schedule needs"),
        ({"workers": 4, "pipeline_parallel": 4}, "needs a pass for each"),
        (
            {"pipeline_schedule": "interleaved", "accumulation": 3, "pipeline_parallel": 2},
            "needs accumulation to be a multiple of pipeline_parallel=2",
        ),
        ({"workers": 2, "tensor_parallel": 2, "sync": "ring"}, "ring has no tensor_parallel"),
        (
            {"workers": 2, "tensor_parallel": 2, "overlap": False},
            "ddp of workers that share a model has no overlap",
        ),
        (
            {"workers": 2, "tensor_parallel": 2, "workload": Cifar10Cnn()},
            "Cifar10Cnn has no tensor_parallel_plan(model)",
        ),
        (
            {"workers": 4, "tensor_parallel": 4, "workload": Transformers("llama-160m", TINY)},
            "tensor_parallel=4 does not divide num_key_value_heads=2",
        ),
        (
            {"workers": 2, "tensor_parallel": 2, "workload": Transformers("gpt2")},
            "no tensor-parallel plan for gpt2",
        ),
    ],
)
def test_impossible_grids_are_skipped_with_the_reason(fields: dict[str, Any], reason: str) -> None:
    point = Point(**{"workers": 2, "workload": Gpt(), **fields})
    assert reason in (impossible(point) or "")


def test_stages_have_as_many_blocks_and_the_rest_is_around_them() -> None:
    parts = stages_of(Gpt(), Gpt(layers=5, width=8, heads=2).build(), 2)
    names = [[type(part).__name__ for part in stage] for stage in parts]
    assert names == [["_Embedding", *["Block"] * 3], [*["Block"] * 2, "_Head"]]


def test_a_model_that_is_no_sequence_can_have_no_stages() -> None:
    with pytest.raises(ValueError, match=r"let Cifar10Cnn\.build give an nn\.Sequential"):
        stages_of(Cifar10Cnn(), nn.ModuleList([nn.Linear(1, 1)]), 2)


@dataclass(frozen=True)
class Tied(Cifar10Cnn):
    """A sequence whose ends share a layer."""

    def build(self) -> nn.Module:
        ends = nn.Linear(4, 4)
        return nn.Sequential(ends, nn.Linear(4, 4), nn.Linear(4, 4), ends)


def test_stages_that_share_a_parameter_are_refused() -> None:
    with pytest.raises(ValueError, match="two stages of Tied share a parameter"):
        stages_of(Tied(), Tied().build(), 2)


@dataclass(frozen=True)
class Odd(Gpt):
    """A decoder whose loss is none of a pipeline."""

    layers: int = 2
    width: int = 8
    kind: str = ""

    def loss(self, model: Any, batch: torch.Tensor) -> torch.Tensor:
        tokens = batch[:, :-1]
        losses: dict[str, Callable[[], torch.Tensor]] = {
            "named": lambda: model(tokens=tokens).mean(),
            "asks": lambda: next(model.parameters()).mean(),
            "twice": lambda: model(tokens).mean() - model(tokens).mean(),
            "rows": lambda: model(tokens).mean((1, 2)),
        }
        return losses[self.kind]()


REFUSED = {
    "named": "needs a loss that calls model(...) once",
    "asks": "no use for model.parameters",
    "twice": "needs a loss that calls model(...) once",
    "rows": "Odd.loss (test_divided.py:",
}


def refuse(rank: int) -> dict[str, str]:
    """Message of each loss on a rank that has both stages: nobody waits for it."""
    del rank
    messages = {}
    for kind in REFUSED:
        fields: dict[str, Any] = {"pipeline_parallel": 1, "workload": Odd(kind=kind)}
        point = Point(micro_batch=2, **fields)
        job = job_of(point, 0)
        model = point.workload.build()
        parts = stages_of(point.workload, model, 1)
        try:
            pipeline = Pipeline(job, {0: Stage(job, parts[0])}, distributed.group.WORLD)
            clock = CpuClock()
            clock.start()
            pipeline.run(next(batches_of_steps(job)), clock)
        except Exception as error:  # noqa: BLE001  # any of them
            messages[kind] = str(error.__cause__ or error)
    return messages


def test_a_loss_that_no_pipeline_can_have_is_named() -> None:
    (messages,) = results_of(refuse, workers=1)
    assert [kind for kind, part in REFUSED.items() if part not in messages.get(kind, "")] == []
