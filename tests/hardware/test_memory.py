"""Memory of a rank on a CPU: its own, and not what it shares with others."""

from __future__ import annotations

import mmap
from collections.abc import Iterator

import pytest
import torch

from dtsweep.hardware.memory import (
    free_bytes,
    gpu_room_bytes,
    oom_status,
    peak_bytes,
    release_memory,
    reserved_peak_bytes,
    restart_peak,
)

CPU = torch.device("cpu")
SIZE, NOISE = 64 * 2**20, 16 * 2**20


@pytest.fixture
def shared() -> Iterator[mmap.mmap]:
    """Pages as Ray's object store maps them into its processes: in use, none the process' own."""
    with mmap.mmap(-1, SIZE) as memory:
        yield memory


def written(memory: mmap.mmap | bytearray) -> None:
    memory[:] = b"x" * len(memory)


@pytest.mark.slow
def test_what_a_trial_leaves_is_its_own_memory(shared: mmap.mmap) -> None:
    before = release_memory(CPU)
    written(shared)
    assert abs(release_memory(CPU) - before) < NOISE
    own = bytearray(SIZE)
    written(own)
    assert release_memory(CPU) - before > SIZE - NOISE
    del own
    assert abs(release_memory(CPU) - before) < NOISE


def test_a_peak_is_of_the_trials_own_memory(shared: mmap.mmap) -> None:
    restart_peak(CPU)
    before = peak_bytes(CPU)
    # Piece by piece: what is written at once is the process' own before it is shared.
    for start in range(0, SIZE, 2**20):
        shared[start : start + 2**20] = b"x" * 2**20
    assert peak_bytes(CPU) - before < NOISE
    own = bytearray(SIZE)
    written(own)
    del own
    # A trial ends with what it shares as its steps had it; the peak of its own is kept.
    assert peak_bytes(CPU) - before > SIZE - NOISE
    restart_peak(CPU)
    assert peak_bytes(CPU) - before < NOISE


@pytest.mark.parametrize(
    ("text", "free_mib", "status"),
    [
        ("CUDA out of memory. Tried to allocate 2.00 GiB", 1024, "oom_device"),
        ("CUDA error: out of memory", 1024, "oom_device"),
        ("CUDA driver error: out of memory", 1024, "oom_device"),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate", 1024, "oom_device"),
        ("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling", 1, "oom_device"),
        ("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling", 1024, None),
        ("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", 1, "oom_device"),
        ("ncclUnhandledCudaError: Failed to CUDA calloc async 608 bytes", 1, "oom_device"),
        ("DefaultCPUAllocator: can't allocate memory", 1024, "oom_host"),
        ("CUDA error: device-side assert triggered", 1, None),
    ],
)
def test_a_lack_of_memory_has_many_words(
    text: str, free_mib: int, status: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free_mib * 2**20, 2**35))
    assert oom_status(RuntimeError(text)) == status


def test_a_cpu_is_not_asked_for_the_memory_of_a_gpu() -> None:
    assert oom_status(RuntimeError("CUBLAS_STATUS_NOT_INITIALIZED")) is None
    assert (free_bytes(CPU), reserved_peak_bytes(CPU)) == (None, None)


def test_a_gpu_has_room_for_what_is_free_or_reserved_beyond_the_peak(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Of device 1: 10 free, and of 6 reserved 4 were in use at the peak.
    gpu = torch.device("cuda", 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (device.index * 10, 2**35))
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: device.index * 7)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: device.index * 6)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: device.index * 4)
    assert (free_bytes(gpu), reserved_peak_bytes(gpu), gpu_room_bytes(gpu)) == (10, 7, 12)


def test_a_gpu_that_answers_no_more_has_an_unknown_amount_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: torch.device) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(torch.cuda, "mem_get_info", fail)
    assert free_bytes(torch.device("cuda", 0)) is None
