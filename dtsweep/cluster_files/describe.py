"""Description of the cluster that a sweep needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dtsweep.cluster_files.asked import KUBERAY, Asked, Machine, check_asked, machine_of
from dtsweep.cluster_files.demand import Demand, demand_of
from dtsweep.cluster_files.files import Files, files_of
from dtsweep.cluster_files.packages import Packages, installed_packages
from dtsweep.errors import SweepError
from dtsweep.provenance.sources import sources_of
from dtsweep.report.code import in_shell
from dtsweep.sweep.point import Point
from dtsweep.sweep.secret import has_credentials, is_secret
from dtsweep.sweep.settings import Sweep

NODE_TIMEOUT_S = 1800
"""Time limit for nodes, if the run has none: machines with GPUs and their image take minutes."""

MOST_NAME = 40
"""Characters of a name: KubeRay makes names of pods and services of it, which have limits."""

SHM_GIB_PER_CPU = 1
"""Shared memory of a node, for loaders of data, NCCL, gloo and Ray's object store."""

PROJECT = "/home/ray/project"
"""Folder on the nodes of the working directory in which the file was written."""


@dataclass(frozen=True, kw_only=True)
class Described:
    """The cluster that a sweep needs."""

    asked: Asked
    name: str
    machine: Machine
    demand: Demand
    max_nodes: int
    packages: Packages
    files: Files

    variables: Mapping[str, str]
    """Of `Resources(environment=…)`, without secrets."""

    secrets: tuple[str, ...]
    """Names of the secret ones."""

    notes: tuple[str, ...]
    """Lines for the user: what the cluster can't do for the sweep."""

    @property
    def has_gpus(self) -> bool:
        """True if its workers have GPUs."""
        return self.machine.node.gpus > 0

    @property
    def shm_gib(self) -> int:
        """Shared memory of a worker's node."""
        return SHM_GIB_PER_CPU * self.machine.node.cpus

    @property
    def market(self) -> str:
        """Value of Ray's label `ray.io/market-type`, by which nodes are priced."""
        return "spot" if self.asked.spot else "on-demand"

    def image(self, name: str) -> str:
        """The image that was asked for, or another one."""
        return self.asked.image or name

    @property
    def command(self) -> str:
        """Command that runs the sweep in the project's folder on the head."""
        path = self.files.sweep_path
        words = ["python", "-m", "dtsweep", "run", path, "--address", "auto"]
        if self.asked.results is not None:
            words += ["--results", self.asked.results]
        for setting in self.asked.settings:
            words += ["--set", setting]
        if not any(word.startswith("--node-timeout") for word in self.asked.arguments):
            words += ["--node-timeout", str(NODE_TIMEOUT_S)]
        return " ".join(map(in_shell, [*words, *self.asked.arguments]))


def describe(sweep: Sweep, points: Iterable[Point], path: Path, asked: Asked) -> Described:
    """Describe the cluster that a sweep needs.

    Args:
        sweep: as it was read.
        points: that may be measured.
        path: the sweep file.
        asked: the options.

    Raises:
        SweepError: the options or the sweep can't be meant so.
    """
    check_asked(asked)
    _check_texts(asked)
    points = list(points)
    if not points:
        raise SweepError(f"{path} has no point to measure; see dtsweep plan {path}")
    machine = machine_of(asked, gpus_per_worker=sweep.resources.gpus_per_worker)
    demand = demand_of(sweep, points, machine.node)
    sources = sources_of(sweep.workload, file=path)
    environment = sweep.resources.environment
    secrets = [name for name, value in environment.items() if is_secret(name, value)]
    most = demand.at_once
    if asked.max_nodes is not None:
        most = min(most, asked.max_nodes)
    return Described(
        asked=asked,
        name=_name_of(path),
        machine=machine,
        demand=demand,
        max_nodes=most,
        packages=installed_packages(sources.packages),
        files=files_of(sweep, path, sources, arguments=asked.arguments),
        variables={name: text for name, text in environment.items() if name not in secrets},
        secrets=tuple(sorted(secrets)),
        notes=tuple(_notes(demand, most, machine)),
    )


def _check_texts(asked: Asked) -> None:
    """Refuse secrets, and a place of results that is gone with the head."""
    if asked.results is not None:
        if has_credentials(asked.results):
            raise SweepError(
                "--results has credentials, which would stand in the file; leave them out, and let "
                "the head have them"
            )
        if asked.to == KUBERAY and "://" not in asked.results:
            raise SweepError(
                f"--results {asked.results} is a folder of a pod, which goes with it; give a URI "
                "such as s3://bucket/folder"
            )


def _notes(demand: Demand, most: int, machine: Machine) -> Sequence[str]:
    notes = [*demand.misfits]
    if most < demand.of_largest:
        notes.append(
            f"the largest world needs {demand.of_largest} nodes of {machine.node}; with "
            f"--max-nodes {most} its trials can't run"
        )
    elif most < demand.at_once:
        notes.append(
            f"the sweep could use {demand.at_once} nodes at once; with --max-nodes {most} sessions "
            "wait for each other"
        )
    return notes


def _name_of(path: Path) -> str:
    """Name of a cluster, as Kubernetes and clouds take it.

    >>> _name_of(Path("sweeps/Batch_size.v2.py")), _name_of(Path("2nodes.py"))
    ('batch-size-v2', 'sweep-2nodes')
    """
    name = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-")
    if not name[:1].isalpha():
        name = f"sweep-{name}".strip("-")
    return name[:MOST_NAME].strip("-")
