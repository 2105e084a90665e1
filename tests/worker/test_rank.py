"""The device of a rank where Ray chooses none: the GPU that is meant, or a refusal."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dtsweep import Resources, SweepError
from dtsweep.worker.rank import cpus_here, gets_gpu, take_device
from tests.stand_in_nvml import MissingNvml, StandInNvml, install_nvml


@pytest.fixture
def torch_sees(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have torch see this many GPUs."""

    def see(count: int) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)

    return see


@pytest.mark.parametrize("asked", [None, 1])
def test_a_gpu_that_torch_can_not_use_is_refused_with_both_versions_and_not_replaced_by_the_cpu(
    asked: int | None, torch_sees: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_sees(0)
    install_nvml(StandInNvml(devices=2), monkeypatch)
    monkeypatch.setattr(torch, "__version__", "2.11.0+cu130")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(SweepError) as refused:
        take_device(Resources(gpus_per_worker=asked), index=0)
    assert str(refused.value) == (
        "torch 2.11.0+cu130, built for CUDA 13.0, can use none of the 2 GPUs here, whose driver is "
        "570.1; install a torch for a CUDA version that the driver supports (nvidia-smi shows it), "
        "or set Resources(gpus_per_worker=0) to measure on the CPU"
    )


def test_a_torch_without_cuda_and_a_mask_are_named(
    torch_sees: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_sees(0)
    install_nvml(StandInNvml(), monkeypatch)
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(SweepError, match="built without CUDA, can use none of the 1 GPU here"):
        gets_gpu(Resources())
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(SweepError, match="if CUDA_VISIBLE_DEVICES='' hides them, unset it"):
        gets_gpu(Resources())


def test_a_sweep_that_wants_no_gpu_is_measured_on_the_cpu(
    torch_sees: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_nvml(StandInNvml(), monkeypatch)
    for count in (0, 1):
        torch_sees(count)
        resources = Resources(gpus_per_worker=0, cpus_per_worker=torch.get_num_threads())
        assert take_device(resources, index=0) == torch.device("cpu")


def test_a_machine_without_gpus_is_measured_on_the_cpu_unless_the_sweep_asks_for_one(
    torch_sees: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch_sees(0)
    for nvml in (MissingNvml(), StandInNvml(devices=0)):
        install_nvml(nvml, monkeypatch)
        assert not gets_gpu(Resources())
        with pytest.raises(
            SweepError, match="gpus_per_worker=1, but torch sees no GPU here; use gpus_per_worker=0"
        ):
            gets_gpu(Resources(gpus_per_worker=1))


def test_each_rank_takes_the_gpu_of_its_index_and_a_rank_too_many_is_refused(
    torch_sees: Any,
) -> None:
    torch_sees(2)
    resources = Resources(cpus_per_worker=torch.get_num_threads())
    assert take_device(resources, index=1) == torch.device("cuda", 1)
    with pytest.raises(SweepError) as refused:
        take_device(resources, index=2)
    assert str(refused.value) == (
        "torch sees 2 GPUs here, so there is none for the local rank 2; start at most 2 ranks here "
        "(torchrun --nproc-per-node 2), or set Resources(gpus_per_worker=0)"
    )


@pytest.mark.parametrize(
    ("gpus", "resources", "cpus"),
    [
        (0, {}, 1),
        (2, {}, 4),
        (2, {"gpus_per_worker": 0}, 1),
        (16, {}, 1),
        (2, {"cpus_per_worker": 3}, 3),
    ],
)
def test_a_worker_with_a_gpu_has_its_share_of_the_machines_cpus(
    gpus: int, resources: dict[str, Any], cpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(9)))
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpus > 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    assert cpus_here(Resources(**resources)) == cpus
