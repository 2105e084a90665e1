"""Step times to measure with: drawn ones, and real ones where they are at hand."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import lfilter


def drawn(
    count: int, steps: int, *, cv: float, rho: float = 0.0, seed: int = 0
) -> NDArray[np.float64]:
    """(count, steps) series of mean 1 s, whose steps correlate by `rho` with the one before."""
    noise = np.random.default_rng(seed).normal(size=(count, steps))
    noise[:, 1:] *= np.sqrt(1 - rho**2)
    return 1 + cv * lfilter([1.0], [1.0, -rho], noise, axis=1)


def warming_up(
    count: int, steps: int, *, slower: float, tau: float, cv: float = 0.02
) -> NDArray[np.float64]:
    """Series that begin this share slower, and come e times closer to 1 s every `tau` steps."""
    return drawn(count, steps, cv=cv) * (1 + slower * np.exp(-np.arange(steps) / tau))


def series_folder() -> Path:
    folder = Path(os.environ.get("DTSWEEP_TEST_DATA", "")) / "step_series"
    if not folder.is_dir():
        pytest.skip("DTSWEEP_TEST_DATA names no folder with step_series")
    return folder
