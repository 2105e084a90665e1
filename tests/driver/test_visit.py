"""Visits to nodes: one that does not answer, or has other versions, is named before any launch."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from dtsweep.driver.connect import connected
from dtsweep.driver.visit import answers_of, sent_to
from tests.conftest import Command

SWEEP = """
from dtsweep import Measure, Sweep, workloads

sweep = Sweep(
    workload=workloads.Gpt(layers=1, width=16, sequence=16),
    axes={"workers": [1]},
    measure=Measure(repeats=1, min_steps=3, min_seconds=0, half_width=None),
)
"""


@pytest.fixture(scope="module")
def mixed_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node like this one, and one on which another torch was installed, as its metadata says."""
    from ray.cluster_utils import Cluster

    other = tmp_path_factory.mktemp("site")
    (other / "torch-2.1.0.dist-info").mkdir()
    (other / "torch-2.1.0.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: torch\nVersion: 2.1.0\n"
    )
    path = os.pathsep.join(filter(None, [str(other), os.environ.get("PYTHONPATH", "")]))
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    cluster.add_node(num_cpus=1, env_vars={"PYTHONPATH": path})
    yield cluster.address
    cluster.shutdown()


@pytest.mark.ray
def test_a_run_is_refused_before_its_first_launch_where_a_node_has_other_versions(
    mixed_cluster: str, tmp_path: Path, dtsweep_command: Command
) -> None:
    (tmp_path / "tiny.py").write_text(SWEEP)
    began = time.monotonic()
    done = dtsweep_command("run", "tiny.py", "--address", mixed_cluster, folder=tmp_path)
    seconds = time.monotonic() - began
    assert done.returncode == 2, done.stderr
    last = done.stderr.splitlines()[-1]
    assert re.search(
        r"dtsweep: nothing was started: \S+: torch 2\.1\.0, but 2\.\S+ where dtsweep runs; install",
        last,
    )
    assert not list(tmp_path.rglob("*.parquet"))
    print(f"refused after {seconds:.1f} s")


@pytest.mark.ray
def test_neither_a_task_nor_an_actor_that_does_not_answer_is_waited_for(mixed_cluster: str) -> None:
    def never() -> None:
        threading.Event().wait()

    class Silent:
        def say(self) -> None:
            threading.Event().wait()

    with connected(mixed_cluster, folder=None) as cluster:
        node = cluster.nodes[0].node_id
        actor = ray.remote(num_cpus=0)(Silent).remote()
        for task, of_actors in ((sent_to(node, never), False), (actor.say.remote(), True)):
            answers, reasons = answers_of({node: task}, timeout_s=0.1, of_actors=of_actors)
            assert answers == {}
            assert reasons[node].startswith("no answer in 0 s; wait for the jobs that hold it")
        ray.kill(actor)
