"""Measure the latency/throughput frontier of a distributed training job on a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dtsweep import workloads
from dtsweep.errors import StorageError, SweepError
from dtsweep.point import Point
from dtsweep.sweep import Measure, Resources, Sweep

if TYPE_CHECKING:
    from dtsweep.runner import run
    from dtsweep.store import load, steps

__all__ = ["Measure", "Point", "Resources", "StorageError", "Sweep", "SweepError", "load", "run", "steps", "workloads"]


def __getattr__(name: str) -> Any:
    """Import what needs Arrow or Ray when it is first used."""
    import importlib

    owners = {
        "load": "dtsweep.store",
        "steps": "dtsweep.store",
        "run": "dtsweep.runner",
        "analysis": "dtsweep.analysis",
    }
    if name not in owners:
        raise AttributeError(f"module 'dtsweep' has no attribute {name!r}")
    module = importlib.import_module(owners[name])
    return module if owners[name].endswith(name) else getattr(module, name)
