"""A head whose autoscaler adds fake nodes on this machine, and a sweep for them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.conftest import without_ray
from tests.ranks import free_ports

HEAD_ID = "f" * 51 + "00000"
"""The node id that Ray's fake provider expects of a head."""

TYPES = {
    "ray.head.default": {"resources": {}, "node_config": {}, "max_workers": 0},
    "small": {"resources": {"CPU": 1}, "node_config": {}, "min_workers": 0, "max_workers": 3},
    "large": {"resources": {"CPU": 2}, "node_config": {}, "min_workers": 0, "max_workers": 1},
}


EMPTY_LISTS = """
    initialization_commands setup_commands head_setup_commands worker_setup_commands
    head_start_ray_commands worker_start_ray_commands cluster_synced_files rsync_exclude
    rsync_filter
"""
"""Of a configuration, what Ray's second autoscaler wants to find there."""

SWEEP = '''
"""Which nodes does it take?"""
from dataclasses import dataclass
from dtsweep import Measure, Resources, Sweep

@dataclass(frozen=True)
class Small:
    def build(self):
        from torch import nn
        return nn.Linear(2, 1)

    def batch(self, samples, device):
        import torch
        return torch.ones(len(samples), 2)

    def loss(self, model, batch):
        return model(batch).square().mean()

SHAPES = [(1, "strict_spread", 1), (2, "strict_pack", 1), (5, "strict_spread", 1)]
SHAPES += [(3, "strict_spread", 1), (3, "strict_spread", 2)]

sweep = Sweep(
    workload=Small(),
    axes={
        "workers": [1, 2, 3, 5],
        "placement": ["strict_spread", "strict_pack"],
        "micro_batch": [1, 2],
    },
    skip=lambda p: None if (p.workers, p.placement, p.micro_batch) in SHAPES else "not asked",
    measure=Measure(
        repeats=1, half_width=None, canary=False, nested=False, min_seconds=5, max_seconds=6
    ),
    resources=Resources(cpus_per_worker=1),
)
'''

LIVES = """
import json, sys, time
from ray._raylet import GcsClient

client, until = GcsClient(address=sys.argv[1]), time.monotonic() + 60
while True:
    infos = client.get_all_node_info(timeout=10).values()
    infos = [info for info in infos if info.resources_total.get("CPU")]
    if time.monotonic() > until or all(info.end_time_ms for info in infos):
        break
    time.sleep(0.2)
lives = [
    (info.start_time_ms / 1e3, info.end_time_ms / 1e3, info.resources_total["CPU"])
    for info in infos
]
print(json.dumps(sorted(lives)))
"""
"""Waits until all nodes with CPUs are gone; prints the start, end and CPUs of each."""

SHOWN = ["workers", "placement", "status", "started_at"]
SHOWN += ["startup_s", "nodes_wait_s", "trial_s", "overhead_s"]
"""Columns of a run; pytest shows them with -s."""


def told_by(script: str, *arguments: object) -> str:
    """What a script prints that asks a Ray, in a process of its own: it must not stay connected."""
    # Without what an autoscaler says to every driver.
    environment = without_ray(RAY_AUTH_MODE="disabled", RAY_SCHEDULER_EVENTS="0")
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def growing_head(
    configuration: Path, *, v2: bool, most: int = 4, types: object = TYPES
) -> Iterator[str]:
    """Start a head without CPUs whose autoscaler adds such nodes; return its address."""
    (port,) = free_ports(1)
    fake = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
    kind: dict[str, object] = {"type": "external", "module": fake}
    if not v2:
        kind = {"type": "fake_multinode"}
    kind |= {"gcs_address": f"127.0.0.1:{port}", "head_node_id": HEAD_ID}
    kind |= {"launch_multiple": True, "disable_node_updaters": True}
    written: dict[str, object] = {"cluster_name": "growing", "max_workers": most, "provider": kind}
    written |= {"idle_timeout_minutes": 0.25, "upscaling_speed": 100}
    written |= {"head_node_type": "ray.head.default", "available_node_types": types}
    written |= {key: {} for key in ("auth", "docker", "file_mounts")}
    written |= {key: [] for key in EMPTY_LISTS.split()}
    configuration.write_text(json.dumps(written))
    own = dict.fromkeys(("RAY_CLOUD_INSTANCE_ID", "RAY_OVERRIDE_NODE_ID_FOR_TESTING"), HEAD_ID)
    own |= {"RAY_enable_autoscaler_v2": "1"}
    common = {"RAY_FAKE_CLUSTER": "1", "RAY_AUTH_MODE": "disabled"}
    common |= {"AUTOSCALER_UPDATE_INTERVAL_S": "1"}
    options = [f"--port={port}", f"--autoscaling-config={configuration}", "--num-cpus=0"]
    options += ["--include-dashboard=false", "--node-ip-address=127.0.0.1"]
    head = subprocess.Popen(
        [Path(sys.executable).with_name("ray"), "start", "--head", "--block", *options],
        env=without_ray(**common, **(own if v2 else {})),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert head.stdout is not None
        assert any("runtime started" in line for line in head.stdout)
        yield f"127.0.0.1:{port}"
    finally:
        started = [psutil.Process(head.pid), *psutil.Process(head.pid).children(recursive=True)]
        head.send_signal(signal.SIGTERM)
        for process in psutil.wait_procs(started, timeout=5)[1]:
            process.kill()
        head.communicate(timeout=30)
