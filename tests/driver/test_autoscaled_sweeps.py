"""Sweeps on clusters that grow, each with an autoscaler of its own."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from pathlib import Path

import pandas as pd
import pytest

import dtsweep
from tests.conftest import Command
from tests.growing import SHOWN, SWEEP, TYPES, growing_head
from tests.processes import begun, read_until

pytestmark = pytest.mark.ray

KILLS = Path(__file__).parents[1] / "struck" / "kills.py"
SHARED = KILLS.with_name("shared.py")


def test_nodes_of_unknown_types_are_waited_for_until_the_timeout(
    tmp_path: Path, dtsweep_command: Command
) -> None:
    asked = SWEEP.replace("cpus_per_worker=1", "cpus_per_worker=1, gpus_per_worker=0")
    (tmp_path / "asked.py").write_text(asked.replace("[1, 2, 3, 5]", "[3]"))
    (tmp_path / "unasked.py").write_text(SWEEP)
    configuration = tmp_path / "cluster.yaml"
    with growing_head(configuration, v2=False, most=0) as address:
        # As where only another machine, or nobody but Ray, can read it.
        configuration.unlink()
        arguments = ["--address", address, "--results", tmp_path / "r", "--node-timeout", 5]
        unasked, done = (
            dtsweep_command("run", file, *arguments, folder=tmp_path, RAY_AUTH_MODE="disabled")
            for file in ("unasked.py", "asked.py")
        )
    assert unasked.returncode == 2
    assert "Resources(gpus_per_worker=1)" in unasked.stderr
    assert "Traceback" not in unasked.stderr
    assert done.returncode == 4, done.stderr
    frame = dtsweep.load(tmp_path / "r").query("status != 'skipped'")
    assert frame["status"].tolist() == ["no_nodes", "no_nodes"]
    assert set(frame["reason"]) == {"nodes for 3 workers did not come in 5 s; see --node-timeout"}


def test_a_kill_costs_one_attempt_where_the_world_takes_all_that_the_autoscaler_can_add(
    tmp_path: Path, dtsweep_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DTSWEEP_TEST_MARK", str(tmp_path))
    # Its ranks are not to be killed on their import.
    (tmp_path / "import").touch()
    whole = TYPES | {
        "small": {"resources": {"CPU": os.cpu_count()}, "node_config": {}, "max_workers": 1}
    }
    with growing_head(tmp_path / "cluster.yaml", v2=True, most=1, types=whole) as address:
        # A session that waited for what a killed one holds would not come up in that time.
        arguments = ["run", KILLS, "--address", address, "--results", tmp_path / "r"]
        arguments += ["--node-timeout", 40]
        # Each other kill costs the same where the nodes are there: `test_kills.py`.
        axes = ["--set", "workload.by=RayTrainWorker,nothing"]
        done = dtsweep_command(*arguments, *axes, folder=tmp_path, RAY_AUTH_MODE="disabled")
    assert done.returncode == 0, done.stderr
    rows = pd.read_parquet(tmp_path / "r" / "trials").sort_values("started_at")
    # What the figures of docs/log/ are taken from; pytest shows it with -s.
    print(rows[["workload_by", "attempt", *SHOWN[2:]]].to_string())
    ended = rows.groupby("workload_by")["status"].agg(list).to_dict()
    assert ended == {"nothing": ["ok"], "RayTrainWorker": ["rank_died", "ok"]}


def test_two_sweeps_share_an_autoscaler_and_one_that_loses_a_node_waits_for_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DTSWEEP_TEST_MARK", str(tmp_path))
    small = {**TYPES["small"], "max_workers": 3}
    types = {"ray.head.default": TYPES["ray.head.default"], "small": small}

    def started(name: str, setting: str) -> subprocess.Popen[str]:
        return begun(
            *("run", SHARED, "--node-timeout", 200, "--address", address),
            *("--results", tmp_path / name, "--set", setting),
            folder=tmp_path,
            RAY_AUTH_MODE="disabled",
        )

    os.mkfifo(tmp_path / "raylet")
    pipe = os.open(tmp_path / "raylet", os.O_RDWR)
    with growing_head(tmp_path / "cluster.yaml", v2=True, most=3, types=types) as address:
        losing = started("losing", "workload.loses_node=true")
        assert select.select([pipe], [], [], 120)[0]
        raylet = int(os.read(pipe, 4096))
        other = started("other", "workload.loses_node=false")
        said = read_until("waiting for nodes", other)
        os.kill(raylet, signal.SIGKILL)
        talk = [process.communicate(timeout=300)[1] for process in (losing, other)]
    os.close(pipe)
    assert "for 2 workers: the autoscaler can't add them now; see `ray status`" in said, talk
    attempts = {
        name: pd.read_parquet(tmp_path / name / "trials").sort_values("started_at")
        for name in ("losing", "other")
    }
    # What the figures of docs/log/ are taken from; pytest shows it with -s.
    print(*(rows[SHOWN].to_string() for rows in attempts.values()), sep="\n")
    assert (losing.returncode, other.returncode) == (0, 0), talk
    assert attempts["other"]["status"].tolist() == ["ok"] * 2
    assert attempts["losing"]["status"].tolist() == ["node_lost", "ok", "ok"]
