"""The profile of steps on a GPU, whose kernels only a GPU runs."""

from __future__ import annotations

import gzip
import json

import pytest
import torch

from dtsweep.measure.profile import WINDOW, profiled

pytestmark = pytest.mark.usefixtures("_warm_gpu")

MILLISECOND = 2_000_000
"""Clock ticks of a GPU that keep it busy for about that long."""


def test_the_trace_has_the_kernels_of_the_steps_and_lasts_as_long() -> None:
    trace = profiled(
        lambda: torch.cuda._sleep(20 * MILLISECOND), steps=3, device=torch.device("cuda", 0)
    )
    events = [e for e in json.loads(gzip.decompress(trace))["traceEvents"] if e.get("ph") == "X"]
    (steps,) = (e for e in events if e["name"] == WINDOW and e["cat"] == "user_annotation")
    end = steps["ts"] + steps["dur"]
    kernels = [e for e in events if e["cat"] == "kernel" and steps["ts"] <= e["ts"] <= end]
    assert len(kernels) == 3
    assert sum(kernel["dur"] for kernel in kernels) > 0.8 * steps["dur"]
