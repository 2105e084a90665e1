"""Trace of some steps by torch's profiler; never inside a timed window."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from dtsweep.hardware.device import barrier, wait_for

WINDOW = "dtsweep: profiled steps"
"""Name of the range that spans the profiled steps."""

STEP = "dtsweep: step {}"
"""Name of a step in the trace, by its number."""


class ProfileError(Exception):
    """The steps ran, but nothing is known of them."""


def profiled(step: Callable[[], None], *, steps: int, device: torch.device) -> bytes:
    """Run some steps under torch's profiler; all ranks together.

    A step under the profiler is slower, by some microseconds an operator: small models by half, so
    the trace is for shares and not for step times. On a CPU the start takes a millisecond, and what
    follows the steps a fifth of a second where the trace has 5 MB (5 steps of a four-layer `Gpt`;
    0.4 MB in gzip). On a GPU the first start loads CUPTI, which can take seconds; and CUPTI stays
    attached and slows all later steps, unless `TEARDOWN_CUPTI=1` is in the environment (pytorch
    issue 144455). So a profile comes after everything that is timed in its process.

    Args:
        step: runs one step; called once more than `steps`, since the first step under the profiler
            pays for it.
        steps: how many are recorded; where an exchange falls on one step in a period, a multiple of
            that period.
        device: where this rank computes.

    Returns:
        A Chrome trace, JSON in gzip; Perfetto opens it.

    Raises:
        ProfileError: the steps ran, but their trace can't be written or read.
    """
    with recorder(device) as profiler:
        step()
        # A profiler that started late elsewhere is no exchange.
        barrier(device)
        wait_for(device)
        with record_function(WINDOW):
            for number in range(steps):
                with record_function(STEP.format(number)):
                    step()
            wait_for(device)
    return trace_of(profiler)


def recorder(device: torch.device) -> profile:
    """Make torch's profiler for steps on a device."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    # Shapes, stacks and memory would slow the steps down and make the trace many times larger.
    return profile(activities=activities)


def trace_of(profiler: profile) -> bytes:
    """Read what was recorded, as `profiled` returns it.

    Args:
        profiler: has ended; `WINDOW` and `STEP` are ranges of its trace.

    Raises:
        ProfileError: the trace can't be written or read.
    """
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "trace.json")
            profiler.export_chrome_trace(str(file))
            return gzip.compress(file.read_bytes(), mtime=0)
    except (OSError, RuntimeError) as error:
        raise ProfileError(f"{type(error).__name__}: {error}") from error
