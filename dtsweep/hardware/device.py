"""Waiting for a device, and for all ranks."""

from __future__ import annotations

import torch
from torch import distributed


def wait_for(device: torch.device) -> None:
    """Wait until a device has done all its work; a CPU has when its calls return."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def barrier(device: torch.device) -> None:
    """Wait for the device, then for all ranks; outside a process group there are no others."""
    wait_for(device)
    if distributed.is_initialized():
        distributed.barrier(device_ids=[device.index] if device.type == "cuda" else None)
