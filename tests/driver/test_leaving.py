"""A node that its owner takes back, with notice: what it had goes on elsewhere, and it is given nothing more."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest
from ray.cluster_utils import Cluster

from tests.conftest import Command

NOTICE_S = 8.0
"""How long after its notice the node is gone; `tests/struck/strikes.py` gives as much."""

STRUCK = Path(__file__).parents[1] / "struck" / "struck.py"


@pytest.mark.ray
def test_a_node_that_is_drained_and_then_gone_costs_one_attempt_and_gets_no_other(
    tmp_path: Path, dtsweep_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DTSWEEP_TEST_MARK", str(tmp_path))
    monkeypatch.setenv("RAY_worker_niceness", "0")
    # Its ranks are not to be killed on their import.
    (tmp_path / "import").touch()
    notice = tmp_path / "notice"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    arguments = ["run", STRUCK, "--address", cluster.address, "--results", tmp_path / "r"]
    axes = ["--set", "workload.by=notice", "--set", "micro_batch=1,2,4"]
    try:
        with ThreadPoolExecutor(1) as beside:
            run = beside.submit(dtsweep_command, *arguments, *axes, folder=tmp_path)
            while not run.done() and not (notice.exists() and notice.read_text()):
                time.sleep(0.1)
            assert not run.done(), run.result().stderr
            # Ray adds and removes nodes in the main thread alone.
            (leaving,) = (node for node in nodes if node.node_id == notice.read_text())
            (other,) = (node.node_id for node in nodes if node is not leaving)
            time.sleep(NOTICE_S)
            cluster.remove_node(leaving, allow_graceful=False)
            done = run.result()
    finally:
        cluster.shutdown()
    assert done.returncode == 0, done.stderr
    attempts = pd.read_parquet(tmp_path / "r" / "trials").sort_values("started_at")
    # What the figures of docs/log.md are taken from; pytest shows it with -s.
    print(attempts[["status", "reason", "startup_s", "trial_s", "overhead_s"]].to_string())
    assert attempts["status"].tolist() == ["preempted", *["ok"] * 3]
    assert attempts["attempt"].max() == 2
    assert "is being taken back" in done.stderr
    used = pd.read_parquet(tmp_path / "r" / "ranks").set_index("attempt_id")["node_id"]
    assert used[attempts["attempt_id"].iloc[1:]].tolist() == [other] * 3
