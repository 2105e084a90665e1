"""The code of a recommendation names the same point, and trains."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dtsweep import Point
from dtsweep.report.code import point_code, training_code
from dtsweep.sweep.point import identity
from tests.analysis.test_recommend import launches
from tests.report.test_recommendation import said

POINTS = [
    Point(workers=2, micro_batch=4),
    Point(workers=2, micro_batch=4, accumulation=3, optimizer="momentum", learning_rate=0.1),
    Point(workers=2, micro_batch=4, accumulation=2, sync="zero1", optimizer="adamw", learning_rate=0.001),
    Point(workers=2, micro_batch=4, accumulation=2, sync="fsdp", precision="bf16", learning_rate=0.5),
    Point(workers=2, micro_batch=4, sync="fsdp_grad", optimizer="adam"),
    Point(workers=2, micro_batch=4, bucket_bytes=2**20),
]

TRAIN = """\
import json
import os

import torch
from torch import distributed, nn

def given(batches):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    loss_of = lambda model, batch: model(batch).square().mean()
    return {"model": model, "blocks": [model[0]], "batches": batches, "loss_of": loss_of}

def trained(code, batches):
    names = given(batches)
    exec(code, names)
    return [getattr(each, "full_tensor", lambda: each)().detach() for each in names["model"].parameters()]

first = 4 * int(os.environ["RANK"])
whole = list(torch.rand(6, 8, 3, generator=torch.Generator().manual_seed(1)))
for code, code_of_one, error, port in json.load(open("codes.json")):
    # Each code makes a group of its own, as in a process of its own: the agent's store holds what the last one left.
    os.environ.update(MASTER_PORT=str(port), TORCHELASTIC_USE_AGENT_STORE="False")
    found = trained(code, [batch[first : first + 4] for batch in whole])
    distributed.destroy_process_group()
    expected = trained(code_of_one, whole)
    torch.testing.assert_close(found, expected, rtol=0, atol=error)
    before = given(whole)["model"].parameters()
    assert max((each - other).abs().max() for each, other in zip(expected, before)) > 10 * error
"""
"""Trains by the code of two workers, each on its half of each batch, and by that of one worker on whole ones."""


def free_ports(count: int) -> list[int]:
    with ExitStack() as opened:
        sockets = [opened.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def printed(point: Point) -> str:
    """The code as `recommend` prints it in a terminal of 80 columns."""
    code = said(launches("a", 100, **point.columns()), width=80).partition("In plain PyTorch:\n\n")[2]
    return textwrap.dedent(code)


def row_of(point: Point) -> pd.Series[Any]:
    return pd.Series(point.columns(), dtype=object)


@pytest.mark.parametrize(
    "point", [*POINTS, Point(sync="local_sgd", sync_period=4), Point(compression="topk", compression_ratio=0.1)]
)
def test_the_code_of_a_point_makes_the_same_point(point: Point) -> None:
    made = eval(point_code(row_of(point)), {"Point": Point})
    assert identity(made) == identity(point)


def test_the_code_trains_as_it_is_printed_and_as_that_of_one_worker_on_all_samples(tmp_path: Path) -> None:
    alone = [replace(point, workers=1, micro_batch=8) for point in POINTS]
    errors = [0.005 if point.precision == "bf16" else 1e-5 for point in POINTS]
    ports = free_ports(len(POINTS))
    codes = [(printed(two), printed(one), *rest) for two, one, *rest in zip(POINTS, alone, errors, ports, strict=True)]
    assert "distributed" not in "".join(code_of_one for _, code_of_one, _, _ in codes)
    (tmp_path / "codes.json").write_text(json.dumps(codes))
    (tmp_path / "train.py").write_text(TRAIN)
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py"],
        cwd=tmp_path,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("workers", [1, 2])
def test_code_of_a_point_that_was_measured_on_gpus_trains_there(workers: int) -> None:
    code = str(training_code(row_of(Point(workers=workers, precision="bf16")).copy()))
    assert "cuda" not in code
    row = pd.concat([row_of(Point(workers=workers, precision="bf16")), pd.Series({"backend": "nccl"})])
    code = str(training_code(row))
    assert "model = model.cuda()" in code
    assert 'torch.autocast("cuda", torch.bfloat16)' in code
    assert ("torch.cuda.set_device" in code) == (workers > 1)
    compile(code, "code", "exec")


@pytest.mark.parametrize(
    "point", [Point(sync="ring"), Point(sync="local_sgd"), Point(compression="int8"), Point(overlap=False)]
)
def test_what_torch_has_not_has_no_training_code(point: Point) -> None:
    assert training_code(row_of(point)) is None


def test_an_optimizer_of_the_workload_is_left_to_it() -> None:
    row = row_of(POINTS[0])
    row["optimizer"] = None
    assert str(training_code(row)).count("make_optimizer(") == 2
