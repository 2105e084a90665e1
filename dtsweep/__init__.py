"""Measure the latency/throughput frontier of a distributed training job on a Ray cluster.

The reading order; a module imports only modules above it (`tests/test_imports.py` takes the order from here):

    errors                      what a user did that can't be measured, in one line
    sync                        the list of sync modes, readable without torch
    point                       one setting of all axes, and its identity
    checks                      what is refused before a point is made
    sweep                       a question: axes, workload, limits; what a sweep file holds
    axes                        from axes to points, the impossible ones with their reason
    sweepfile                   reads a sweep file, and says what is wrong with file and line
    workloads.fields            checks of a workload's fields
    workloads.samples           samples by their number, kept on the device
    workloads.cifar10           a small convolutional network
    workloads.gpt               a small decoder language model
    workloads.transformers      well-known models from their configurations
    workloads                   what is trained: the three methods, and the list of ours
    order                       one attempt at a trial, as it travels to the ranks
    statuses                    how an attempt can end, and what flags warn of
    schema                      every stored column, with unit and meaning
    folder                      where results lie: a disk or an object store
    parts                       one Parquet file, believed only if its digest agrees
    store                       the three data sets; the trial row is the commit
    versions                    versions of what measures
    digest                      a digest of the workload's source
    revision                    the revision of the sweep's own files
    plan                        what is done, what is to do, in which order
    measure                     the parts of a measurement:
    measure.statistics          rates and latencies with their intervals
    measure.steady              where the warm-up ends, and whether the rest is steady
    measure.stopping            when a window ends: the one place that decides
    measure.clock               when each phase and step ended
    measure.window              how ranks stop at the same step without asking each other
    measure.memory              the peak of a trial, and cleaning up after it
    measure.exchange            what the exchange costs: with and without it in turns
    measure.nvml                what NVML says of a device, unknown where it says nothing
    measure.host                what the host's own counters say
    measure.telemetry           what devices and hosts did in a window
    measure.machine             what a rank runs on: the fingerprint behind env_id
    measure.flops               FLOPs of a sample, counted without computing
    measure.peaks               what a device can do: a table, and a matrix product
    measure.timeline            who was at work when: intervals of a trace
    measure.profile             a trace of some steps, and its kernels by class
    sync.passes                 the passes of a step, which all modes share
    sync.ddp                    the mode ddp
    sync.local_sgd              the mode local_sgd
    sync.parameter_server       the mode parameter_server, both its sides
    shares                      where a step's time and a device's power go
    flags                       what to know before trusting a trial's figures
    figures                     from the steps of all ranks to the figures of a trial
    record                      from what the ranks sent to rows
    loop                        the timed loop of a rank, and its steps by part
    aftermath                   what is measured after the window
    timing                      the timed part of a trial on one rank
    worker                      one rank: builds a trial and has it timed; knows nothing of Ray
    control                     one point under torchrun, without Ray
    ranks                       the loop in which a session's ranks take orders
    nodes                       what is asked of the nodes on which ranks live
    launch                      one TorchTrainer run: its ranks, and how it ended
    session                     a launch at a time, handed trial after trial
    cluster                     which Ray is used, and what fits on it
    scheduler                   hands out trials, and tries again where that may help
    drive                       Ray Tune over the scheduler; signals
    terminal                    words, numbers and tables as a terminal shows them
    progress                    the live line of a run
    keeper                      stores what a run brings
    runner                      plan, connect, drive, store
    analysis.spread             how much launches of one job differ, over a whole sweep
    analysis.launches           from trials to points
    analysis.frontier           which points no other one beats
    analysis.scaling            what more workers bring
    analysis.canaries           whether the machine changed while it was measured
    analysis.difference         whether two points can be told apart
    analysis                    the questions to the table of trials
    caveats                     what the report says of its own numbers
    cells                       tables of points and of scaling
    report                      the report in the terminal
    planning                    the plan as a person reads it
    doctor                      looks at every node before money is spent
    cli                         the command line
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dtsweep import workloads
from dtsweep.errors import StorageError, SweepError
from dtsweep.point import Point
from dtsweep.sweep import Measure, Resources, Sweep

__all__ = [
    "Measure",
    "Point",
    "Resources",
    "StorageError",
    "Sweep",
    "SweepError",
    "analysis",
    "load",
    "run",
    "steps",
    "workloads",
]

if TYPE_CHECKING:
    from dtsweep import analysis
    from dtsweep.runner import run
    from dtsweep.store import load, steps
else:

    def __getattr__(name: str) -> Any:
        """Import what needs Arrow, NumPy or Ray when it is first used."""
        match name:
            case "analysis":
                return import_module("dtsweep.analysis")
            case "load" | "steps":
                return getattr(import_module("dtsweep.store"), name)
            case "run":
                return import_module("dtsweep.runner").run
        raise AttributeError(f"module 'dtsweep' has no attribute {name!r}")
