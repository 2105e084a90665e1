"""Random states of a process, kept while something draws that must not change what is drawn after it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def random_states_kept(device: torch.device) -> Iterator[None]:
    """Give Python's, NumPy's and torch's random states back as they were, on the CPU and on this device."""
    own, numpy_own = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
    finally:
        random.setstate(own)
        np.random.set_state(numpy_own)
