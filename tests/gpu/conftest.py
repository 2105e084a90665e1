"""What tests on a GPU share: a GPU that is there, and whose clocks are up."""

from __future__ import annotations

import os
import time

import pytest
import torch

from benchmarks.gpu_facts import why_no_gpu

WARM_S = 0.5
"""Time in which an idle GPU raises its clocks."""

CYCLES = 2_000_000
"""Clock ticks of a GPU: about a millisecond."""


def pytest_sessionstart() -> None:
    """End without a test where `DTSWEEP_NEEDS_GPU` is set and torch can use no GPU.

    All tests would be skipped, which pytest calls a success.
    """
    if os.environ.get("DTSWEEP_NEEDS_GPU") and (reason := why_no_gpu()):
        pytest.exit(f"no test of tests/gpu can run here: {reason}", returncode=1)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark each test of this folder, and skip it where torch has no GPU."""
    item.add_marker(pytest.mark.gpu)
    has_none = not torch.cuda.is_available()
    item.add_marker(pytest.mark.skipif(has_none, reason="needs a CUDA GPU, and there is none here"))


@pytest.fixture
def _warm_gpu() -> None:
    """Keep the GPU busy until its clocks are up: ratios of times need the same clock."""
    until = time.perf_counter() + WARM_S
    while time.perf_counter() < until:
        torch.cuda._sleep(CYCLES)
        torch.cuda.synchronize()
