"""Settings of a loop's data loaders as axes: their values, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from dtsweep import Sweep, SweepError, workloads
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.constraints import Harness, impossible


def train(_: object) -> None:
    """A loop."""


def sweep_of(**settings: list[Any]) -> Sweep:
    axes = {f"loader.{name}": values for name, values in settings.items()}
    return Sweep(workload=workloads.Loop(train), axes=axes)


def test_points_without_processes_are_one_whatever_they_would_prefetch() -> None:
    listed = candidates(sweep_of(num_workers=[0, 2], prefetch_factor=[None, 2, 4]))
    values = [tuple(candidate.point.workload.loader.values()) for candidate in listed]
    assert values == [(0, None), (2, None), (2, 2), (2, 4)]


def test_memory_is_pinned_for_gpus_alone() -> None:
    pinned, other = (one.point for one in candidates(sweep_of(pin_memory=[True, False])))
    reason = "loader.pin_memory needs GPUs: it is for copies to them; use loader.pin_memory=False"
    assert impossible(pinned, Harness(has_gpus=False)) == reason
    assert impossible(pinned, Harness(has_gpus=True)) is None
    assert impossible(other, Harness(has_gpus=False)) is None


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("num_workers", -1, "loader.num_workers=-1 must be at least 0"),
        ("prefetch_factor", 0, "loader.prefetch_factor=0 must be at least 1"),
        ("num_workers", "many", "loader.num_workers='many' must be a whole number"),
        ("pin_memory", 1, "loader.pin_memory=1 must be True or False"),
        ("num_worker", 1, r"axis 'loader.num_worker' is not a setting of a DataLoader that can be"),
        (
            "batch_size",
            1,
            "'loader.batch_size' is not a setting of a DataLoader .*; allowed: loader.num_workers",
        ),
    ],
)
def test_what_no_data_loader_takes_is_refused_by_name(name: str, value: Any, message: str) -> None:
    with pytest.raises(SweepError, match=message):
        candidates(sweep_of(**{name: [value]}))
