"""Power limit of a GPU: set for a trial, given back after it.

A small file for each GPU says what was set. The process that has set a limit holds a lock on it.
Another process gives the limit back if the first was killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

import pynvml

from dtsweep.errors import SweepError
from dtsweep.hardware.nvml import Gpu, find_gpu
from dtsweep.results.private import make_private

ENFORCED_S = 5.0
"""Time limit for a new power limit to be enforced."""

ENDS_S = 5.0
"""Time limit for the end of a process that was killed."""

LOOK_S = 0.05
"""Interval of the looks at either."""

TOLERANCE_MW = 1000
"""Largest difference of equal limits, in milliwatts: a driver may round."""

FOLDER = Path("/tmp")  # noqa: S108  # others that use the GPU may have another TMPDIR
"""Place of the files: containers that share a GPU have to share it."""

_held: set[Path] = set()
"""Files that this process has locked: closing a file anywhere in a process drops its lock."""


class PowerLimitError(Exception):
    """A power limit that this GPU can't have; one line with the next step."""


@contextmanager
def power_limited(gpu: Gpu | None, watts: float) -> Iterator[None]:
    """Set the power limit of a GPU for a while; the earlier limit is given back at the end.

    Args:
        gpu: of this process; None where NVML has none.
        watts: the limit, in W.

    Raises:
        PowerLimitError: the GPU, its driver or the rights of this process don't allow the limit,
            it is not enforced, or another process has set one.
    """
    if gpu is None:
        raise PowerLimitError(
            "NVML knows no power limit of this GPU, or of a slice (MIG); leave power_limit out"
        )
    with _locked(gpu) as file:
        if file is None:
            raise PowerLimitError(
                "dtsweep has set the power limit of this GPU for another trial; wait for its end"
            )
        if reason := _restore(gpu, file):
            raise PowerLimitError(reason)
        try:
            _set(gpu, watts, file)
            yield
        finally:
            # No error: what was measured counts. The next trial on this GPU tries it again.
            if reason := _restore(gpu, file):
                print(f"dtsweep: {reason}", file=sys.stderr)  # noqa: T201


def give_back(gpu: Gpu, *, wait_s: float = 0.0) -> str | None:
    """Give back the power limit that a killed process left changed.

    Nothing is done where no process has set one, or the process that has set it still runs.

    Args:
        gpu: of any process.
        wait_s: time limit for that process to end, in seconds.

    Returns:
        Reason for a limit that could not be given back, or None.
    """
    try:
        if not _file_of(gpu).exists():
            return None
        with _locked(gpu, wait_s=wait_s) as file:
            if file is not None:
                return _restore(gpu, file)
    except (PowerLimitError, OSError) as error:
        return f"the power limit of a GPU may be that of a trial: {error}"
    if wait_s > 0:
        return "the process that has set the power limit of a GPU still runs; see nvidia-smi -q"
    return None


def give_back_all(uuids: Collection[str], *, nvml: Any = pynvml) -> list[str]:
    """Give back the power limits of GPUs of this machine whose processes were just killed.

    Args:
        uuids: of the GPUs, without NVML's `GPU-`.
        nvml: the library.

    Returns:
        Reasons for limits that could not be given back.
    """
    until = time.monotonic() + ENDS_S
    gpus = [find_gpu(uuid, nvml=nvml) for uuid in uuids]
    reasons = [
        give_back(gpu, wait_s=max(LOOK_S, until - time.monotonic()))
        for gpu in gpus
        if gpu is not None
    ]
    return [reason for reason in reasons if reason is not None]


def _set(gpu: Gpu, watts: float, file: FileIO) -> None:
    """Set a limit if it is another one, and wait until it is enforced."""
    limit_mw = round(watts * 1000)
    try:
        least_mw, most_mw = gpu.nvml.nvmlDeviceGetPowerManagementLimitConstraints(gpu.handle)
        if not least_mw <= limit_mw <= most_mw:
            raise PowerLimitError(
                f"power_limit={watts:g} is outside of {least_mw / 1000:g} to {most_mw / 1000:g} W, "
                "the range of this GPU; use a value inside"
            )
        earlier_mw = gpu.nvml.nvmlDeviceGetPowerManagementLimit(gpu.handle)
        if not _is_equal(earlier_mw, limit_mw):
            # Before the limit is set: this process may be killed at any moment.
            _write(file, earlier_mw, limit_mw)
            gpu.nvml.nvmlDeviceSetPowerManagementLimit(gpu.handle, limit_mw)
        _wait_until_enforced(gpu, limit_mw)
    except pynvml.NVMLError_NoPermission:
        raise PowerLimitError(
            f"no permission to set power_limit={watts:g}; run as root, or set it by "
            f"`sudo nvidia-smi -pl {watts:g}` and leave power_limit out"
        ) from None
    except pynvml.NVMLError_NotSupported:
        raise PowerLimitError(
            "the power limit of this GPU can't be set (NVML: Not Supported); leave power_limit out"
        ) from None
    except pynvml.NVMLError as error:
        raise PowerLimitError(
            f"power_limit={watts:g} can't be set (NVML: {error}); see nvidia-smi -q -d POWER"
        ) from error


def _write(file: FileIO, earlier_mw: int, limit_mw: int) -> None:
    content = json.dumps([earlier_mw, limit_mw]).encode()
    try:
        written = file.write(content)
    except OSError as error:
        raise PowerLimitError(f"no place for the earlier power limit: {error}") from error
    if written != len(content):
        raise PowerLimitError(f"no place for the earlier power limit in {FOLDER}: the disk is full")


def _wait_until_enforced(gpu: Gpu, limit_mw: int) -> None:
    until = time.monotonic() + ENFORCED_S
    while True:
        enforced_mw = gpu.nvml.nvmlDeviceGetEnforcedPowerLimit(gpu.handle)
        if _is_equal(enforced_mw, limit_mw):
            return
        if time.monotonic() > until:
            raise PowerLimitError(
                f"the GPU enforces {enforced_mw / 1000:g} W, not power_limit={limit_mw / 1000:g}: "
                "another limit is lower, see nvidia-smi -q -d POWER"
            )
        time.sleep(LOOK_S)


def _restore(gpu: Gpu, file: FileIO) -> str | None:
    """Set the earlier limit that the file names, unless somebody has changed it since.

    Returns the reason why that failed, or None.
    """
    file.seek(0)
    limits = _limits_in(file.read())
    if limits is None:
        file.truncate(0)
        return None
    earlier_mw, limit_mw = limits
    try:
        # Not after a restart of the machine, for example.
        if _is_equal(gpu.nvml.nvmlDeviceGetPowerManagementLimit(gpu.handle), limit_mw):
            gpu.nvml.nvmlDeviceSetPowerManagementLimit(gpu.handle, earlier_mw)
    except pynvml.NVMLError as error:
        return (
            f"the power limit of this GPU is still {limit_mw / 1000:g} W (NVML: {error}); "
            f"set it back by `sudo nvidia-smi -pl {earlier_mw / 1000:g}`"
        )
    file.truncate(0)
    return None


def earlier_limit_w(gpu: Gpu) -> float | None:
    """Limit that a GPU has outside of the trial that limits it now; None if no trial does."""
    path = _file_of(gpu)
    if path in _held:
        return None
    try:
        limits = _limits_in(path.read_bytes())
    except OSError:
        # There is none, or it is another user's.
        return None
    if limits is None:
        return None
    return limits[0] / 1000


def _limits_in(content: bytes) -> tuple[int, int] | None:
    """The earlier limit and that of the trial in a file; None if it has none, or is damaged."""
    try:
        earlier_mw, limit_mw = json.loads(content)
        return int(earlier_mw), int(limit_mw)
    except (ValueError, TypeError, OverflowError):
        return None


def _is_equal(first_mw: int, second_mw: int) -> bool:
    return abs(first_mw - second_mw) <= TOLERANCE_MW


def _file_of(gpu: Gpu) -> Path:
    """File on a GPU; empty, or the earlier limit and that of the trial in milliwatts, as JSON."""
    folder = FOLDER / f"dtsweep-power-{os.getuid()}"
    return folder / f"{gpu.ask('nvmlDeviceGetUUID')}.json"


@contextmanager
def _locked(gpu: Gpu, *, wait_s: float = 0.0) -> Iterator[FileIO | None]:
    """Open the file on a GPU under its lock; None if it is locked after the wait, by any process.

    The file stays: a lock on one that was deleted would exclude nobody.
    """
    path = _file_of(gpu)
    if path in _held:
        yield None
        return
    try:
        make_private(path.parent)
        # Without a buffer: what does not fit on the disk is not written later.
        file = FileIO(path, "a+")
    except (OSError, SweepError) as error:
        raise PowerLimitError(f"no place for the earlier power limit: {error}") from error
    with file:
        if not _lock(file, until=time.monotonic() + wait_s):
            yield None
            return
        _held.add(path)
        try:
            yield file
        finally:
            _held.discard(path)


def _lock(file: FileIO, *, until: float) -> bool:
    """Lock a file for this process alone; its child processes don't inherit the lock."""
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            if time.monotonic() > until:
                return False
            time.sleep(LOOK_S)
        else:
            return True
