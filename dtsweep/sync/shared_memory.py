"""Memory that the ranks of one host share: counts of updates, then parameters.

It has no name in a file system, so that nothing is left of it when ranks are killed.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

_LINE = 64
"""Bytes of a cache line: what starts on a line of its own is written by one core at a time."""


class SharedMemory:
    """Memory as one process has mapped it; it is given back with the last tensor in it."""

    def __init__(self, descriptor: int, token: str) -> None:
        """Map all of an open file.

        Raises:
            OSError: it can't be mapped.
            ValueError: it is empty.
        """
        self._descriptor: int | None = descriptor
        self.mapped = mmap.mmap(descriptor, os.fstat(descriptor).st_size)
        self.place = f"/proc/{os.getpid()}/fd/{descriptor}:{token}"

    def forget_place(self) -> None:
        """Close the file, once all ranks have mapped it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None


def allocate_shared(size: int) -> SharedMemory:
    """Allocate memory, filled with zeros, and mark it so that it is recognized.

    Raises:
        OSError: the host can't.
    """
    if not hasattr(os, "memfd_create"):
        raise OSError("no memory without a name: memfd_create is Linux's")
    descriptor = os.memfd_create("dtsweep-parameters")
    os.ftruncate(descriptor, _LINE + size)
    token = os.urandom(_LINE // 2).hex()
    memory = SharedMemory(descriptor, token)
    memory.mapped[:_LINE] = token.encode()
    return memory


def map_shared(place: str) -> SharedMemory | None:
    """Map memory of another process; None where it is not to be found, as on another host."""
    path, _, token = place.partition(":")
    try:
        memory = SharedMemory(os.open(path, os.O_RDWR), token)
    except (OSError, ValueError):
        return None
    if memory.mapped[:_LINE] != token.encode():
        memory.forget_place()
        return None
    return memory


def bytes_for(parameters: Sequence[nn.Parameter], workers: int) -> int:
    """Bytes for the counts of the workers' updates and for the parameters."""
    return _LINE * workers + sum(_lines(p) for p in parameters)


def update_counts(memory: SharedMemory, workers: int) -> NDArray[np.int64]:
    """(workers,) number of updates; each worker writes its own alone, so that no count is lost."""
    counts = np.frombuffer(memory.mapped, np.int64, count=workers * _LINE // 8, offset=_LINE)
    return counts[:: _LINE // 8]


def shared_views(
    memory: SharedMemory, parameters: Sequence[nn.Parameter], workers: int
) -> list[Tensor]:
    """Tensors in the memory, each with the shape, type and strides of a parameter."""
    values = torch.frombuffer(memory.mapped, dtype=torch.uint8)
    views, begin = [], _LINE * (1 + workers)
    for parameter in parameters:
        # Strides stay, as those of channels_last; but not of elements that share memory.
        layout = torch.empty_like(parameter, device="meta")
        flat = values[begin : begin + parameter.nbytes].view(parameter.dtype)
        views.append(flat.as_strided(layout.shape, layout.stride(), flat.storage_offset()))
        begin += _lines(parameter)
    return views


def _lines(parameter: nn.Parameter) -> int:
    """Bytes of a parameter, filled up to whole lines."""
    return -(-parameter.nbytes // _LINE) * _LINE
