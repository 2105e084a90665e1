"""The axis `power_limit` on two real ranks, each with a stand-in of NVIDIA's library."""

from __future__ import annotations

import gc
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn

from dtsweep import Measure, Sweep
from dtsweep.hardware import power_limit
from dtsweep.hardware.nvml import find_gpu
from dtsweep.hardware.telemetry import Telemetry
from dtsweep.metrics.rank_result import RankResult
from dtsweep.metrics.rows import explaining_failure
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import task_of
from dtsweep.sync.groups import position
from dtsweep.worker.attempt import run_attempt
from dtsweep.worker.rank import become_rank
from tests.ranks import spawn
from tests.stand_in_nvml import (
    GPU,
    UUID,
    StandInNvml,
    show_a_gpu,
    stand_in_for_pynvml,
    torch_sees_a_gpu,
)

__all__ = ["torch_sees_a_gpu"]

WORKERS = 2
NVML = StandInNvml(limits=0x4)
"""Of each rank's own GPU."""

SEEN: set[int] = set()
"""Power limits, in milliwatts, under which the loss of the last trial was computed."""


@dataclass(frozen=True)
class Line:
    """Fits a line under some power limit."""

    fails: bool = False

    def build(self) -> nn.Module:
        return nn.Linear(4, 1)

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return torch.ones(len(samples), 4, device=device)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        SEEN.add(NVML.power_limit_mw)
        if self.fails:
            raise ValueError("of the workload")
        answer: Tensor = model(batch)
        return answer.square().mean()


@dataclass(frozen=True)
class Sent:
    """What a rank has to say of a trial."""

    result: RankResult
    seen: frozenset[int]
    limit_mw: int
    """Afterwards."""

    position: int

    exchanges: int
    """Isolated exchanges that the world has measured so far."""


CASES: dict[str, dict[str, Any]] = {
    "limited": {"power_limit": 300},
    "fails": {"power_limit": 300, "workload": Line(fails=True)},
    "refused on rank 1": {"power_limit": 300},
    "unlimited": {},
    "after a killed one": {},
}


def measure_all(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    show_a_gpu()
    power_limit.FOLDER = folder / f"{rank}"
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORKERS
    )
    context = become_rank(rank, torch.device("cpu"), workload=Line(), own_variables=())
    context = replace(context, telemetry=Telemetry(GPU, nvml=NVML))
    measure = Measure(half_width=None, warmup_steps=2, min_steps=4, min_seconds=0, max_steps=8)
    sweep = Sweep(workload=Line(), axes={"workers": [WORKERS]}, measure=measure)
    sent = {}
    for case, fields in CASES.items():
        SEEN.clear()
        NVML.forbidden = []
        if case == "refused on rank 1" and rank == 1:
            NVML.forbidden = ["nvmlDeviceSetPowerManagementLimit"]
        if case == "after a killed one":
            NVML.power_limit_mw = 300_000
            (file,) = power_limit.FOLDER.glob("dtsweep-power-*/*.json")
            file.write_text("[700000, 300000]")
        point = Point(**{"workers": WORKERS, "micro_batch": 2, "workload": Line(), **fields})
        tasks = [task_of(sweep, point)]
        distributed.broadcast_object_list(tasks, src=0)
        result = run_attempt(context, tasks[0])
        sent[case] = Sent(
            result, frozenset(SEEN), NVML.power_limit_mw, position(), len(context.exchanges)
        )
    torch.save(sent, folder / f"{rank}.pt")
    distributed.barrier()
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Sent]]:
    """What each rank has to say, by case."""
    folder = tmp_path_factory.mktemp("ranks")
    for rank in range(WORKERS):
        (folder / f"{rank}").mkdir()
    spawn(measure_all, args=(folder,), nprocs=WORKERS)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(WORKERS)]


@pytest.mark.parametrize("case", CASES)
def test_the_limit_is_given_back_whatever_happens_and_ranks_stay_in_step(
    sent: list[dict[str, Sent]], case: str
) -> None:
    assert [of_rank[case].limit_mw for of_rank in sent] == [700_000, 700_000]
    assert len({of_rank[case].position for of_rank in sent}) == 1


@pytest.mark.parametrize(
    ("case", "status", "seen"),
    [
        ("limited", "ok", {300_000}),
        ("fails", "user_error", {300_000}),
        ("unlimited", "ok", {700_000}),
        ("after a killed one", "ok", {700_000}),
    ],
)
def test_a_trial_runs_under_its_limit_alone(
    sent: list[dict[str, Sent]], case: str, status: str, seen: set[int]
) -> None:
    for of_rank in sent:
        assert of_rank[case].result.status == status, of_rank[case].result.reason
        assert of_rank[case].seen == seen


def test_a_limit_that_one_gpu_refuses_ends_the_trial_on_all_before_anything_is_built(
    sent: list[dict[str, Sent]],
) -> None:
    cases = [of_rank["refused on rank 1"] for of_rank in sent]
    results = {rank: case.result for rank, case in enumerate(cases)}
    assert [result.status for result in results.values()] == ["collateral", "infeasible"]
    assert [case.seen for case in cases] == [frozenset(), frozenset()]
    status, reason = explaining_failure(results)
    assert status == "infeasible"
    assert str(reason).startswith("rank 1: PowerLimitError: no permission to set power_limit=300; ")


def test_an_exchange_under_a_limit_is_timed_by_itself(sent: list[dict[str, Sent]]) -> None:
    counts = [case.exchanges for case in sent[0].values()]
    assert dict(zip(CASES, counts, strict=True)) == {
        "limited": 1,
        "fails": 1,
        "refused on rank 1": 1,
        "unlimited": 2,
        "after a killed one": 2,
    }


@pytest.mark.usefixtures("torch_sees_a_gpu")
def test_a_rank_that_starts_gives_back_the_limit_of_a_killed_one_before_it_describes_its_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nvml = StandInNvml(power_limit_mw=300_000)
    stand_in_for_pynvml(nvml, monkeypatch.setattr)
    for function in ("empty_cache", "reset_peak_memory_stats", "memory_allocated"):
        monkeypatch.setattr(torch.cuda, function, lambda *_: 0)
    monkeypatch.setattr(power_limit, "FOLDER", tmp_path)
    gpu = find_gpu(UUID)
    assert gpu is not None
    file = power_limit._file_of(gpu)
    file.parent.mkdir(mode=0o700)
    file.write_text("[700000, 300000]")
    facts = become_rank(0, GPU, workload=Line(), own_variables=()).facts
    gc.unfreeze()
    assert nvml.power_limit_mw == 700_000
    assert facts.machine["gpu"]["power_limit_w"] == 700
