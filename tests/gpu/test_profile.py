"""The profile of steps on a GPU, whose kernels only a GPU runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed, nn

from dtsweep.measure.profile import profiled
from tests.ranks import spawn

pytestmark = pytest.mark.usefixtures("_warm_gpu")

MILLISECOND = 2_000_000
"""Clock ticks of a GPU that keep it busy for about that long."""


def parts(table: dict[str, Any]) -> tuple[float, float, float]:
    assert table["compute_s"] + table["exposed_s"] + table["idle_s"] == pytest.approx(
        table["step_s"]
    )
    return table["compute_s"], table["exchange_s"], table["idle_s"]


def test_a_device_that_is_kept_busy_is_hardly_idle() -> None:
    table = profiled(
        lambda: torch.cuda._sleep(20 * MILLISECOND), steps=3, device=torch.device("cuda", 0)
    ).table
    compute, exchange, idle = parts(table)
    assert exchange == 0
    assert idle < 0.2 * compute
    assert table["kernels"][0]["calls"] == 1
    assert table["kernels"][0]["self_s"] == pytest.approx(compute, rel=0.05)


def test_kernels_side_by_side_are_counted_once() -> None:
    streams = [torch.cuda.Stream() for _ in range(2)]

    def step() -> None:
        for stream in streams:
            with torch.cuda.stream(stream):
                torch.cuda._sleep(20 * MILLISECOND)

    table = profiled(step, steps=3, device=torch.device("cuda", 0)).table
    assert table["kernels"][0]["calls"] == 2
    assert table["compute_s"] < 0.7 * table["kernels"][0]["self_s"]


def profile_ddp(rank: int, folder: Path) -> None:
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    distributed.init_process_group(
        "nccl", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    model = nn.parallel.DistributedDataParallel(nn.Linear(1024, 1024).to(device), device_ids=[rank])
    batch = torch.ones(64, 1024, device=device)
    profile = profiled(lambda: model(batch).mean().backward(), steps=4, device=device)
    torch.save(profile, folder / f"{rank}.pt")
    distributed.destroy_process_group()


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA GPUs")
def test_kernels_of_nccl_are_exchange(tmp_path: Path) -> None:
    spawn(profile_ddp, args=(tmp_path,), nprocs=2)
    for rank in range(2):
        table = torch.load(tmp_path / f"{rank}.pt", weights_only=False).table
        compute, exchange, _ = parts(table)
        assert compute > 0
        assert exchange > 0
        assert {k["class"] for k in table["kernels"] if k["name"].startswith("nccl")} == {
            "exchange"
        }
