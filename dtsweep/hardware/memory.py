"""Memory of one rank: its peak in a trial, and cleaning up between two trials."""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path

import torch

_HANDLE_BYTES = 256 * 2**20
"""Free memory of a GPU below which a handle of cuBLAS or cuDNN may not fit."""


def release_memory(device: torch.device) -> int:
    """Give back what the last trial left, start a new peak, and return the bytes still in use.

    On a GPU the bytes are those of torch's allocator, on a CPU the anonymous memory of the process:
    pages that it shares with others (Ray's object store) stay mapped after a trial, and those of
    files are the kernel's to take back.
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
    return _proc_bytes("self/status", "RssAnon")[0]


def restart_peak(device: torch.device) -> None:
    """Let the peak be what is in use now."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        # "5" sets the peak of the resident memory (VmHWM) back to what it is now: proc(5).
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_bytes(device: torch.device) -> int:
    """The most that was in use since the last `release_memory` or `restart_peak`.

    On a CPU resident memory: the kernel's peak of all of it, less what the process shares with
    others by now.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak, shared = _proc_bytes("self/status", "VmHWM", "RssShmem")
    return peak - shared


def reserved_peak_bytes(device: torch.device) -> int | None:
    """The most that torch's allocator held since the peak was restarted; None on a CPU."""
    if device.type != "cuda":
        return None
    return torch.cuda.max_memory_reserved(device)


def free_bytes(device: torch.device) -> int | None:
    """Memory of a GPU that no process has taken.

    None on a CPU, and for a GPU that doesn't answer because a kernel has failed.
    """
    if device.type != "cuda":
        return None
    try:
        free, _ = torch.cuda.mem_get_info(device)
    except RuntimeError:
        return None
    return free


def gpu_room_bytes(device: torch.device) -> int:
    """Bytes that torch can still allocate on a GPU on top of its peak.

    The peak is that since the last `restart_peak`. Memory that the allocator keeps for reuse counts
    as free.
    """
    untaken_bytes, _ = torch.cuda.mem_get_info(device)
    unused_bytes = torch.cuda.memory_reserved(device) - torch.cuda.max_memory_allocated(device)
    return untaken_bytes + unused_bytes


def oom_status(error: BaseException) -> str | None:
    """Status of a trial for an exception about lack of memory: `oom_host` or `oom_device`."""
    text = str(error)
    if isinstance(error, MemoryError) or "DefaultCPUAllocator" in text:
        return "oom_host"
    # Libraries that take memory for themselves (cuBLAS, cuDNN, NCCL) have words of their own for
    # it.
    full = (
        "CUDA out of memory",
        "'out of memory'",
        "_STATUS_ALLOC_FAILED",
        # Of a call that is checked, of expandable segments, and of NCCL.
        "CUDA error: out of memory",
        "CUDA driver error: out of memory",
        "Failed to CUDA malloc",
        "Failed to CUDA calloc",
    )
    if isinstance(error, torch.OutOfMemoryError) or any(words in text for words in full):
        return "oom_device"
    # What cuBLAS and cuDNN say where there is no room for a handle, and on other occasions.
    if "_STATUS_NOT_INITIALIZED" in text and _is_full():
        return "oom_device"
    return None


def _is_full() -> bool:
    """True if the current GPU has less free than a library's handle takes."""
    if not torch.cuda.is_available():
        return False
    try:
        free_bytes, _ = torch.cuda.mem_get_info()
    except RuntimeError:  # a kernel has failed: the device answers no more
        return False
    return free_bytes < _HANDLE_BYTES


def retries(device: torch.device) -> int:
    """Number of times that the device's allocator ran full, emptied its cache and tried again."""
    if device.type != "cuda":
        return 0
    return int(torch.cuda.memory_stats(device).get("num_alloc_retries", 0))


def total_bytes(device: torch.device) -> int:
    """Memory of the device; for a CPU the machine's."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return _proc_bytes("meminfo", "MemTotal")[0]


def _proc_bytes(path: str, *names: str) -> list[int]:
    """Values of the names in a file of /proc, read at once."""
    lines = Path("/proc", path).read_text(encoding="ascii", errors="replace").splitlines()
    values = dict(line.split(":", 1) for line in lines)
    return [int(values[name].split()[0]) * 1024 for name in names]
