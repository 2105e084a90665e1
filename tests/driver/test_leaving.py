"""A node taken back by its owner, with notice: its work goes on elsewhere, and it gets no more."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest
from ray.cluster_utils import Cluster

from tests.conftest import Command

NOTICE_S = 2.0
"""How long after its notice the node is gone; `tests/struck/strikes.py` gives as much."""

STRUCK = Path(__file__).parents[1] / "struck" / "struck.py"


@pytest.mark.ray
def test_a_trial_on_a_node_that_is_taken_back_is_tried_again_and_the_node_gets_no_other(
    tmp_path: Path, dtsweep_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DTSWEEP_TEST_MARK", str(tmp_path))
    monkeypatch.setenv("RAY_worker_niceness", "0")
    # Its ranks are not to be killed on their import.
    (tmp_path / "import").touch()
    notice = tmp_path / "notice"
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    nodes = [cluster.add_node(num_cpus=1) for _ in range(3)]
    arguments = ["run", STRUCK, "--address", cluster.address, "--results", tmp_path / "r"]
    axes = ["--set", "workload.by=notice,early notice"]
    try:
        with ThreadPoolExecutor(1) as beside:
            run = beside.submit(dtsweep_command, *arguments, *axes, folder=tmp_path)
            while not run.done() and not (notice.exists() and notice.read_text()):
                time.sleep(0.1)
            assert not run.done(), run.result().stderr
            (leaving,) = (node for node in nodes if node.node_id == notice.read_text())
            time.sleep(NOTICE_S)
            # Ray adds and removes nodes in the main thread alone.
            cluster.remove_node(leaving, allow_graceful=False)
            done = run.result()
    finally:
        cluster.shutdown()
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
