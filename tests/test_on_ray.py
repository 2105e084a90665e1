"""What `make test` runs on Ray: a few commands on one small cluster, as a user types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dtsweep
from dtsweep.results.storage import Storage
from dtsweep.results.store import Results
from tests.conftest import Command, without_ray
from tests.driver.test_own_script import TRAIN
from tests.linear import CLASS, sweep_text
from tests.stores import running_store

pytestmark = pytest.mark.ray

SHORT = "Measure(half_width=None, canary=False, min_seconds=0.1, max_steps=50)"

EVENT_S = 600
"""Until something that must happen has happened, at most, on a slow and busy machine."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes of two CPUs each."""
    from ray.cluster_utils import Cluster

    # Else whatever runs next to the tests takes nearly all of the processors.
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  # Ray's own spelling
    # A node whose process is gone is missed after two seconds, in place of fifteen.
    told = {"health_check_period_ms": 500, "health_check_failure_threshold": 4}
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 2, "include_dashboard": False, "_system_config": told},
    )
    cluster.add_node(num_cpus=2)
    yield cluster
    cluster.shutdown()


def started(folder: Path, arguments: Sequence[object], **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dtsweep", "run", "sweep.py", *map(str, arguments)],
        cwd=folder,
        env=without_ray(**environment),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def killed_once_measured(process: subprocess.Popen[str], place: str) -> None:
    """End the driver by a signal that it can't handle, as soon as a trial is stored."""
    until = time.monotonic() + EVENT_S
    while not len(Storage(place).sizes("trials")):
        if process.poll() is not None or time.monotonic() > until:
            process.kill()
            raise AssertionError(f"no trial was stored: {process.communicate()[1]}")
        time.sleep(0.1)
    process.kill()
    process.communicate()


def test_a_killed_run_goes_on_from_s3_and_ends_with_the_launches_that_its_goal_asks_for(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtsweep_command: Command
) -> None:
    # Points that are nearly equal: one launch of each decides nothing.
    text = sweep_text(
        {"micro_batch": [7, 8], "workers": [2], "sync": ["ddp", "local_sgd"]},
        measure=SHORT,
        more='goal="throughput", max_launches=2, indifference=0.001',
    )
    (tmp_path / "sweep.py").write_text(text)
    with running_store("s3", tmp_path) as store:
        environment = store.environment()
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        place = store.place()
        arguments = ["--address", cluster.address, "--results", place]
        killed_once_measured(started(tmp_path, arguments, **environment), place)
        run = started(tmp_path, arguments, **environment)
        _, talk = run.communicate(timeout=EVENT_S)
        rows = pd.DataFrame(Results(place).attempts())
        told = dtsweep_command("report", place, folder=tmp_path, **environment)
    # 4: the launches that it may make did not decide.
    assert run.returncode in {0, 4}, talk
    assert rows["row_number"].is_unique
    trials = rows[(rows["role"] == "trial") & (rows["status"] == "ok")]
    assert not trials.duplicated(["point_id", "repeat"]).any()
    assert trials[trials["repeat"] == 1]["point_id"].nunique() == 4
    again = trials[trials["repeat"] == 2]
    assert len(again) >= 2
    assert set(again["session"]).isdisjoint(trials[trials["repeat"] == 1]["session"])
    assert told.returncode == 0, told.stderr
    assert f"{len(trials)} trials: {len(trials)} ok" in told.stdout


SEARCH = f"""{CLASS}
from dtsweep import Search

sweep = Sweep(
    workload=Linear(inputs=64, outputs=64),
    axes={{"micro_batch": [1, 4, 16, 256], "accumulation": [1, 2]}},
    measure={SHORT},
    resources=Resources(cpus_per_worker=1, gpus_per_worker=0),
    search=Search(max_points=6),
    max_launches=2,
)
"""


def test_a_search_stays_in_its_session_and_ends_with_a_certificate(
    cluster: Any, tmp_path: Path
) -> None:
    (tmp_path / "sweep.py").write_text(SEARCH)
    run = started(tmp_path, ["--address", cluster.address, "--results", "r"])
    _, talk = run.communicate(timeout=EVENT_S)
    assert run.returncode in {0, 4}, talk
    frame = dtsweep.load(tmp_path / "r")
    first = frame[frame["repeat"] == 1]
    measured = len(first)
    assert 5 <= measured <= 6
    assert first["session"].nunique() == 1
    (record,) = (tmp_path / "r" / "runs").glob("*.json")
    assert json.loads(record.read_text())["certificate"]["measured"] == measured
    assert "search: " in talk


def test_workers_and_a_batch_of_a_script_are_swept_without_a_sweep_file(
    cluster: Any, tmp_path: Path, dtsweep_command: Command
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    done = dtsweep_command(
        *("script", "train.py", "--axis", "workers=2", "--axis", "micro_batch=4,8"),
        *("--name", "micro_batch=batch-size", "--measure", "repeats=1"),
        *("--measure", "half_width=none", "--measure", "min_seconds=0.1"),
        *("--address", cluster.address),
        folder=tmp_path,
    )
    assert done.returncode in {0, 4}, done.stderr
    frame = dtsweep.load(tmp_path / "results" / "train")
    assert set(frame["status"]) == {"ok"}
    assert frame["semantics"].unique().tolist() == ["exact"]
    assert frame[frame["repeat"] == 1]["session"].nunique() == 1
    batches = frame["micro_batch"] * frame["workers"]
    assert frame["samples_per_s"].tolist() == pytest.approx(
        (batches / frame["step_mean_s"]).tolist()
    )


LOST = f"""{CLASS}
import os
import time
from pathlib import Path

import ray
from torch import distributed


@dataclass(frozen=True)
class Watched(Linear):
    folder: str = ""

    def build(self):
        node = ray.get_runtime_context().get_node_id()
        Path(self.folder, str(distributed.get_rank())).write_text(node)
        return super().build()

    def batch(self, samples, device):
        time.sleep(0.05)
        return super().batch(samples, device)


sweep = Sweep(
    workload=Watched(folder="FOLDER"),
    axes={{"workers": [2], "placement": ["strict_spread"]}},
    measure=Measure(repeats=1, half_width=None, canary=False, min_steps=60, max_seconds=60),
    resources=Resources(cpus_per_worker=1, gpus_per_worker=0),
)
"""


def test_a_lost_node_costs_one_attempt_and_the_trial_is_measured_elsewhere(
    cluster: Any, tmp_path: Path
) -> None:
    cluster.add_node(num_cpus=2)
    (tmp_path / "sweep.py").write_text(LOST.replace("FOLDER", str(tmp_path)))
    run = started(tmp_path, ["--address", cluster.address, "--results", "r"])
    marks = [tmp_path / "0", tmp_path / "1"]
    until = time.monotonic() + EVENT_S
    while not all(mark.exists() and mark.read_text() for mark in marks):
        assert run.poll() is None, run.communicate()[1]
        assert time.monotonic() < until, "the ranks did not come up"
        time.sleep(0.1)
    used = {mark.read_text() for mark in marks}
    lost = next(node for node in cluster.worker_nodes if node.node_id in used)
    cluster.remove_node(lost, allow_graceful=False)
    _, talk = run.communicate(timeout=EVENT_S)
    attempts = pd.read_parquet(tmp_path / "r" / "trials").sort_values("attempt")
    assert attempts["status"].tolist() == ["node_lost", "ok"], talk
    assert run.returncode == 0, talk
