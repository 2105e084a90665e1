"""Every mode without Ray trains with one rank on NCCL; with one GPU nothing is exchanged."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dtsweep import Measure, Point, Resources, Sweep, workloads
from dtsweep.metrics.rows import trial_row, with_warmup_marked
from dtsweep.session.attempt import run_attempt
from dtsweep.session.in_process import only_rank
from dtsweep.sweep.compressions import COMPRESSIONS
from dtsweep.sweep.modes import MODES
from dtsweep.sweep.task import task_of
from dtsweep.worker.rank import RankContext
from tests.pages import ROOT

WORKLOAD = workloads.Gpt(layers=2, width=64)
SWEEP = Sweep(
    workload=WORKLOAD,
    axes={"workers": [1]},
    measure=Measure(repeats=1, half_width=None, min_seconds=0.2, max_seconds=20),
    resources=Resources(gpus_per_worker=1),
)

ON_A_GPU = [name for name, info in MODES.items() if not (info.needs_ray or info.shares_memory)]


@pytest.fixture(scope="module")
def rank() -> Iterator[RankContext]:
    """One rank for all points: a process for each would take minutes to start."""
    with only_rank(SWEEP) as context:
        yield context


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("mode", ON_A_GPU)
def test_a_mode_trains_with_one_rank_on_nccl(rank: RankContext, mode: str, precision: str) -> None:
    measured(rank, Point(workload=WORKLOAD, micro_batch=4, sync=mode, precision=precision))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_compression_works_with_one_rank_on_nccl(rank: RankContext, compression: str) -> None:
    row = measured(rank, Point(workload=WORKLOAD, micro_batch=4, compression=compression))
    assert row["compress_s"] > 0
    assert row["compression_error"] > 0


def test_a_point_under_torchrun_trains_on_nccl(tmp_path: Path) -> None:
    file = tmp_path / "row.json"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1"]
    settings = ["workers=1", "sync=ddp", "workload.data=synthetic", "--row", str(file)]
    command = [*launcher, "-m", "benchmarks.by_torchrun", "sweeps/batchsize.py", *settings]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    row = json.loads(file.read_text())
    assert (row["status"], row["backend"], row["harness"]) == ("ok", "nccl", "torchrun")


def measured(rank: RankContext, point: Point) -> dict[str, Any]:
    """The row of a point, measured by one rank."""
    task = task_of(SWEEP, point)
    results = with_warmup_marked(point, {0: run_attempt(rank, task)})
    row = trial_row(SWEEP, point, task, {0: rank.facts}, results, harness="in_process")
    assert (row["status"], row["backend"]) == ("ok", "nccl"), row["reason"]
    return row
