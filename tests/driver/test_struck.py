"""Failures from outside a run on a cluster: dead processes, a node taken back; nothing is lost."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
import ray
from ray.cluster_utils import Cluster

import dtsweep
from dtsweep import Measure, Sweep
from dtsweep.driver import slots
from dtsweep.driver.progress import Progress
from dtsweep.driver.queue import Queue
from dtsweep.driver.recorder import Recorder
from dtsweep.driver.scheduler import Scheduler
from dtsweep.results.store import Results
from dtsweep.sweep.file import read_sweep
from tests.conftest import Command
from tests.outboxes import silent_outbox
from tests.outcomes import Tokens
from tests.session.test_slot import settings as slot_settings

pytestmark = pytest.mark.ray

STRUCK = Path(__file__).parents[1] / "struck" / "struck.py"
ABSENT = STRUCK.with_name("absent.py")


@pytest.fixture(scope="module")
def marks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("marks")


@pytest.fixture(scope="module")
def address(marks: Path) -> Iterator[str]:
    """A cluster of a head without CPUs and three nodes of one; all its processes know the marks."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("DTSWEEP_TEST_MARK", str(marks))
        environment.setenv("RAY_worker_niceness", "0")
        cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
        )
        for _ in range(3):
            cluster.add_node(num_cpus=1)
        yield cluster.address
        cluster.shutdown()


@pytest.fixture(scope="module")
def attempts(
    address: str, marks: Path, tmp_path_factory: pytest.TempPathFactory, dtsweep_command: Command
) -> pd.DataFrame:
    """All attempts of the sweep, the first ones first."""
    folder = tmp_path_factory.mktemp("struck")
    done = dtsweep_command(
        "run", STRUCK, "--address", address, "--results", folder / "r", folder=folder
    )
    # The node on which ranks died is well again.
    (marks / "import").write_text("")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert dtsweep.load(folder / "r")["status"].tolist() == ["ok"] * 3
    return pd.read_parquet(folder / "r" / "trials").sort_values("started_at")


def test_a_node_on_which_ranks_die_before_they_report_is_named_and_left_out_after_two(
    attempts: pd.DataFrame,
) -> None:
    died = attempts[attempts["status"] == "rank_died"]
    assert 1 <= len(died) <= 2
    assert attempts["status"].iloc[0] == "rank_died"
    assert set(died["reason"]) == {
        f"the workers did not start: rank 0 on {socket.gethostname()} ended"
    }


def test_a_node_that_is_taken_back_is_named_and_its_trial_tried_again_elsewhere(
    attempts: pd.DataFrame,
) -> None:
    one, other = attempts[attempts["workload_by"] == "notice"].tail(2).to_dict("records")
    assert (one["status"], other["status"]) == ("preempted", "ok")
    assert one["reason"].startswith("the node of rank 0 on ")
    assert one["session"] != other["session"]


def test_a_tune_process_that_ends_costs_neither_the_attempt_nor_its_session(
    attempts: pd.DataFrame,
) -> None:
    started = attempts[attempts["status"] != "rank_died"]
    (row,) = started[started["workload_by"] == "ResourceTrainable"].to_dict("records")
    assert row["status"] == "ok"


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
        scheduler = Scheduler(Queue(sweep, [], canaries={}), [slot_settings(tmp_path)], recorder)
        ray.kill(scheduler._slots[0].actor)
        assert scheduler.close(said.append) == {}
    finally:
        ray.shutdown()
    (line,) = said
    assert line.startswith("a session was not ended in order (ActorDiedError)")


def test_what_can_not_be_imported_costs_one_launch_and_is_measured_once_it_is_there(
    address: str, marks: Path, tmp_path: Path, dtsweep_command: Command
) -> None:
    arguments = [
        "run",
        ABSENT,
        "--address",
        address,
        "--results",
        tmp_path / "r",
        "--set",
        "workers=1",
    ]
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
    axes = ["--set", "workers=2", "--set", "env.GLOO_SOCKET_IFNAME=absent0"]
    arguments = ["--address", address, "--results", tmp_path / "r"]
    done = dtsweep_command("run", ABSENT, *arguments, *axes, folder=tmp_path)
    assert done.returncode == 1, done.stderr
    rows = pd.read_parquet(tmp_path / "r" / "trials")
    assert set(rows["status"]) == {"launch_failed"}
    assert rows["startup_s"].notna().sum() == 1
    assert all("absent0" in reason and "GLOO_SOCKET_IFNAME" in reason for reason in rows["reason"])
