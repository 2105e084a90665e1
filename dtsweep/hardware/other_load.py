"""CPU use of other processes, on the cores that this process may use."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # its types are a package of their own

from dtsweep.hardware.host import ROOT, kernel_text

_LEAST_CORES = 0.25
_LEAST_SHARE = 0.05
"""Use by others, in cores and as a share of ours, below which nothing is said."""

_INTERVAL_S = 0.5
"""Seconds between two readings, at least: the kernel counts in hundredths."""


@dataclass(frozen=True, kw_only=True)
class CpuReading:
    """CPU times until now, in seconds, of the cores that this process may use."""

    at_s: float
    busy_s: float
    """Of these cores, over all processes; with the time that a virtual machine had to wait."""

    own_s: float
    """Of our processes, and of those of their children that have ended."""

    cores: float
    """Count of these cores."""


def read_cpus(pids: Iterable[int] | None = None, *, root: Path = ROOT) -> CpuReading | None:
    """Read the counters of the kernel.

    Args:
        pids: processes that are ours, with all below them; None: this one.
        root: where `proc` and `sys` are.

    Returns:
        None where the kernel gives no times.
    """
    cores = os.sched_getaffinity(0)
    busy_s = _busy_s({f"cpu{core}" for core in cores}, root=root)
    if not busy_s:
        return None
    return CpuReading(
        at_s=time.monotonic(),
        busy_s=busy_s,
        own_s=_own_s([os.getpid()] if pids is None else pids),
        cores=len(cores),
    )


def others_use(first: CpuReading, last: CpuReading) -> tuple[float, float]:
    """Cores that other processes used between two readings, and those that we may use.

    >>> first = CpuReading(at_s=0, busy_s=0, own_s=0, cores=8)
    >>> others_use(first, CpuReading(at_s=2, busy_s=5, own_s=2, cores=8))
    (1.5, 8)
    """
    others_s = last.busy_s - first.busy_s - (last.own_s - first.own_s)
    return min(max(0.0, others_s) / (last.at_s - first.at_s), last.cores), last.cores


def other_load_words(others: float, cores: float) -> str | None:
    """Words on the load of others; None where it is small.

    >>> other_load_words(1.13, 2)
    'other processes use 1.1 of 2 cores: expect noisier numbers and more rounds; stop them or wait'
    """
    if others < max(_LEAST_CORES, _LEAST_SHARE * cores):
        return None
    return (
        f"other processes use {others:.1f} of {cores:g} cores: expect noisier numbers and more "
        "rounds; stop them or wait"
    )


class OtherLoad:
    """Load of others since the object was made: make it early, and ask when it matters."""

    def __init__(self, address: str | None = None, *, pids: Iterable[int] | None = None) -> None:
        """Take the first reading.

        Args:
            address: of the Ray that measures; with one, this machine's load does not matter.
            pids: processes that are ours, with all below them; None: this one.
        """
        self._pids = None if pids is None else [*pids]
        self._first = None
        if address in (None, "local") and not os.environ.get("RAY_ADDRESS"):
            self._first = read_cpus(self._pids)

    def use(self) -> tuple[float, float] | None:
        """`others_use` over half a second or more; None where it is unknown or does not matter."""
        if self._first is None:
            return None
        time.sleep(max(0.0, self._first.at_s + _INTERVAL_S - time.monotonic()))
        last = read_cpus(self._pids)
        if last is None:
            return None
        return others_use(self._first, last)

    def words(self) -> str | None:
        """`other_load_words` of this use."""
        use = self.use()
        if use is None:
            return None
        return other_load_words(*use)


def processes_of_ray(session: str) -> list[int]:
    """List the processes that Ray started for a session on this host, by its folder's name."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if any(session in word for word in process.info["cmdline"] or ())
    ]


def _busy_s(names: set[str], *, root: Path) -> float:
    ticks = 0
    for line in (kernel_text(root / "proc/stat") or "").splitlines():
        name, *counts = line.split()
        if name in names:
            user, nice, system, _, _, *interrupts = map(int, counts[:8])
            ticks += user + nice + system + sum(interrupts)
    return ticks / os.sysconf("SC_CLK_TCK")


def _own_s(pids: Iterable[int]) -> float:
    """CPU time of processes and all below them, each once."""
    own: dict[int, psutil.Process] = {}
    for pid in pids:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            own[pid] = process
            own |= {child.pid: child for child in process.children(recursive=True)}
    total_s = 0.0
    for process in own.values():
        with suppress(psutil.Error):
            times = process.cpu_times()
            total_s += times.user + times.system + times.children_user + times.children_system
    return total_s
