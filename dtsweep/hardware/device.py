"""Waiting for a device, and for all ranks; what a device is for a compiler."""

from __future__ import annotations

import torch
from torch import distributed


def wait_for(device: torch.device) -> None:
    """Wait until a device has done all its work; a CPU has when its calls return."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def compute_capability(device: torch.device) -> tuple[int, int] | None:
    """CUDA compute capability of a GPU, (major, minor).

    None for a CPU, and for a GPU of AMD, whose numbers under this name mean something else.
    """
    if device.type != "cuda" or torch.version.hip is not None:
        return None
    return torch.cuda.get_device_capability(device)


def has_compiler(device: torch.device) -> bool:
    """True if kernels can be made for a device: by a C++ compiler for a CPU, by Triton for a GPU.

    Imports torch's compiler, which takes seconds.
    """
    if device.type != "cpu":
        from torch.utils._triton import has_triton

        return bool(has_triton())
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return False
    return True


def barrier(device: torch.device) -> None:
    """Wait for the device, then for all ranks; outside a process group there are no others."""
    wait_for(device)
    if distributed.is_initialized():
        distributed.barrier(device_ids=[device.index] if device.type == "cuda" else None)
