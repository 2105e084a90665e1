"""The code of a recommendation names the same point, and trains."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, distributed, nn

from dtsweep import Point
from dtsweep.report.code import point_code, training_code
from dtsweep.sweep.point import identity

POINTS = [
    Point(workers=1, micro_batch=4),
    Point(workers=1, micro_batch=4, accumulation=3, optimizer="momentum", learning_rate=0.1),
    Point(workers=1, micro_batch=4, accumulation=2, sync="zero1", optimizer="adamw", learning_rate=0.001),
    Point(workers=1, micro_batch=4, accumulation=2, sync="fsdp", precision="bf16"),
    Point(workers=1, micro_batch=4, sync="fsdp_grad", optimizer="adam"),
    Point(workers=1, micro_batch=4, bucket_bytes=2**20),
]


@pytest.fixture
def one_process_group(tmp_path: Path) -> Iterator[None]:
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def row_of(point: Point) -> pd.Series[Any]:
    return pd.Series(point.columns(), dtype=object)


@pytest.mark.parametrize(
    "point", [*POINTS, Point(sync="local_sgd", sync_period=4), Point(compression="topk", compression_ratio=0.1)]
)
def test_the_code_of_a_point_makes_the_same_point(point: Point) -> None:
    made = eval(point_code(row_of(point)), {"Point": Point})
    assert identity(made) == identity(point)


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
        self.last = nn.Linear(3, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        for block in self.blocks:
            inputs = torch.relu(block(inputs))
        return self.last(inputs)  # type: ignore[no-any-return]


@pytest.mark.parametrize("point", POINTS, ids=lambda point: f"{point.sync}-{point.accumulation}-{point.precision}")
def test_the_training_code_updates_a_model_as_often_as_the_point_says(point: Point, one_process_group: None) -> None:
    torch.manual_seed(0)
    model = Tower()
    updates: list[int] = []
    known = {
        "model": model,
        "blocks": model.blocks,
        "device": torch.device("cpu"),
        "batches": [torch.rand(4, 3) for _ in range(6)],
        "loss_of": lambda model, batch: model(batch).square().mean(),
    }
    code = training_code(row_of(point))
    assert code is not None
    exec(
        code.replace("optimizer.zero_grad()", "optimizer.zero_grad(); updates.append(1)"), known | {"updates": updates}
    )
    assert len(updates) == 6 // point.accumulation
    assert f"{point.micro_batch} samples on each worker" in code


@pytest.mark.parametrize(
    "point", [Point(sync="ring"), Point(sync="local_sgd"), Point(compression="int8"), Point(overlap=False)]
)
def test_what_torch_has_not_has_no_training_code(point: Point) -> None:
    assert training_code(row_of(point)) is None


def test_an_optimizer_of_the_workload_is_left_to_it() -> None:
    row = row_of(POINTS[0])
    row["optimizer"] = None
    assert "make_optimizer" in str(training_code(row))
