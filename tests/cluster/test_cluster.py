"""Clusters of several nodes on this machine: code that travels, slots, and sessions at a time."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import ray

from dtsweep.cluster.connect import connected
from dtsweep.cluster.visit import sent_to, task_answers
from tests.conftest import Command
from tests.linear import sweep_text
from tests.three_nodes import SWEEP, folder, nodes

pytestmark = pytest.mark.ray
__all__ = ["folder", "nodes"]  # fixtures


def test_which_ray_is_used_is_what_ray_users_expect(
    nodes: Any, folder: Path, dtsweep_command: Command
) -> None:
    asked = ["plan", folder / "sweep.py", "--results", folder / "r"]
    told = dtsweep_command(*asked, "--address", "auto", folder=folder)
    assert "3 trials don't fit" in told.stdout, told.stderr
    # Nothing fits, so nothing is started: which Ray was asked is said all the same.
    too_large = ["--set", "workers=5", "--results", folder / "r"]
    for environment in ({"RAY_ADDRESS": nodes.address}, {}):
        done = dtsweep_command("run", folder / "sweep.py", *too_large, folder=folder, **environment)
        assert done.returncode == 4, done.stderr
        assert f"using Ray at {nodes.address}: 4 nodes" in done.stderr


def test_a_cluster_gets_the_code_runs_small_worlds_side_by_side_and_refuses_what_it_cannot_hold(
    nodes: Any, folder: Path, tmp_path_factory: pytest.TempPathFactory, dtsweep_command: Command
) -> None:
    text = SWEEP.replace("cpus_per_worker=1", "cpus_per_worker=1, concurrent=3")
    measure = "repeats=1, half_width=None, min_seconds=1, max_seconds=2"
    text = text.replace("repeats=1, half_width=None, canary=False, min_seconds=0", measure)
    text = text.replace('"placement": [', '"micro_batch": [1, 2], "placement": [')
    (folder / "sweep.py").write_text(text)
    arguments = ["--address", nodes.address, "--results", folder / "r", "--set", "placement=pack"]
    arguments += ["--set", "workers=1,2,3,5", "--set", "workload.slow=true"]
    arguments += ["--set", "env.NCCL_ALGO=Ring", "--set", "workload.algorithm=Ring"]
    elsewhere = tmp_path_factory.mktemp("cwd")
    done = dtsweep_command("run", folder / "sweep.py", *arguments, folder=elsewhere)
    assert done.returncode == 4, done.stderr
    assert "4 nodes, 3 CPUs" in done.stderr
    rows = pd.read_parquet(folder / "r" / "trials").sort_values("started_at")
    assert set(rows.query("workers == 5")["status"]) == {"infeasible"}
    rows = rows.query("workers < 5").reset_index()
    assert rows["status"].unique().tolist() == ["ok"]
    assert rows.query("role == 'trial'")["trial_id"].nunique() == 6
    assert {*map(json.dumps, map(json.loads, rows["environment"]))} == {'{"NCCL_ALGO": "Ring"}'}
    assert (rows["hosts"] == rows["workers"]).all()
    ranks = pd.read_parquet(folder / "r" / "ranks")
    assert set(ranks["node_id"]) == {node.node_id for node in nodes.worker_nodes}
    assert ranks["device"].notna().all()
    nodes_of = ranks.groupby("attempt_id")["node_id"].agg(set)[rows["attempt_id"]].tolist()
    assert [*map(len, nodes_of)] == rows["workers"].tolist()
    took_s = rows[["startup_s", "trial_s", "overhead_s"]].sum(axis=1)
    ended = rows["started_at"] + pd.to_timedelta(took_s, unit="s")
    together = [
        (one, other)
        for other in rows.index
        for one in rows.index[:other]
        if rows["started_at"][other] < ended[one]
    ]
    assert together
    assert all(nodes_of[one].isdisjoint(nodes_of[other]) for one, other in together)


def test_trials_of_one_worker_run_side_by_side_on_one_node_and_say_so(
    ray_address: str, tmp_path: Path, dtsweep_command: Command
) -> None:
    measure = 'Measure(repeats=1, half_width=None, min_seconds=1, exchange="off")'
    text = sweep_text({"micro_batch": [*range(1, 9)]}, measure=measure)
    text = text.replace("cpus_per_worker=1", "cpus_per_worker=1, concurrent=2, share_nodes=True")
    slow = "import time; time.sleep(0.02); return torch.ones("
    (tmp_path / "sweep.py").write_text(text.replace("return torch.ones(", slow))
    arguments = ["--address", ray_address, "--results", tmp_path / "r"]
    done = dtsweep_command("run", tmp_path / "sweep.py", *arguments, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = pd.read_parquet(tmp_path / "r" / "trials").sort_values("started_at")
    assert rows["status"].unique().tolist() == ["ok"]
    trials = rows[rows["role"] == "trial"]
    assert (len(trials), trials["session"].nunique()) == (8, 2)
    together = trials[trials["concurrent_trials"] == 1]
    assert len(together) >= 2
    ranks = pd.read_parquet(tmp_path / "r" / "ranks")
    assert (ranks["node_id"].nunique(), ranks["pid"].nunique()) == (1, 2)


@pytest.fixture(scope="module")
def mixed_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node like this one, and one on which another torch was installed, as its metadata says."""
    from ray.cluster_utils import Cluster

    other = tmp_path_factory.mktemp("site")
    (other / "torch-2.1.0.dist-info").mkdir()
    metadata = "Metadata-Version: 2.1\nName: torch\nVersion: 2.1.0\n"
    (other / "torch-2.1.0.dist-info/METADATA").write_text(metadata)
    path = os.pathsep.join(filter(None, [str(other), os.environ.get("PYTHONPATH", "")]))
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    cluster.add_node(num_cpus=1, env_vars={"PYTHONPATH": path})
    yield cluster.address
    cluster.shutdown()


def test_a_run_is_refused_before_its_first_launch_where_a_node_has_other_versions(
    mixed_cluster: str, tmp_path: Path, dtsweep_command: Command
) -> None:
    (tmp_path / "tiny.py").write_text(sweep_text({"workers": [1]}))
    done = dtsweep_command("run", "tiny.py", "--address", mixed_cluster, folder=tmp_path)
    assert done.returncode == 2, done.stderr
    refused = r"dtsweep: nothing was started: \S+: torch 2\.1\.0, but 2\.\S+ where dtsweep runs;"
    assert re.search(f"{refused} install", done.stderr.splitlines()[-1])
    assert not list(tmp_path.rglob("*.parquet"))


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
            answers, reasons = task_answers({node: task}, timeout_s=0.1, of_actors=of_actors)
            assert answers == {}
            assert reasons[node].startswith("no answer in 0 s; wait for the jobs that hold it")
        ray.kill(actor)
