"""Measure the latency/throughput frontier of a distributed training job on a Ray cluster.

A point × repeat is a trial; each try at it is an attempt, whose message to the ranks is a task. A
session is a live worker group that measures many points, so that it is one launch of each of them;
a repeat is measured in another launch. A slot is an actor that holds one session at a time. A world
is a set of workers that needs a process group of its own, a window the timed steps of a trial, a
canary a fixed point that shows whether the machine changed.

From a sweep file to Parquet: points, trials, tasks, ranks, their results, rows. From Parquet to an
answer: rows, the attempt that stands for each trial, launches, points; then frontiers (`report`) or
candidates (`recommend`), and words.

The rooms, in the order of imports: a caller stands below what it calls, so follow a value from
`cli` upwards. A room imports only rooms above it, a file only files above it in its room's own
list; `tests/test_imports.py` reads both lists. On the right stands which processes import a room;
readers are processes that read results:

    secret          secrets in texts; what pages and exports leave out
    errors          what a user did that can't be measured, in one line
    escape          text of others in HTML, JSON and CSV
    text            numbers and tables for the terminal
    provenance      what a number was measured with: versions, source, revision
    sweep           the question: axes, points, settings                    any process
    workloads       what is trained: three methods, a family to choose from ranks
    results         what is kept: three Parquet data sets                   driver, readers
    hardware        devices and hosts: what they are, can do, and did       ranks, doctor
    measure         the instruments: clocks, windows, statistics            ranks, driver, readers

What measures imports nothing of what reads:

    compression     payloads in place of gradients, a family to choose from ranks
    sync            how workers combine their work, a family to choose from ranks
    servers         the parameter server, a mode of its own                 ranks, actors
    metrics         from raw steps to rows                                  driver, slots, ranks
    worker          a trial's window in a sync mode, and what follows it    ranks
    loops           training loops and scripts of users                     ranks
    serving         requests that arrive by themselves, on Ray Serve       ranks, replicas
    session         one live worker group, handed trial after trial         slots, ranks

What reads, from rows to a decision:

    inference       statistics of launches: variances, contrasts, power     driver, readers
    analysis        questions to the table of trials                        driver, readers
    predict         what was not measured, and what to measure next         driver, readers

What asks for the next measurements, by the decision so far:

    plan            what is done, what is to do next, in which order        any process
    cluster         the Ray of a run: what it has, and what it costs        driver, doctor
    driver          the run: hand out, store                                driver

Views of results:

    report          views of results for people and programs                readers
    show            plots, the report as an HTML page, Jupyter              readers
    compare         a point or a run against another one                    readers
    foreign_tables  other tools' tables: read as rows of results, written    readers

Callers of both:

    doctor          looks at every node before money is spent               driver, every node
    cli             the command line: reads the sweep file, runs, reports   driver, readers
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = [
    "Goal",
    "Measure",
    "OwnMode",
    "Point",
    "Resources",
    "Search",
    "StorageError",
    "Sweep",
    "SweepError",
    "analysis",
    "curves",
    "load",
    "plan_of",
    "plots",
    "predict",
    "report",
    "run",
    "steps",
    "workloads",
]

_MODULES = {
    "Goal": "sweep.goal",
    "Measure": "sweep.settings",
    "OwnMode": "sweep.mode_info",
    "Point": "sweep.point",
    "Resources": "sweep.settings",
    "Search": "sweep.search",
    "StorageError": "errors",
    "Sweep": "sweep.settings",
    "SweepError": "errors",
    "curves": "results.frames",
    "load": "analysis.load",
    "plan_of": "plan.batches",
    "run": "driver.run",
    "steps": "results.frames",
}
"""Modules of the public names; the others are modules themselves."""

if "IPython" in sys.modules:
    from dtsweep.show import notebook as _notebook

    _notebook.register()


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    from dtsweep import analysis, predict, report, workloads
    from dtsweep.analysis.load import load
    from dtsweep.driver.run import run
    from dtsweep.errors import StorageError, SweepError
    from dtsweep.plan.batches import plan_of
    from dtsweep.results.frames import curves, steps
    from dtsweep.show import figures as plots
    from dtsweep.sweep.goal import Goal
    from dtsweep.sweep.mode_info import OwnMode
    from dtsweep.sweep.point import Point
    from dtsweep.sweep.search import Search
    from dtsweep.sweep.settings import Measure, Resources, Sweep
else:

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used: each command waits for what it needs."""
        if name in _MODULES:
            return getattr(import_module(f"dtsweep.{_MODULES[name]}"), name)
        if name == "plots":
            return import_module("dtsweep.show.figures")
        if name in __all__:
            return import_module(f"dtsweep.{name}")
        raise AttributeError(f"module 'dtsweep' has no attribute {name!r}")
