"""Failures from outside a run on a cluster: dead processes, a node taken back; nothing is lost."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest
import ray
from ray.cluster_utils import Cluster

import dtsweep
from dtsweep import Measure, Sweep
from dtsweep.driver import slots
from dtsweep.driver.attempts import Attempts
from dtsweep.driver.progress import Progress
from dtsweep.driver.queue import Queue
from dtsweep.driver.recorder import Recorder
from dtsweep.results.store import Results
from dtsweep.sweep.file import read_sweep
from tests.conftest import Command
from tests.outboxes import silent_outbox
from tests.outcomes import Tokens
from tests.session.test_slot import settings as slot_settings

pytestmark = pytest.mark.ray

STRUCK = Path(__file__).parents[1] / "struck" / "struck.py"
ABSENT = STRUCK.with_name("absent.py")

NOTICE_S = 2.0
"""How long after its notice the node is gone; `tests/struck/strikes.py` gives as much."""


@pytest.fixture(scope="module")
def marks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("marks")


@pytest.fixture(scope="module")
def cluster(marks: Path) -> Iterator[Cluster]:
    """A cluster of a head without CPUs and three nodes of one; all its processes know the marks."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("DTSWEEP_TEST_MARK", str(marks))
        environment.setenv("RAY_worker_niceness", "0")
        cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
        )
        for _ in range(3):
            cluster.add_node(num_cpus=1)
        yield cluster
        cluster.shutdown()


@pytest.fixture(scope="module")
def address(cluster: Cluster) -> str:
    return str(cluster.address)


def test_a_node_on_which_ranks_die_before_they_report_is_named_and_left_out_after_two(
    address: str, marks: Path, tmp_path: Path, dtsweep_command: Command
) -> None:
    results = tmp_path / "r"
    arguments = ["run", STRUCK, "--address", address, "--results", results]
    done = dtsweep_command(*arguments, "--set", "workload.by=nothing", folder=tmp_path)
    # The node on which ranks died is well again.
    (marks / "import").write_text("")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert dtsweep.load(results)["status"].tolist() == ["ok"]
    attempts = pd.read_parquet(results / "trials").sort_values("started_at")
    died = attempts[attempts["status"] == "rank_died"]
    assert 1 <= len(died) <= 2
    assert attempts["status"].iloc[0] == "rank_died"
    assert set(died["reason"]) == {
        f"the workers did not start: rank 0 on {socket.gethostname()} ended"
    }


def test_a_frozen_slot_is_killed_and_its_trial_measured_by_another_one(
    address: str, marks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "ASK_EVERY_S", 1.0)
    monkeypatch.setattr(slots, "SLOT_SILENT_S", 10.0)
    (marks / "import").touch()
    sweep, _ = read_sweep(STRUCK, {"workload.by": ["Slot, frozen"]})
    assert dtsweep.run(sweep, tmp_path / "r", address=address)["status"].tolist() == ["ok"]
    struck, measured = (
        pd.read_parquet(tmp_path / "r" / "trials").sort_values("attempt").to_dict("records")
    )
    assert (struck["status"], measured["status"]) == ("collateral", "ok")
    assert struck["reason"] == "the session's process did not answer for 10 s"


def test_a_slot_that_died_idle_costs_no_more_than_logs(address: str, tmp_path: Path) -> None:
    sweep = Sweep(workload=Tokens(), axes={}, measure=Measure(repeats=1))
    recorder = Recorder(sweep, silent_outbox(Results(tmp_path / "r")), Progress(axes=[]))
    said: list[str] = []
    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    try:
        attempts = Attempts(Queue(sweep), [slot_settings(tmp_path)], recorder)
        ray.kill(attempts._slots[0].actor)
        assert attempts.close(said.append) == {}
    finally:
        ray.shutdown()
    (line,) = said
    assert line.startswith("a session was not ended in order (ActorDiedError)")


def test_what_can_not_be_imported_costs_one_launch_and_is_measured_once_it_is_there(
    address: str, marks: Path, tmp_path: Path, dtsweep_command: Command
) -> None:
    arguments = ["run", ABSENT, "--address", address, "--results", tmp_path / "r"]
    arguments += ["--set", "workers=1"]
    done = dtsweep_command(*arguments, folder=tmp_path)
    assert done.returncode == 1, done.stderr
    rows = pd.read_parquet(tmp_path / "r" / "trials")
    assert set(rows["status"]) == {"launch_failed"}
    assert all("install 'no_such_package' on all nodes" in reason for reason in rows["reason"])
    # The first waited for the launch, the others for none.
    assert rows["startup_s"].notna().sum() == 1
    (marks / "installed").touch()
    done = dtsweep_command(*arguments, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert dtsweep.load(tmp_path / "r")["status"].tolist() == ["ok"] * 3


def test_workers_that_can_not_reach_each_other_cost_one_launch_and_are_told_the_way_out(
    address: str, marks: Path, tmp_path: Path, dtsweep_command: Command
) -> None:
    (marks / "installed").touch()
    axes = ["--set", "workers=2", "--set", "env.GLOO_SOCKET_IFNAME=absent0,lo"]
    arguments = ["--address", address, "--results", tmp_path / "r"]
    done = dtsweep_command("run", ABSENT, *arguments, *axes, folder=tmp_path)
    assert done.returncode == 1, done.stderr
    rows = pd.read_parquet(tmp_path / "r" / "trials")
    statuses = dtsweep.load(tmp_path / "r")["status"].value_counts().to_dict()
    assert statuses == {"launch_failed": 3, "ok": 3}
    rows = rows[rows["status"] != "ok"]
    assert rows["startup_s"].notna().sum() == 1
    assert all("absent0" in reason and "GLOO_SOCKET_IFNAME" in reason for reason in rows["reason"])


# The last one: the cluster has a node less after it.
def test_a_trial_on_a_node_that_is_taken_back_is_tried_again_and_the_node_gets_no_other(
    cluster: Cluster, marks: Path, tmp_path: Path, dtsweep_command: Command
) -> None:
    (marks / "import").touch()
    notice = marks / "notice"
    arguments = ["run", STRUCK, "--address", cluster.address, "--results", tmp_path / "r"]
    axes = ["--set", "workload.by=notice,early notice"]
    with ThreadPoolExecutor(1) as beside:
        run = beside.submit(dtsweep_command, *arguments, *axes, folder=tmp_path)
        while not run.done() and not (notice.exists() and notice.read_text()):
            time.sleep(0.1)
        assert not run.done(), run.result().stderr
        (leaving,) = (node for node in cluster.worker_nodes if node.node_id == notice.read_text())
        time.sleep(NOTICE_S)
        # Ray adds and removes nodes in the main thread alone.
        cluster.remove_node(leaving, allow_graceful=False)
        done = run.result()
    assert done.returncode == 0, done.stderr
    attempts = pd.read_parquet(tmp_path / "r" / "trials").sort_values("started_at")
    ranks = pd.read_parquet(tmp_path / "r" / "ranks").set_index("attempt_id")["node_id"]
    attempts["node_id"] = ranks[attempts["attempt_id"]].tolist()
    print(
        attempts[["workload_by", "status", "reason", "startup_s", "trial_s", "node_id"]].to_string()
    )
    ended = attempts.groupby("workload_by")["status"].agg(list).to_dict()
    assert ended == {"notice": ["preempted", "ok"], "early notice": ["ok"]}
    # After each notice the next attempt ran elsewhere, also where the node was still there.
    assert attempts["node_id"].nunique() == 3
    (reason,) = attempts["reason"].dropna()
    assert reason.startswith("the node of rank 0 on ")
