"""Options of a cluster file, as the command line gives them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dtsweep.cluster_files.demand import Node
from dtsweep.errors import SweepError, quoted

RAY, KUBERAY = "ray", "kuberay"

PROVIDERS = ("aws", "gcp", "azure")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Options of a cluster file."""

    to: str
    """`ray` or `kuberay`."""

    results: str | None = None
    arguments: tuple[str, ...] = ()
    """Options of the run, and their values."""

    settings: tuple[str, ...] = ()
    """Of `--set`."""

    kind: str = "RayJob"
    """Document of KubeRay."""

    provider: str | None = None
    region: str | None = None
    instance: str | None = None
    """Type of the machines of workers."""

    cpus_per_node: int | None = None
    gpus_per_node: int | None = None
    max_nodes: int | None = None
    image: str | None = None
    idle_minutes: float = 2.0
    spot: bool = False
    queue: str | None = None
    """Local queue of Kueue."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A type of machines of a provider."""

    instance: str
    node: Node


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """Machines and place of a provider where nothing is asked for."""

    region: str
    head: str
    with_cpus: Machine
    with_gpus: Machine


CPU_NODE = Node(cpus=4, gpus=0)
GPU_NODE = Node(cpus=96, gpus=8)

DEFAULTS: Mapping[str, Defaults] = {
    "aws": Defaults(
        region="us-west-2",
        head="m5.xlarge",
        with_cpus=Machine(instance="m5.xlarge", node=CPU_NODE),
        with_gpus=Machine(instance="p4d.24xlarge", node=GPU_NODE),
    ),
    "gcp": Defaults(
        region="us-central1",
        head="n2-standard-4",
        with_cpus=Machine(instance="n2-standard-4", node=CPU_NODE),
        with_gpus=Machine(instance="a2-highgpu-8g", node=GPU_NODE),
    ),
    "azure": Defaults(
        region="westus2",
        head="Standard_D4s_v5",
        with_cpus=Machine(instance="Standard_D4s_v5", node=CPU_NODE),
        with_gpus=Machine(instance="Standard_ND96asr_v4", node=GPU_NODE),
    ),
}

POD_CPUS_PER_GPU = 8
"""CPUs of a pod for each of its GPUs, if not given: less than the machines have, as all fits."""

POD_GPUS = 8

_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,61}[a-z0-9])?")
"""Names that Kubernetes takes for a local queue."""


def check_asked(asked: Asked) -> None:
    """Refuse options that contradict each other.

    Raises:
        SweepError: they do.
    """
    if asked.to == RAY:
        if asked.queue is not None:
            raise SweepError("--queue is of Kueue, which --to kuberay uses; leave it out")
        if asked.kind != "RayJob":
            raise SweepError("--kind is of KubeRay; leave it out, or use --to kuberay")
        return
    if asked.region is not None:
        raise SweepError("--region is of --to ray: the nodes of Kubernetes are where they are")
    if asked.spot and asked.provider is None:
        raise SweepError(
            "--spot needs --provider: each cloud's Kubernetes marks its spot nodes in its own way"
        )
    if asked.queue is not None and not _NAME.fullmatch(asked.queue):
        raise SweepError(
            f"--queue {quoted(asked.queue)} is not a name of Kubernetes: lower-case letters, "
            "digits, '-' and '.', such as team-a"
        )
    if asked.provider is not None and not asked.spot:
        raise SweepError("--provider is needed for --spot alone with --to kuberay; leave it out")


def machine_of(asked: Asked, *, gpus_per_worker: int | None) -> Machine:
    """Machine of the workers.

    Args:
        asked: the options.
        gpus_per_worker: as `Resources` has it.

    Returns:
        The machine; its `instance` is empty where any will do.

    Raises:
        SweepError: the options don't say enough, or contradict the resources.
    """
    _check_gpus(asked, gpus_per_worker)
    has_gpus = bool(asked.gpus_per_node or (asked.gpus_per_node is None and gpus_per_worker))
    if asked.to == KUBERAY:
        return Machine(instance=asked.instance or "", node=_pod(asked, has_gpus=has_gpus))
    defaults = DEFAULTS[asked.provider or "aws"]
    if asked.instance is None:
        machine = defaults.with_gpus if has_gpus else defaults.with_cpus
        _check_against(machine, asked)
        return machine
    if asked.cpus_per_node is None or (has_gpus and asked.gpus_per_node is None):
        raise SweepError(
            f"--instance {asked.instance} needs --cpus-per-node, and --gpus-per-node if it has "
            "GPUs: dtsweep does not know what machines have"
        )
    return Machine(
        instance=asked.instance,
        node=Node(cpus=asked.cpus_per_node, gpus=asked.gpus_per_node or 0),
    )


def _check_gpus(asked: Asked, gpus_per_worker: int | None) -> None:
    if asked.to == KUBERAY and gpus_per_worker is None:
        raise SweepError(
            "KubeRay's autoscaler does not say which nodes it can add: the sweep has to say "
            "Resources(gpus_per_worker=1), or 0"
        )
    if gpus_per_worker == 0 and asked.gpus_per_node:
        raise SweepError(
            f"--gpus-per-node {asked.gpus_per_node}, but the sweep has "
            "Resources(gpus_per_worker=0); leave one of them out"
        )
    if gpus_per_worker and asked.gpus_per_node == 0:
        raise SweepError(
            "--gpus-per-node 0, but the sweep has Resources(gpus_per_worker=1); leave one of them "
            "out"
        )


def _pod(asked: Asked, *, has_gpus: bool) -> Node:
    gpus = 0
    cpus = CPU_NODE.cpus
    if has_gpus:
        gpus = asked.gpus_per_node or POD_GPUS
        cpus = POD_CPUS_PER_GPU * gpus
    return Node(cpus=asked.cpus_per_node or cpus, gpus=gpus)


def _check_against(machine: Machine, asked: Asked) -> None:
    """Refuse resources of another machine than the default one."""
    given = {"--cpus-per-node": asked.cpus_per_node, "--gpus-per-node": asked.gpus_per_node}
    has = {"--cpus-per-node": machine.node.cpus, "--gpus-per-node": machine.node.gpus}
    for option, number in given.items():
        if number is not None and number != has[option]:
            raise SweepError(
                f"{option} {number} needs --instance, a type of machines that has them; by default "
                f"it is {machine.instance}, with {machine.node}"
            )
