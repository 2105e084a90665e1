"""Random states of a process: set, and restored after code that draws numbers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def set_seed(seed: int) -> None:
    """Seed Python's, NumPy's and torch's random states, on the CPU and on all devices."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # user code draws from the global state
    torch.manual_seed(seed)


@contextmanager
def random_states_kept(device: torch.device) -> Iterator[None]:
    """Restore the random states of Python, NumPy and torch, on the CPU and on this device."""
    python_state = random.getstate()
    numpy_state = np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)


class RandomStates:
    """Random states of one of several models that train by turns in a process."""

    def __init__(self, device: torch.device) -> None:
        """Begin with those that the process has at the first use."""
        self._device = device
        self._states: tuple[Any, ...] | None = None

    @contextmanager
    def used(self) -> Iterator[None]:
        """Set these states for a while and keep how they end; then restore those of the process."""
        has_gpu = self._device.type == "cuda"
        with random_states_kept(self._device):
            if self._states is not None:
                python_state, numpy_state, torch_state, gpu_state = self._states
                random.setstate(python_state)
                np.random.set_state(numpy_state)
                torch.set_rng_state(torch_state)
                if has_gpu:
                    torch.cuda.set_rng_state(gpu_state, self._device)
            yield
            gpu_state = torch.cuda.get_rng_state(self._device) if has_gpu else None
            states = random.getstate(), np.random.get_state(), torch.get_rng_state()
            self._states = (*states, gpu_state)
