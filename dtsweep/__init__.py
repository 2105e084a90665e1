"""Measure the latency/throughput frontier of a distributed training job on a Ray cluster."""

from dtsweep import workloads
from dtsweep.errors import StorageError, SweepError
from dtsweep.point import Point
from dtsweep.sweep import Measure, Resources, Sweep

__all__ = ["Measure", "Point", "Resources", "StorageError", "Sweep", "SweepError", "workloads"]
