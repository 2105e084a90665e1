"""Modes whose workers divide a model, on two ranks of gloo."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from dtsweep import Measure, Point, Sweep
from dtsweep.measure.clock import StepClock
from dtsweep.metrics.rows import trial_row, with_warmup_marked
from dtsweep.sweep.mode_info import Grid, ModeInfo
from dtsweep.sweep.task import task_of
from dtsweep.sync.mode import Loss, MakeOptimizer, SyncMode
from dtsweep.sync.passes import passes
from dtsweep.worker.attempt import run_attempt
from dtsweep.worker.rank import become_rank
from tests.declared import declare
from tests.ranks import free_ports, join, leave, spawn
from tests.worker.test_own_mode import SHORT, WIDTH, Layers

RANKS = 2


class Tensors(SyncMode):
    """Tensor parallel: each layer is divided among all workers."""

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        self._model = parallelize_module(model, self._job.mesh()["model"], plan)
        self._optimizer = make_optimizer(model.parameters())

    def step(self, batches: Iterator[Any], clock: StepClock, without: Collection[str] = ()) -> Loss:
        loss = passes(self._job, self._model, batches, clock)
        self.before_update()
        self._optimizer.step()
        self._model.zero_grad()
        clock.mark("optimizer")
        return loss


TENSORS = ModeInfo(
    implementation="tests.worker.test_divided_modes:Tensors",
    semantics=lambda _: "exact",
    reads={},
    grid=lambda point: Grid(data=point["workers"] // RANKS, model=RANKS),
    agree="gradients",
)
SHARDS = ModeInfo(
    implementation="dtsweep.sync.fsdp:Fsdp",
    semantics=lambda _: "exact",
    reads={},
    shards=True,
)
MODES = {"tensors": TENSORS, "shards": SHARDS}
SETTINGS: Measure = replace(SHORT, check=True)


def point_of(mode: str) -> Point:
    return Point(workers=RANKS, micro_batch=4, sync=mode, workload=Layers("ddp"))


def measure_all(rank: int, folder: Path, port: int) -> None:
    declare(pytest.MonkeyPatch(), MODES)
    join(rank, workers=RANKS, port=port)
    workload = Layers("ddp")
    context = become_rank(rank, torch.device("cpu"), workload=workload, own_variables=())
    sweep = Sweep(workload=workload, axes={"workers": [RANKS]}, measure=SETTINGS)
    results = {}
    for mode in MODES:
        task = replace(task_of(sweep, point_of(mode)), attempt_id=mode)
        results[mode] = run_attempt(context, task)
    torch.save((context.facts, results), folder / f"{rank}.pt")
    leave()


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("divided")
    spawn(measure_all, args=(folder, *free_ports(1)), nprocs=RANKS)
    saved = [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(RANKS)]
    facts = {rank: of_rank for rank, (of_rank, _) in enumerate(saved)}
    sweep = Sweep(workload=Layers("ddp"), axes={"workers": [RANKS]}, measure=SETTINGS)
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        declare(patch, MODES)
        for mode in MODES:
            point = point_of(mode)
            results = {rank: of_rank[mode] for rank, (_, of_rank) in enumerate(saved)}
            found[mode] = trial_row(
                sweep, point, task_of(sweep, point), facts, with_warmup_marked(point, results)
            )
        yield found


def test_what_is_counted_of_a_divided_model_is_that_of_the_whole(
    rows: dict[str, dict[str, Any]],
) -> None:
    row = rows["tensors"]
    assert (row["status"], row["reason"]) == ("ok", None)
    assert (row["global_batch"], row["model_parallel"]) == (4, RANKS)
    # Two layers, a forward pass and twice as much backward, but for the first layer's input.
    assert row["flops_per_sample"] == 2 * (3 + 2) * WIDTH * 2 * WIDTH
    # How many operations a worker does is not known.
    assert row.get("operations_per_step") is None


def test_the_first_gradient_of_a_divided_model_is_gathered_and_compared(
    rows: dict[str, dict[str, Any]],
) -> None:
    assert rows["tensors"]["gradient_error"] < 1e-5


def test_a_mode_in_shards_need_not_declare_what_agrees(rows: dict[str, dict[str, Any]]) -> None:
    row = rows["shards"]
    assert (row["status"], row["reason"]) == ("ok", None)
    assert "each worker has a share of every gradient alone" in row["gradients_reason"]
