"""Telemetry: what a rank's device and host did in a window.

Counters are read at its edges, other values at long intervals between.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import psutil  # type: ignore[import-untyped]  # its types are a package of their own
import pynvml
import torch

from dtsweep.hardware.host import cpu_energy_counters, cpu_energy_j, network_bytes
from dtsweep.hardware.nvml import SLOWDOWNS, Reading, find_gpu, limit_names
from dtsweep.sweep.settings import ENERGY_FROM_S

_LOOK_BACK_S = 1.0
"""Seconds that NVML's utilization and power may look back; earlier readings are ignored."""


def _names_of_limits(seen: Iterable[int]) -> list[str]:
    return sorted({name for bits in seen for name in limit_names(bits)})


_READ_COLUMNS: Mapping[str, tuple[str, Callable[[list[Any]], Any], float]] = {
    "device_utilization": ("utilization", fmean, _LOOK_BACK_S),
    "device_memory_used_bytes": ("memory_bytes", max, 0.0),
    "sm_clock_hz": ("clock_hz", fmean, 0.0),
    "temperature_celsius": ("temperature_celsius", max, 0.0),
    "throttle_reasons": ("limits", _names_of_limits, 0.0),
    "power_w": ("power_w", fmean, _LOOK_BACK_S),
}
"""Columns of `ranks` from readings: field of a `Reading`, reduction, and first second used."""


@dataclass(frozen=True, kw_only=True)
class _Edge:
    """Counters at an edge of a window."""

    at_s: float
    process_s: float
    """CPU time of this process."""
    cpu_s: tuple[float, float]
    """CPU time of the host: in use, and in all."""
    network: Mapping[str, tuple[int, int]]
    """Bytes sent and received, by interface."""
    cpu_energy: Mapping[str, tuple[int, int]] | None
    """Microjoules and where they wrap around, by CPU package; None where they can't be read."""
    energy_j: float | None
    """Of the device."""
    other_processes: int | None
    """On the device."""


class Telemetry:
    """Counters of a rank's device and host in a window; made once for a process."""

    def __init__(
        self,
        device: torch.device,
        *,
        interval_s: float = 0.5,
        own_pids: Collection[int] | None = None,
        nvml: Any = pynvml,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Find the device; on a CPU NVML is not touched.

        Args:
            device: of this rank.
            interval_s: between two readings.
            own_pids: of all our processes on this device; None is this process alone.
            nvml: the library.
            now: the time source, in seconds.
        """
        self._gpu = None
        self._error_events = None
        if device.type == "cuda":
            self._gpu = find_gpu(torch.cuda.get_device_properties(device).uuid, nvml=nvml)
        if self._gpu:
            self._error_events = self._gpu.watch_errors()
        self._own_pids = frozenset(own_pids or {os.getpid()})
        self._interval_s = interval_s
        self._now = now
        self._begun = threading.Event()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def counts_energy(self) -> bool:
        """True if the device counts the energy that it uses."""
        return self._gpu is not None and self._gpu.energy_j() is not None

    @contextmanager
    def sampled(self) -> Iterator[None]:
        """Have a thread that takes readings from `start` to `stop`.

        It ends with this block, whatever happens.
        """
        # Its start takes longer than what it does: it must not fall into the window.
        self._begun = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._read_until,
            args=(self._begun, self._ended),
            name="dtsweep-telemetry",
            daemon=True,
        )
        self._thread.start()
        try:
            yield
        finally:
            self._end_readings()

    def start(self) -> None:
        """Read the counters at the window's start; a window left open is forgotten."""
        self._gpu_readings: list[tuple[float, Reading]] = []
        self._memory_bytes: list[int] = []
        if self._gpu:
            self._gpu.errors(self._error_events)  # those from before the window
        self._first = self._edge()
        self._begun.set()

    def stop(self) -> dict[str, Any]:
        """End the window.

        Returns:
            The columns of `ranks` that telemetry knows, None where unknown; those of a GPU only
            where NVML has one; and `telemetry_flags`, names of `FLAG_MEANINGS`.
        """
        last = self._edge()
        self._end_readings()
        if not self._memory_bytes:
            self.read()
        columns = {
            **_host_columns(self._first, last),
            "host_memory_used_bytes": max(self._memory_bytes),
        }
        if not self._gpu:
            return {**columns, "telemetry_flags": []}
        columns |= _gpu_columns(self._first, last, self._gpu_readings)
        columns["power_limit_w"] = self._gpu.power_limit_w()
        columns["device_errors"] = self._gpu.errors(self._error_events)
        noticed = _flags(columns)
        # Without an energy counter no window is long enough for it.
        if last.energy_j is not None and columns["energy_j"] is None:
            noticed.append("window_short")
        return {**columns, "telemetry_flags": noticed}

    def read(self) -> None:
        """Take one reading, as the thread does every `interval_s`."""
        if self._gpu:
            self._gpu_readings.append((self._now() - self._first.at_s, self._gpu.read()))
        memory = psutil.virtual_memory()
        self._memory_bytes.append(memory.total - memory.available)

    def _read_until(self, begun: threading.Event, ended: threading.Event) -> None:
        begun.wait()
        while not ended.wait(self._interval_s):
            self.read()

    def _end_readings(self) -> None:
        self._ended.set()
        self._begun.set()
        if self._thread:
            self._thread.join()

    def _edge(self) -> _Edge:
        cpu = psutil.cpu_times()
        # Time of guests is part of `user` and `nice` already.
        total_s = sum(cpu) - cpu.guest - cpu.guest_nice
        return _Edge(
            at_s=self._now(),
            process_s=time.process_time(),
            cpu_s=(total_s - cpu.idle - cpu.iowait, total_s),
            network=network_bytes(),
            cpu_energy=cpu_energy_counters(),
            energy_j=self._gpu.energy_j() if self._gpu else None,
            other_processes=self._gpu.other_processes(self._own_pids) if self._gpu else None,
        )


def _host_columns(first: _Edge, last: _Edge) -> dict[str, Any]:
    """Columns of `ranks` for the process and its host between two edges."""
    busy_s = last.cpu_s[0] - first.cpu_s[0]
    total_s = last.cpu_s[1] - first.cpu_s[1]
    # The kernel counts in hundredths of a second: in a shorter window nothing has moved.
    cpu_share = None
    if total_s > 0:
        cpu_share = min(1.0, max(0.0, busy_s / total_s))
    sent, received = None, None
    if interfaces := last.network.keys() & first.network.keys():
        sent = sum(last.network[name][0] - first.network[name][0] for name in interfaces)
        received = sum(last.network[name][1] - first.network[name][1] for name in interfaces)
    return {
        "process_cpus": (last.process_s - first.process_s) / (last.at_s - first.at_s),
        "host_cpu_share": cpu_share,
        "network_sent_bytes": sent,
        "network_received_bytes": received,
        "cpu_energy_j": cpu_energy_j(first.cpu_energy, last.cpu_energy),
    }


def _gpu_columns(
    first: _Edge, last: _Edge, readings: Sequence[tuple[float, Reading]]
) -> dict[str, Any]:
    """Columns of `ranks` for a GPU between two edges."""
    columns: dict[str, Any] = {}
    for column, (field, reduced, since_s) in _READ_COLUMNS.items():
        values = _without_none(
            getattr(reading, field) for at_s, reading in readings if at_s >= since_s
        )
        columns[column] = reduced(values) if values else None
    seconds = last.at_s - first.at_s
    energy_j = None
    if first.energy_j is not None and last.energy_j is not None and seconds >= ENERGY_FROM_S:
        energy_j = last.energy_j - first.energy_j
        columns["power_w"] = energy_j / seconds
    counts = _without_none((first.other_processes, last.other_processes))
    other_processes = max(counts, default=None)
    return {**columns, "energy_j": energy_j, "other_processes": other_processes}


def _flags(columns: Mapping[str, Any]) -> list[str]:
    errors = columns["device_errors"] or []
    conditions = {
        "shared_gpu": bool(columns["other_processes"]),
        "throttled": not SLOWDOWNS.isdisjoint(columns["throttle_reasons"] or ()),
        "ecc": any(error.startswith("ECC") for error in errors),
        "xid": any(error.startswith("Xid") for error in errors),
    }
    return [name for name, holds in conditions.items() if holds]


def _without_none(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if value is not None]
