"""The profile of some steps, by real traces of a CPU."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn

from dtsweep.measure.profile import WINDOW, ProfileError, profiled
from tests.ranks import results_of

CPU = torch.device("cpu")


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))


def profile_of(model: nn.Module, *, steps: int) -> bytes:
    batch = torch.ones(8, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()

    return profiled(step, steps=steps, device=CPU)


def events_inside(profile: bytes) -> Counter[str]:
    """How often what began between the first and the last profiled step."""
    events = json.loads(gzip.decompress(profile))["traceEvents"]
    timed = [event for event in events if event["ph"] == "X"]
    (steps,) = (event for event in timed if event["name"] == WINDOW)
    # Not until it ended: a thread of gloo may note that only after the step has gone on.
    return Counter(
        event["name"] for event in timed if 0 <= event["ts"] - steps["ts"] < steps["dur"]
    )


def test_on_a_cpu_there_is_a_small_chrome_trace_that_names_the_steps() -> None:
    profile = profile_of(small_model(), steps=5)
    # Two linear layers a step; the one before the window does not count.
    inside = events_inside(profile)
    assert inside["aten::addmm"] == 2 * 5
    assert {WINDOW, *(f"dtsweep: step {number}" for number in range(5))} <= inside.keys()
    assert len(profile) < 10**6


def test_one_step_pays_for_the_profiler_and_is_not_recorded() -> None:
    rounds: list[torch.Tensor] = []
    profile = profiled(lambda: rounds.append(torch.ones(8).cumsum(0)), steps=3, device=CPU)
    assert len(rounds) == 4
    assert events_inside(profile)["aten::cumsum"] == 3


def test_steps_of_which_nothing_can_be_told_say_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(ProfileError, match=r"FileNotFoundError: .*gone"):
        profile_of(small_model(), steps=1)


def profile_ddp(_: int) -> bytes:
    return profile_of(nn.parallel.DistributedDataParallel(small_model()), steps=4)


def test_two_processes_exchange_each_step_once_as_their_traces_show() -> None:
    for profile in results_of(profile_ddp, workers=2):
        events = events_inside(profile)
        # One bucket holds the whole model. The barrier before the window is no exchange of a step.
        assert events["gloo:all_reduce"] == 4
        assert "gloo:barrier" not in events
