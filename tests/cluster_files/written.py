"""Cluster files as the command writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import Command

GPUS = "resources=Resources(gpus_per_worker=1{more}),"
CPUS = "resources=Resources(gpus_per_worker=0, cpus_per_worker=1{more}),"

SWEEP = """
from dtsweep import Measure, Resources, Sweep, workloads

sweep = Sweep(
    workload=workloads.Gpt(layers=1, width=16, sequence=8, data="pydoc"),
    axes={{"workers": {workers}, "placement": {placement}}},
    measure=Measure(repeats=2),
    {resources}
)
"""


def sweep_text(
    *,
    workers: list[int],
    placement: str = "pack",
    resources: str = CPUS,
    more: str = "",
) -> str:
    """Text of a sweep file; `more` are settings of `Resources` after a comma."""
    return SWEEP.format(
        workers=workers, placement=[placement], resources=resources.format(more=more)
    )


def written(
    command: Command, folder: Path, *options: object, name: str = "study.py"
) -> list[Mapping[str, Any]]:
    """Documents that `dtsweep cluster` writes for a sweep file in a folder."""
    return [*yaml.safe_load_all(text_of(command, folder, *options, name=name))]


def text_of(command: Command, folder: Path, *options: object, name: str = "study.py") -> str:
    """Text that `dtsweep cluster` writes."""
    done = command("cluster", name, *options, folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout
