"""A stand-in of NVIDIA's library for machines without a GPU; it raises the library's errors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
import torch

GPU = torch.device("cuda", 0)
UUID = "0b1c"


@dataclass
class StandInNvml:
    """One device, or several equal ones (`devices`).

    Its functions answer with the fields; a function in `unsupported` refuses.
    """

    utilization: int = 90
    memory_bytes: int = 10
    clock_mhz: int = 1900
    temperature: int = 60
    limits: int = 0x1
    power_mw: int = 300_000
    energy_mj: int = 1_000_000
    pids: Collection[int] = ()
    mps_pids: Collection[int] = ()
    """Programs that the server of MPS serves."""
    names: Mapping[int, str] = field(default_factory=dict)
    """Paths of programs by their process; of the others none is known."""
    pcie: tuple[int, int] = (5, 16)
    """Generation and width of the link now; at most 5 and 16."""
    nvlinks: Sequence[int] = (1,) * 18
    """State of each link that a device has to a switch."""
    mig: int = 0
    slices: int = 0
    devices: int = 1
    other_limit_mw: int = 1_000_000
    """Of another limiter; the lower one is enforced."""
    unsupported: Collection[str] = ()
    has_old_driver: bool = False
    """One before 535, which has another name for the limits of clocks."""
    """Correctable, uncorrectable, pending, failed."""
    errors: Collection[tuple[int, int]] = ()
    """Type and data of events since they were last asked for."""

    nvmlMemory_v2 = pynvml.nvmlMemory_v2  # noqa: N815  # the library's names
    NVML_CLOCK_SM = pynvml.NVML_CLOCK_SM
    NVML_CLOCK_MEM = pynvml.NVML_CLOCK_MEM
    NVML_TEMPERATURE_GPU = pynvml.NVML_TEMPERATURE_GPU
    NVML_P2P_STATUS_OK = pynvml.NVML_P2P_STATUS_OK
    NVML_NVLINK_MAX_LINKS = pynvml.NVML_NVLINK_MAX_LINKS
    NVML_FEATURE_ENABLED = pynvml.NVML_FEATURE_ENABLED

    def __getattr__(self, function: str) -> Any:
        def call(*arguments: Any) -> Any:
            if function in self.unsupported:
                raise pynvml.NVMLError_NotSupported
            return self.answer(function, *arguments)

        return call

    def answer(self, function: str, *arguments: Any) -> Any:
        names = {
            "nvmlDeviceGetCurrentClocksEventReasons": not self.has_old_driver,
            "nvmlDeviceGetCurrentClocksThrottleReasons": self.has_old_driver,
        }
        if not names.get(function, True):
            raise pynvml.NVMLError_FunctionNotFound
        if function == "nvmlDeviceGetHandleByUUID" and arguments != (f"GPU-{UUID}",):
            raise pynvml.NVMLError_NotFound
        if function == "nvmlDeviceGetMigDeviceHandleByIndex" and arguments[1] >= self.slices:
            raise pynvml.NVMLError_NotFound
        if function.startswith("nvmlDeviceGetNvLink") and arguments[1] >= len(self.nvlinks):
            raise pynvml.NVMLError_InvalidArgument
        if function == "nvmlEventSetWait_v2":
            if not self.errors:
                raise pynvml.NVMLError_Timeout
            (kind, data), *self.errors = self.errors
            return SimpleNamespace(eventType=kind, eventData=data)
        if function == "nvmlSystemGetProcessName":
            if arguments[0] not in self.names:
                raise pynvml.NVMLError_NotFound
            return self.names[arguments[0]]
        if function == "nvmlDeviceGetNvLinkState":
            return self.nvlinks[arguments[1]]
        return {
            "nvmlInit": None,
            "nvmlSystemGetDriverVersion": "570.1",
            "nvmlDeviceGetHandleByUUID": "handle",
            "nvmlDeviceGetHandleByIndex": "handle",
            "nvmlDeviceGetCount": self.devices,
            "nvmlDeviceGetMigMode": [self.mig, self.mig],
            "nvmlDeviceGetMaxMigDeviceCount": 7,
            "nvmlDeviceGetMigDeviceHandleByIndex": "slice",
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=self.utilization),
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=self.memory_bytes),
            "nvmlDeviceGetClockInfo": self.clock_mhz,
            "nvmlDeviceGetMaxClockInfo": 2000,
            "nvmlDeviceGetTemperature": self.temperature,
            "nvmlDeviceGetCurrentClocksEventReasons": self.limits,
            "nvmlDeviceGetCurrentClocksThrottleReasons": self.limits,
            "nvmlDeviceGetPowerUsage": self.power_mw,
            "nvmlDeviceGetTotalEnergyConsumption": self.energy_mj,
            "nvmlDeviceGetComputeRunningProcesses_v3": [
                SimpleNamespace(pid=pid) for pid in self.pids
            ],
            "nvmlDeviceGetMPSComputeRunningProcesses_v3": [
                SimpleNamespace(pid=pid) for pid in self.mps_pids
            ],
            "nvmlDeviceGetIndex": 0,
            "nvmlDeviceGetEccMode": [1, 1],
            "nvmlDeviceGetSupportedEventTypes": 0x1F,
            "nvmlEventSetCreate": "events",
            "nvmlDeviceRegisterEvents": None,
            "nvmlDeviceGetPersistenceMode": 1,
            "nvmlDeviceGetPowerManagementLimit": 700_000,
            "nvmlDeviceGetPowerManagementDefaultLimit": 650_000,
            "nvmlDeviceGetEnforcedPowerLimit": min(700_000, self.other_limit_mw),
            "nvmlDeviceGetComputeMode": 3,
            "nvmlDeviceGetMaxPcieLinkGeneration": 5,
            "nvmlDeviceGetMaxPcieLinkWidth": 16,
            "nvmlDeviceGetCurrPcieLinkGeneration": self.pcie[0],
            "nvmlDeviceGetCurrPcieLinkWidth": self.pcie[1],
            "nvmlDeviceGetMaxCustomerBoostClock": 1980,
            "nvmlDeviceGetUUID": f"GPU-{UUID}",
            "nvmlDeviceGetPowerManagementLimitConstraints": [200_000, 700_000],
            "nvmlDeviceGetApplicationsClock": 1500,
            "nvmlDeviceGetTopologyCommonAncestor": 40,
            "nvmlDeviceGetP2PStatus": pynvml.NVML_P2P_STATUS_OK,
        }[function]


class MissingNvml:
    """A machine without NVIDIA's driver."""

    def nvmlInit(self) -> None:  # noqa: N802  # the library's name
        raise pynvml.NVMLError_LibraryNotFound

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802  # the library's name
        raise pynvml.NVMLError_Uninitialized

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802  # the library's name
        raise pynvml.NVMLError_Uninitialized


def show_a_gpu(patch: Callable[[Any, str, Any], None] = setattr) -> None:
    """Have torch describe the stand-in's device; for good, unless `patch` is undone."""
    properties = SimpleNamespace(
        name="A GPU", uuid=UUID, pci_domain_id=0, pci_bus_id=0x1B, pci_device_id=0
    )
    patch(torch.cuda, "get_device_properties", lambda _: properties)
    patch(torch.cuda, "get_device_capability", lambda _: (8, 0))
    patch(torch.cuda, "synchronize", lambda _: None)


def install_nvml(nvml: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have NVIDIA's library answer as a stand-in does, for code that takes none as an argument."""
    for name in ("nvmlInit", "nvmlDeviceGetCount", "nvmlSystemGetDriverVersion"):
        monkeypatch.setattr(pynvml, name, getattr(nvml, name))


@pytest.fixture
def torch_sees_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch and its libraries would say of the stand-in's device."""
    show_a_gpu(monkeypatch.setattr)
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91000)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 27, 3))
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
