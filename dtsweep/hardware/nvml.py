"""A GPU by NVML, its driver's interface: activity, settings, and links to other GPUs."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from types import MappingProxyType
from typing import Any

import pynvml

_CLOCK_LIMITS: Mapping[int, str] = MappingProxyType(
    {
        0x2: "ApplicationsClocksSetting",
        0x4: "SwPowerCap",
        0x8: "HwSlowdown",
        0x10: "SyncBoost",
        0x20: "SwThermalSlowdown",
        0x40: "HwThermalSlowdown",
        0x80: "HwPowerBrakeSlowdown",
        0x100: "DisplayClockSetting",
    }
)
"""`nvmlClocksEventReasons` by their bits, without 0x1, which is idleness."""

SLOWDOWNS = frozenset(
    {"HwSlowdown", "SwThermalSlowdown", "HwThermalSlowdown", "HwPowerBrakeSlowdown"}
)
"""Heat and signals of the hardware.

The others are there by design: a GPU at full load runs at its power cap, and someone set the rest.
"""

CLOCK_SETTINGS = frozenset({"ApplicationsClocksSetting", "DisplayClockSetting"})
"""Those that someone set: they hold whatever the GPU does."""

_IDLE = 0x1

_MPS_SERVER = "nvidia-cuda-mps-server"
"""Process that holds the contexts of MPS on a GPU; the programs that it serves are others."""

_COMPUTE_MODES: Mapping[int, str] = MappingProxyType(
    {0: "default", 2: "prohibited", 3: "exclusive_process"}
)
"""`nvmlComputeMode_t`; 1 is no longer supported."""

_TOPOLOGY: Mapping[int, str] = MappingProxyType(
    {0: "internal", 10: "single", 20: "multiple", 30: "hostbridge", 40: "node", 50: "system"}
)
"""`nvmlGpuTopologyLevel_t`: what two GPUs share on the way to each other, nearest first."""

_XID = 0x8
_ERRORS: Mapping[int, str] = MappingProxyType(
    {0x1: "ECC single-bit", 0x2: "ECC double-bit", _XID: "Xid"}
)
"""`nvmlEventType` of the events that tell of an error."""

_MOST_ERRORS = 100
"""Errors that are reported of one window."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """State of a GPU at one moment; None where it does not report."""

    utilization: float | None
    """Share of the last second or less in which a kernel ran."""
    memory_bytes: int | None
    """In use by all processes."""
    clock_hz: float | None
    """Of the multiprocessors."""
    temperature_celsius: float | None
    limits: int | None
    """Bits of `_CLOCK_LIMITS`."""
    power_w: float | None
    """Mean of the last second or less."""


@dataclass(frozen=True)
class Gpu:
    """One GPU and the library that knows it."""

    handle: Any
    nvml: Any

    def ask(self, function: str, *arguments: Any) -> Any:
        """Call a function of NVML for this GPU.

        None where GPU, driver or permission don't allow it, or the library lacks the function: an
        older package may be in the place of nvidia-ml-py.
        """
        try:
            return getattr(self.nvml, function)(self.handle, *arguments)
        except (pynvml.NVMLError, AttributeError):
            return None

    def read(self) -> Reading:
        """Read what changes within a window."""
        utilization = self.ask("nvmlDeviceGetUtilizationRates")
        memory = self._memory()
        limits = self.ask("nvmlDeviceGetCurrentClocksEventReasons")
        if limits is None:
            # Drivers before 535 know them by another name.
            limits = self.ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return Reading(
            utilization=None if utilization is None else utilization.gpu / 100,
            memory_bytes=None if memory is None else memory.used,
            clock_hz=_scaled(self.ask("nvmlDeviceGetClockInfo", self.nvml.NVML_CLOCK_SM), 1e6),
            temperature_celsius=self.ask(
                "nvmlDeviceGetTemperature", self.nvml.NVML_TEMPERATURE_GPU
            ),
            limits=limits,
            power_w=_scaled(self.ask("nvmlDeviceGetPowerUsage"), 1e-3),
        )

    def _memory(self) -> Any:
        # The second version: in the first, memory that the driver keeps for itself counts as used.
        second = getattr(self.nvml, "nvmlMemory_v2", None)
        if second is None:
            return self.ask("nvmlDeviceGetMemoryInfo")
        return self.ask("nvmlDeviceGetMemoryInfo", second)

    def energy_j(self) -> float | None:
        """Energy used since the driver was loaded; the counter moves about every 0.1 s."""
        return _scaled(self.ask("nvmlDeviceGetTotalEnergyConsumption"), 1e-3)

    def power_limit_w(self) -> float | None:
        """The power limit in force."""
        return _scaled(self.ask("nvmlDeviceGetEnforcedPowerLimit"), 1e-3)

    def processes(self) -> set[int] | None:
        """Process ids of programs that compute on the GPU; None where NVML does not say.

        The server of MPS is none of them, but the programs that it serves are.
        """
        processes = self.ask("nvmlDeviceGetComputeRunningProcesses_v3")
        if processes is None:
            return None
        clients = self.ask("nvmlDeviceGetMPSComputeRunningProcesses_v3") or ()
        pids = {process.pid for process in (*processes, *clients)}
        return {pid for pid in pids if not self._is_mps_server(pid)}

    def has_mps(self) -> bool:
        """True if a server of MPS is seen on the GPU, or serves this process."""
        clients = self.ask("nvmlDeviceGetMPSComputeRunningProcesses_v3") or ()
        if os.getpid() in {process.pid for process in clients}:
            return True
        processes = self.ask("nvmlDeviceGetComputeRunningProcesses_v3") or ()
        return any(self._is_mps_server(process.pid) for process in processes)

    def _is_mps_server(self, pid: int) -> bool:
        # NVML gives the path of the program, and knows no process of another container.
        try:
            path = self.nvml.nvmlSystemGetProcessName(pid)
        except (pynvml.NVMLError, AttributeError, UnicodeDecodeError):
            return False
        return PurePath(path).name == _MPS_SERVER

    def other_processes(self, own_pids: Collection[int]) -> int | None:
        """Count the processes on the GPU that are not ours.

        In a container NVML may give other numbers to our processes or hide all: then one of those
        that it shows counts as ours for each of `own_pids`, and where it shows none, nothing is
        known.
        """
        shown = self.processes() or set()
        if shown & set(own_pids):
            return len(shown - set(own_pids))
        if not shown:
            return None
        return max(0, len(shown) - len(own_pids))

    def watch_errors(self) -> Any:
        """Have the driver keep the errors of this GPU for `errors`; None where it keeps none."""
        kinds = (self.ask("nvmlDeviceGetSupportedEventTypes") or 0) & sum(_ERRORS)
        if not kinds:
            return None
        try:
            events = self.nvml.nvmlEventSetCreate()
            self.nvml.nvmlDeviceRegisterEvents(self.handle, kinds, events)
        except (pynvml.NVMLError, AttributeError):
            return None
        return events

    def errors(self, events: Any) -> list[str] | None:
        """Take the errors since the last call; None where they are unknown.

        For example `Xid 79`.
        """
        if events is None:
            return None
        names: list[str] = []
        while len(names) < _MOST_ERRORS:
            try:
                event = self.nvml.nvmlEventSetWait_v2(events, 0)
            except pynvml.NVMLError_Timeout:
                break
            except pynvml.NVMLError:
                return names or None
            name = _ERRORS.get(event.eventType, f"event {event.eventType}")
            if event.eventType == _XID:
                name = f"Xid {event.eventData}"
            names.append(name)
        return names

    def settings(self) -> dict[str, Any]:
        """Read settings and driver of the GPU: equal for equal GPUs, None where unknown."""
        ecc = self.ask("nvmlDeviceGetEccMode")
        mig = self.ask("nvmlDeviceGetMigMode")
        persistence = self.ask("nvmlDeviceGetPersistenceMode")
        kinds = {"sm": self.nvml.NVML_CLOCK_SM, "memory": self.nvml.NVML_CLOCK_MEM}
        return {
            "ecc": ecc and bool(ecc[0]),
            "mig": mig and bool(mig[0]),
            "persistence": None if persistence is None else bool(persistence),
            "power_limit_w": _scaled(self.ask("nvmlDeviceGetPowerManagementLimit"), 1e-3),
            "power_limit_default_w": _scaled(
                self.ask("nvmlDeviceGetPowerManagementDefaultLimit"), 1e-3
            ),
            "compute_mode": _COMPUTE_MODES.get(self.ask("nvmlDeviceGetComputeMode")),
            # Of the slot and the GPU together. The current ones fall while a GPU is idle.
            "pcie_generation": self.ask("nvmlDeviceGetMaxPcieLinkGeneration"),
            "pcie_width": self.ask("nvmlDeviceGetMaxPcieLinkWidth"),
            "nvlinks": self.active_nvlinks(),
            "sm_boost_clock_hz": _scaled(
                self.ask("nvmlDeviceGetMaxCustomerBoostClock", kinds["sm"]), 1e6
            ),
            **{
                f"{name}_application_clock_hz": _scaled(
                    self.ask("nvmlDeviceGetApplicationsClock", kind), 1e6
                )
                for name, kind in kinds.items()
            },
        }

    def active_nvlinks(self) -> int | None:
        """Count the active NVLinks; None where NVML knows none."""
        # NVML refuses the numbers of links that the GPU lacks.
        links = range(getattr(self.nvml, "NVML_NVLINK_MAX_LINKS", 0))
        states = [self.ask("nvmlDeviceGetNvLinkState", link) for link in links]
        known = [state for state in states if state is not None]
        if not known:
            return None
        return known.count(self.nvml.NVML_FEATURE_ENABLED)

    def link(self, peer: Gpu) -> str:
        """Name the link to another GPU of this machine: the shared part, then the peer access.

        For example `system`, `hostbridge p2p` or `node p2p nvlink`.
        """
        level = self.ask("nvmlDeviceGetTopologyCommonAncestor", peer.handle)
        # Literal indices of nvmlGpuP2PCapsIndex_t: pynvml's NVML_P2P_CAPS_INDEX_READ is a tuple by
        # mistake.
        works = {
            name: self.ask("nvmlDeviceGetP2PStatus", peer.handle, index)
            == self.nvml.NVML_P2P_STATUS_OK
            for name, index in (("p2p", 0), ("nvlink", 2))
        }
        return " ".join(
            [_TOPOLOGY.get(level, "unknown"), *(name for name, does in works.items() if does)]
        )


def find_gpu(uuid: object, *, nvml: Any = pynvml) -> Gpu | None:
    """Find a GPU by its UUID, however CUDA_VISIBLE_DEVICES hides and numbers them.

    Args:
        uuid: as `torch.cuda.get_device_properties` gives it, without NVML's `GPU-`.
        nvml: the library.

    Returns:
        None where there is no NVML, and for a slice of a GPU (MIG): NVML's counters are those of
        the whole.
    """
    try:
        nvml.nvmlInit()
        gpu = Gpu(nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"), nvml)
    except pynvml.NVMLError:
        return None
    if (gpu.ask("nvmlDeviceGetMigMode") or [0])[0]:
        return None
    return gpu


def driver(*, nvml: Any = pynvml) -> str | None:
    """Version of the driver."""
    try:
        nvml.nvmlInit()
        return str(nvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return None


def device_count(*, nvml: Any = pynvml) -> int:
    """Number of GPUs that the driver shows, in use or not; 0 where there is no driver."""
    try:
        nvml.nvmlInit()
        return int(nvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return 0


def all_gpus(*, nvml: Any = pynvml) -> list[Gpu] | None:
    """All GPUs of this host in NVML's order; None without NVML."""
    try:
        nvml.nvmlInit()
        return [
            Gpu(nvml.nvmlDeviceGetHandleByIndex(index), nvml)
            for index in range(nvml.nvmlDeviceGetCount())
        ]
    except pynvml.NVMLError:
        return None


def topology(*, nvml: Any = pynvml) -> list[list[str]] | None:
    """Name the links between all GPUs of this machine, in NVML's order.

    Returns:
        For each GPU its links to those after it (the matrix is symmetric); None where there are not
        two.
    """
    gpus = all_gpus(nvml=nvml)
    if gpus is None:
        return None
    links = []
    for index, gpu in enumerate(gpus[:-1]):
        links.append([gpu.link(peer) for peer in gpus[index + 1 :]])
    return links or None


def limit_names(bits: int) -> list[str]:
    """Name the reasons for which a clock was below its highest; the number of those without a name.

    >>> limit_names(0x1 | 0x4 | 0x40)
    ['SwPowerCap', 'HwThermalSlowdown']
    >>> limit_names(0x4 | 0x1000)
    ['SwPowerCap', '0x1000']
    """
    names = [name for bit, name in _CLOCK_LIMITS.items() if bits & bit]
    if unnamed := bits & ~(_IDLE | sum(_CLOCK_LIMITS)):
        names.append(f"{unnamed:#x}")
    return names


def _scaled(value: float | None, factor: float) -> float | None:
    if value is None:
        return None
    return value * factor
