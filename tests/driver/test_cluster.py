"""Clusters of several nodes on this machine: code that travels, lanes, nodes that are lost or never come."""

from __future__ import annotations

import itertools
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest

import dtsweep
from tests.conftest import Command, without_ray

pytestmark = pytest.mark.ray

SWEEP = '''
"""Does it run where neither the sweep file nor its module is?"""
from dataclasses import dataclass
from pathlib import Path

from dtsweep import Measure, Resources, Sweep
from beside import net

@dataclass(frozen=True)
class Small:
    watch: str = ""
    slow: bool = False
    algorithm: str = ""

    def build(self):
        import os
        import ray
        import torch.distributed
        assert os.environ.get("NCCL_ALGO", "") == self.algorithm
        if self.watch:
            rank = torch.distributed.get_rank()
            Path(self.watch, str(rank)).write_text(ray.get_runtime_context().get_node_id())
        return net()

    def batch(self, samples, device):
        import time
        import torch
        if self.slow:
            time.sleep(0.05)
        return torch.ones(len(samples), 2)

    def loss(self, model, batch):
        return model(batch).square().mean()

sweep = Sweep(
    workload=Small(),
    axes={"workers": [1, 2, 5], "placement": ["strict_spread", "strict_pack"]},
    measure=Measure(half_width=None, canary=False, min_seconds=0, min_steps=5),
    resources=Resources(cpus_per_worker=1),
)
'''


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """A head without CPUs and three nodes of one CPU."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  # Ray's own spelling
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(3):
        cluster.add_node(num_cpus=1)
    yield cluster
    cluster.shutdown()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sweep file with a module beside it."""
    (tmp_path / "sweep.py").write_text(SWEEP)
    (tmp_path / "beside.py").write_text("from torch import nn\n\ndef net():\n    return nn.Linear(2, 1)\n")
    return tmp_path


def test_a_cluster_gets_the_code_and_refuses_at_once_what_it_cannot_hold(
    nodes: Any, folder: Path, tmp_path_factory: pytest.TempPathFactory, dtsweep_command: Command
) -> None:
    arguments = [folder / "sweep.py", "--address", nodes.address, "--results", folder / "r", "--set", "workers=2,5"]
    arguments += ["--set", "env.NCCL_ALGO=Ring", "--set", "workload.algorithm=Ring"]
    done = dtsweep_command("run", *arguments, folder=tmp_path_factory.mktemp("cwd"))
    assert done.returncode == 4, done.stderr
    assert "4 nodes, 3 CPUs" in done.stderr
    frame = dtsweep.load(folder / "r").set_index(["workers", "placement"])
    assert frame["status"].to_dict() == {
        (2, "strict_spread"): "ok",
        (2, "strict_pack"): "infeasible",
        (5, "strict_spread"): "infeasible",
        (5, "strict_pack"): "infeasible",
    }
    assert "2 workers of 1 CPU on one node don't fit" in frame.loc[(2, "strict_pack")]["reason"]
    trial = frame.loc[(2, "strict_spread")]
    assert (trial["hosts"], json.loads(trial["environment"])) == (2, {"NCCL_ALGO": "Ring"})
    ranks = pd.read_parquet(folder / "r" / "ranks")
    assert set(ranks["node_id"]) < {node.node_id for node in nodes.worker_nodes}
    assert ranks["node_id"].nunique() == 2
    assert ranks["device"].notna().all()


def test_which_ray_is_used_is_what_ray_users_expect(nodes: Any, folder: Path, dtsweep_command: Command) -> None:
    address = nodes.address
    asked = ["plan", folder / "sweep.py", "--results", folder / "r"]
    told = dtsweep_command(*asked, "--address", "auto", folder=folder)
    assert "3 trials don't fit" in told.stdout, told.stderr
    wrong = dtsweep_command(*asked, "--address", "127.0.0.1:1", folder=folder)
    assert (wrong.returncode, len(wrong.stderr.splitlines())) == (2, 1)
    assert "--address local" in wrong.stderr
    # Nothing fits, so nothing is started: which Ray was asked is said all the same.
    too_large = ["--set", "workers=5", "--results", folder / "r"]
    for environment in ({"RAY_ADDRESS": address}, {}):
        done = dtsweep_command("run", folder / "sweep.py", *too_large, folder=folder, **environment)
        assert done.returncode == 4, done.stderr
        assert f"using Ray at {address}: 4 nodes" in done.stderr


def test_lanes_run_side_by_side_on_nodes_of_their_own(nodes: Any, folder: Path, dtsweep_command: Command) -> None:
    text = SWEEP.replace("cpus_per_worker=1", "cpus_per_worker=1, concurrent=2").replace("[1, 2, 5]", "[1]")
    (folder / "sweep.py").write_text(text.replace("min_steps=5", "min_steps=5, repeats=2"))
    arguments = ["--address", nodes.address, "--results", folder / "r", "--set", "placement=pack"]
    done = dtsweep_command("run", folder / "sweep.py", *arguments, folder=folder)
    assert done.returncode == 0, done.stderr
    ranks = pd.read_parquet(folder / "r" / "ranks")
    assert len(ranks) == 2
    assert ranks["node_id"].nunique() == 2


def test_a_lost_node_costs_one_attempt_and_the_trial_is_measured_elsewhere(
    nodes: Any, folder: Path, tmp_path: Path
) -> None:
    watch, results = tmp_path / "watch", tmp_path / "r"
    watch.mkdir()
    os.mkfifo(watch / "1")
    told = os.open(watch / "1", os.O_RDWR)  # for reading and writing: no attempt waits for somebody who reads
    text = SWEEP.replace('watch: str = ""', f'watch: str = "{watch}"').replace(
        "slow: bool = False", "slow: bool = True"
    )
    (folder / "sweep.py").write_text(text.replace("min_steps=5", "min_steps=100, max_seconds=30"))
    arguments = ["--address", nodes.address, "--results", results, "--set", "workers=2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "dtsweep", "run", "sweep.py", *map(str, arguments), "--set", "placement=strict_spread"],
        cwd=folder,
        env=without_ray(),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert select.select([told], [], [], 120)[0]
        lost = os.read(told, 4096).decode()
        node = next(n for n in nodes.worker_nodes if n.node_id == lost)
        nodes.remove_node(node, allow_graceful=False)
        _, talk = process.communicate(timeout=240)
    finally:
        process.kill()
        process.communicate()
        os.close(told)
    attempts = pd.read_parquet(results / "trials").sort_values("attempt")
    assert attempts["status"].tolist() == ["node_lost", "ok"], talk
    assert process.returncode == 0, talk


def test_a_cluster_that_stops_ends_the_run_in_a_line_with_what_was_done_stored(folder: Path, tmp_path: Path) -> None:
    from ray.cluster_utils import Cluster

    results, temporary = tmp_path / "r", tmp_path / "temporary"
    temporary.mkdir()
    (folder / "sweep.py").write_text(SWEEP.replace("min_steps=5", "min_steps=100, max_seconds=30"))
    sizes = "micro_batch=" + ",".join(map(str, range(1, 9)))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    session = cluster.head_node.get_session_dir_path()
    gone = f"dtsweep: Ray at {cluster.address} has stopped, or can't be reached any more; what was done is stored; "
    arguments = ["--address", cluster.address, "--results", results, "--set", "workers=1", "--set", sizes]
    process = subprocess.Popen(
        [sys.executable, "-m", "dtsweep", "run", "sweep.py", *map(str, arguments), "--set", "workload.slow=true"],
        cwd=folder,
        env=without_ray(TMPDIR=str(temporary)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        talk = list(itertools.takewhile(lambda line: "ms/step" not in line, iter(process.stderr.readline, "")))
        cluster.shutdown()
        shown, rest = process.communicate(timeout=120)
    finally:
        process.kill()
        process.communicate()
        cluster.shutdown()
        # Ray leaves the reader of its logs behind where the head is killed first.
        for left in psutil.process_iter(["cmdline"]):
            if any(session in word for word in left.info["cmdline"] or ()):
                left.kill()
    said = [*talk, *rest.splitlines()]
    assert (process.returncode, said[-1]) == (4, f"{gone}the same command goes on"), said
    assert "Traceback" not in rest
    assert [path.name for path in temporary.iterdir()] == []
    # What Ray is asked at that moment may never come back: then nothing is reported, and all is stored alike.
    assert "Frontier" in shown or not shown
    assert "ok" in dtsweep.load(results)["status"].tolist()


def test_a_head_that_dies_as_a_run_begins_ends_it_in_a_line_before_ray_does(folder: Path) -> None:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    gone = f"dtsweep: Ray at {cluster.address} has stopped, or can't be reached any more; what was done is stored; "
    process = subprocess.Popen(
        [sys.executable, "-m", "dtsweep", "run", "sweep.py", "--address", cluster.address, "--set", "workers=1"],
        cwd=folder,
        env=without_ray(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert any("using Ray" in line for line in iter(process.stderr.readline, ""))
        # Alone: the nodes stay, as where the head is another machine.
        os.kill(cluster.head_node.all_processes["gcs_server"][0].process.pid, signal.SIGKILL)
        _, rest = process.communicate(timeout=120)
    finally:
        process.kill()
        process.communicate()
        cluster.shutdown()
    assert (process.returncode, f"{gone}the same command goes on" in rest) == (4, True), rest
    assert "Traceback" not in rest
