"""Random states of a process: set, and restored after code that draws numbers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

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
