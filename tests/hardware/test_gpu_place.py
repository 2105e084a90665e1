"""GPUs of ranks: two ranks of a world must not have one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from dtsweep.hardware.gpu_place import pci_bus_id, shared_gpu
from tests.outcomes import facts

BUS = "0000:1b:00.0"


def problem_of(*ranks: dict[str, str | None]) -> str | None:
    devices = [facts(node_id="a", **rank) for rank in ranks]
    return shared_gpu({rank: device.gpu_place for rank, device in enumerate(devices)})


def test_two_slices_of_a_gpu_are_refused_with_the_next_step() -> None:
    slices = [{"device_uuid": f"slice-{i}", "pci_bus_id": BUS} for i in range(2)]
    assert problem_of(*slices) == (
        "ranks 0 and 1 on one have the same GPU (0000:1b:00.0), which NCCL refuses; give each rank "
        "its own GPU (a world of one rank works on a MIG slice)"
    )
    assert problem_of(slices[0]) is None


def test_ranks_whose_bus_id_is_unknown_are_left_to_nccl() -> None:
    unknown = {"device_uuid": "0b1c", "pci_bus_id": None}
    assert problem_of(unknown, unknown) is None


def test_equal_bus_ids_of_two_nodes_and_ranks_on_cpus_are_fine() -> None:
    nodes = [facts(node_id=name, device_uuid=name, pci_bus_id=BUS) for name in "ab"]
    assert shared_gpu({rank: node.gpu_place for rank, node in enumerate(nodes)}) is None
    assert shared_gpu({0: facts().gpu_place, 1: facts().gpu_place}) is None


def test_a_bus_id_is_written_as_the_kernel_does_and_unknown_on_rocm_and_old_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = SimpleNamespace(pci_domain_id=1, pci_bus_id=0xC1, pci_device_id=2)
    assert pci_bus_id(gpu) == "0001:c1:02.0"
    assert pci_bus_id(SimpleNamespace(name="A GPU")) is None
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert pci_bus_id(gpu) is None
