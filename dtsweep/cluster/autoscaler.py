"""The autoscaler of a Ray: whether there is one, and which nodes it can add.

Ray has no call for that. Its monitor runs on the head, under `ray up` with the path of a
configuration; without one it only watches. On KubeRay it runs in a container of its own, and the
head has none. Both tell the head's store how they fare: Ray's first autoscaler in a key, the second
in a state.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from dtsweep.errors import SweepError
from dtsweep.session.nodes import pinned_to
from dtsweep.session.request import scaling_state

_CONFIG_OPTION = "--autoscaling-config="

_HEAD_ANSWERS_S = 60.0
"""Time limit for the head to list its own processes."""

WATCHED_ONLY = re.compile("node_[0-9a-f]{56}")
"""The type that a monitor without configuration gives each node."""


@dataclass(frozen=True, kw_only=True)
class NodeType:
    """A kind of nodes that an autoscaler can add."""

    name: str
    resources: Mapping[str, float]
    max_nodes: int
    """Number of nodes of this kind that there may be at once."""


@dataclass(frozen=True, kw_only=True)
class Autoscaler:
    """Autoscaler of a Ray: it adds nodes and removes idle ones."""

    types: Sequence[NodeType] | None = None
    """Of the nodes that it can add; None where they are unknown, which is not the same as none."""

    max_nodes: int | None = None
    """Number of nodes there may be besides the head; None is unknown."""

    idle_timeout_s: float | None = None
    """Seconds after which an idle node is taken away; None is unknown."""


@dataclass(frozen=True, kw_only=True)
class HeadFacts:
    """Autoscaler as the head's own machine describes it."""

    has_monitor: bool
    path: str | None = None
    """Of the monitor's configuration; None where it has none."""

    text: str | None = None
    """That configuration; None where it can't be read."""

    pod_command: str = ""
    """By which KubeRay starts the head; empty elsewhere."""


def find_autoscaler() -> Autoscaler | None:
    """The autoscaler of the Ray to which this process is connected, or None.

    Raises:
        SweepError: the head does not answer.
    """
    address = ray.get_runtime_context().gcs_address
    try:
        # First what has a deadline: where the head is stuck, its list of nodes never comes.
        reports = _reports(address)
        return autoscaler_of(_facts_of_head(address), reports=reports)
    except ray.exceptions.RayError as error:
        reason = f"the head of Ray at {address} does not answer ({type(error).__name__})"
        raise SweepError(f"{reason}; is it out of memory? see `ray status`") from error


def autoscaler_of(head: HeadFacts, *, reports: bool) -> Autoscaler | None:
    """Tell from the head's facts whether there is an autoscaler, and which nodes it can add.

    Args:
        head: the facts.
        reports: whether something that is not a mere watcher reports to the head's store.
    """
    if head.path is not None:
        return configured(head.text)
    # KubeRay starts a head so where its autoscaler is to run beside it; that may need a moment
    # until it reports.
    is_outside = not head.has_monitor and ("--no-monitor" in head.pod_command or reports)
    if not is_outside:
        return None
    return Autoscaler()


def configured(text: str | None) -> Autoscaler:
    """The autoscaler of a configuration of Ray's cluster launcher, in YAML.

    Types are unknown where it says too little.

    >>> types = "{h: {}, w: {resources: {CPU: 8}}}"
    >>> configured(f"{{max_workers: 3, head_node_type: h, available_node_types: {types}}}")
    ... # doctest: +NORMALIZE_WHITESPACE
    Autoscaler(types=[NodeType(name='w', resources={'CPU': 8.0}, max_nodes=3)], max_nodes=3,
               idle_timeout_s=300.0)
    >>> configured(None)
    Autoscaler(types=None, max_nodes=None, idle_timeout_s=None)
    """
    import yaml

    try:
        config = yaml.safe_load(text or "")
        # What Ray takes where the configuration says nothing.
        most = int(config.get("max_workers", 2))
        idle_timeout_s = 60 * float(config.get("idle_timeout_minutes", 5))
        default = {config.get("head_node_type"): 0}
        types = []
        for name, kind in config["available_node_types"].items():
            settings = kind or {}
            resources = settings.get("resources") or {}
            max_nodes = int(settings.get("max_workers", default.get(name, most)))
            types.append(
                NodeType(
                    name=name,
                    resources={resource: float(count) for resource, count in resources.items()},
                    max_nodes=min(most, max_nodes),
                )
            )
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError):
        # It is not shaped as Ray wants it.
        return Autoscaler()
    addable = [kind for kind in types if kind.max_nodes]
    # Some providers find out on the node what it has.
    return Autoscaler(
        types=None if any(not kind.resources for kind in addable) else addable,
        max_nodes=most,
        idle_timeout_s=idle_timeout_s,
    )


def is_scaling(status: str | None) -> bool:
    """True if what Ray's first autoscaler has stored of itself is of one that can add nodes.

    >>> is_scaling('{"autoscaler_report": {"node_type_mapping": {"10.0.0.1": "headgroup"}}}')
    True
    """
    stored = json.loads(status or "{}")
    report: Mapping[str, Any] = stored.get("autoscaler_report") or {}
    kinds = report.get("node_type_mapping") or {}
    return any(not WATCHED_ONLY.fullmatch(kind) for kind in kinds.values())


def facts_here(port: str) -> HeadFacts:
    """The facts of this machine, which is the head's.

    Args:
        port: of the head's store, which tells several Rays of a machine apart.
    """
    monitors = [command for command in _commands() if _is_monitor(command, port)]
    paths = [
        word.partition("=")[2]
        for command in monitors
        for word in command
        if word.startswith(_CONFIG_OPTION)
    ]
    pod_command = os.environ.get("KUBERAY_GEN_RAY_START_CMD", "")
    if not paths:
        return HeadFacts(has_monitor=bool(monitors), pod_command=pod_command)
    # `ray up` writes "~" into it, which Ray expands itself.
    path = Path(paths[0]).expanduser()
    text = None
    if os.access(path, os.R_OK):
        text = path.read_text(encoding="utf-8")
    return HeadFacts(has_monitor=True, path=str(path), text=text, pod_command=pod_command)


def _is_monitor(command: Sequence[str], port: str) -> bool:
    is_ours = any(
        word.startswith("--gcs-address=") and word.rpartition(":")[2] == port for word in command
    )
    return is_ours and any(
        Path(word).parts[-3:-2] == ("autoscaler",) and word.endswith("monitor.py")
        for word in command
    )


def _commands() -> Iterator[list[str]]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().decode(errors="replace").split("\0")
        except OSError:  # the process has ended
            continue


def _facts_of_head(address: str) -> HeadFacts:
    port = address.rpartition(":")[2]
    heads = [
        node["NodeID"]
        for node in ray.nodes()
        if node["Alive"] and "node:__internal_head__" in node["Resources"]
    ]
    if not heads or heads[0] == ray.get_runtime_context().get_node_id():
        return facts_here(port)
    task = ray.remote(num_cpus=0)(facts_here).options(scheduling_strategy=pinned_to(heads[0]))
    facts: HeadFacts = ray.get(task.remote(port), timeout=_HEAD_ANSWERS_S)
    return facts


def _reports(address: str) -> bool:
    """True if an autoscaler that is not a mere watcher reports to the head's store."""
    from ray._private.ray_constants import DEBUG_AUTOSCALING_STATUS

    stored = ray._raylet.GcsClient(address=address).internal_kv_get(
        DEBUG_AUTOSCALING_STATUS.encode(), timeout=10
    )
    # The second one counts its versions from 1; where a monitor only watches, the head has that
    # monitor.
    return is_scaling(stored and stored.decode()) or scaling_state().autoscaler_state_version > 0
