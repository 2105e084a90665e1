"""Memory of one rank: its peak in a trial, and cleaning up between two trials."""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path

import torch


def release_memory(device: torch.device) -> int:
    """Give back what the last trial left, start a new peak, and return the bytes still in use.

    On a GPU the bytes are those of torch's allocator, on a CPU the resident memory of the process.
    """
    gc.collect()
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        restart_peak(device)
        return torch.cuda.memory_allocated(device)
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    restart_peak(device)
    return _status_bytes("VmRSS")


def restart_peak(device: torch.device) -> None:
    """Let the peak be what is in use now."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        # "5" sets the peak of the resident memory (VmHWM) back to what it is now: proc(5).
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_bytes(device: torch.device) -> int:
    """The most that was in use since the last `release_memory` or `restart_peak`."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else _status_bytes("VmHWM")


def oom_status(error: BaseException) -> str | None:
    """`oom_host` or `oom_device` where an exception says that there is no memory left, as a trial's status."""
    text = str(error)
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in text:
        return "oom_host"
    # Libraries that take memory for themselves (cuBLAS, cuDNN, NCCL) have words of their own for it.
    full = ("CUDA out of memory", "'out of memory'", "_STATUS_ALLOC_FAILED")
    if isinstance(error, torch.OutOfMemoryError) or any(words in text for words in full):
        return "oom_device"
    return None


def retries(device: torch.device) -> int:
    """How often the device's allocator ran full, emptied its cache and tried again."""
    return int(torch.cuda.memory_stats(device).get("num_alloc_retries", 0)) if device.type == "cuda" else 0


def total_bytes(device: torch.device) -> int:
    """What the device has; for a CPU the machine's memory."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return int(_proc_line("/proc/meminfo", "MemTotal")) * 1024


def _status_bytes(name: str) -> int:
    return int(_proc_line("/proc/self/status", name)) * 1024


def _proc_line(path: str, name: str) -> str:
    lines = Path(path).read_text(encoding="ascii", errors="replace").splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{name}:"))
