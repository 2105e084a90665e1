"""A sweep from end to end on a private Ray: real sessions, real exchange, real Parquet."""

from __future__ import annotations

import json
import os
import re
import subprocess
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dtsweep
from dtsweep.results.store import Results
from tests.conftest import Command
from tests.processes import processes_with

pytestmark = pytest.mark.ray

SWEEP = """
from dataclasses import dataclass

import torch

from dtsweep import Measure, Resources, Sweep
from my_model import Net, targets

WEIGHTS = 3.0  # a global of the sweep file, which travels with the class

@dataclass(frozen=True)
class Regression:
    width: int = 16
    # Names of torch's own modules, which can't be pickled.
    classes: int = 1
    ops: int = 1
    backends: int = 1

    def build(self):
        return Net(self.width)

    def batch(self, samples, device):
        ones = torch.tensor(self.classes * self.ops * self.backends)
        return targets(samples, WEIGHTS * ones)

    def loss(self, model, batch):
        inputs, wanted = batch
        return (model(inputs) - wanted).square().mean()

sweep = Sweep(
    workload=Regression(),
    axes={
        "workers": [1, 2],
        "sync": ["ddp", "local_sgd", "parameter_server"],
        "staleness": [None, 0, 2],
        "shards": [None, 2],
        "micro_batch": lambda p: 8 // p.workers,
        "accumulation": [1, 2],
    },
    measure=Measure(
        half_width=None, min_steps=16, min_seconds=0, warmup_steps=2, max_steps=64, repeats=1
    ),
    resources=Resources(environment={"DTSWEEP_EXAMPLE": "set", "HF_TOKEN": "hf_hunter2"}),
)
"""

FIELDS = ("width", "classes", "ops", "backends")

MODEL = """
import os

import torch
from torch import nn

class Net(nn.Sequential):
    def __init__(self, width):
        super().__init__(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 1))

def targets(samples, weight):
    assert os.environ["HF_TOKEN"] == "hf_hunter2"
    numbers = torch.tensor(list(samples), dtype=torch.float32)[:, None]
    inputs = torch.sin(numbers * torch.tensor([1.0, 2.0, 3.0, 4.0]))
    return inputs, inputs.sum(1, keepdim=True) * weight
"""


@pytest.fixture(scope="module")
def run(
    tmp_path_factory: pytest.TempPathFactory, dtsweep_command: Command
) -> tuple[subprocess.CompletedProcess[str], Path]:
    """Run the sweep once, from a folder that holds neither the sweep file nor its module."""
    folder, elsewhere = tmp_path_factory.mktemp("mine"), tmp_path_factory.mktemp("elsewhere")
    (folder / "sweep.py").write_text(SWEEP)
    (folder / "my_model.py").write_text(MODEL)
    arguments = [folder / "sweep.py", "--address", "local", "--results", folder / "r"]
    # Whatever it starts inherits the mark, by which it is found.
    done = dtsweep_command("run", *arguments, folder=elsewhere, DTSWEEP_TEST_MARK=str(folder))
    return done, folder


@pytest.fixture(scope="module")
def frame(run: tuple[subprocess.CompletedProcess[str], Path]) -> pd.DataFrame:
    done, folder = run
    assert done.returncode == 0, done.stderr
    return dtsweep.load(folder / "r")


def losses(frame: pd.DataFrame, folder: Path, **point: object) -> np.ndarray:
    """Mean loss over the ranks, step by step, of the one trial with these fields."""
    rows = frame[frame["status"] == "ok"]
    for name, value in point.items():
        rows = rows[rows[name].isna() if value is None else rows[name] == value]
    (attempt,) = rows["attempt_id"]
    steps = dtsweep.steps(folder / "r")
    return steps[steps["attempt_id"] == attempt].groupby("step")["loss"].mean().to_numpy()


def test_every_trial_is_measured_and_every_impossible_point_is_a_row_with_its_reason(
    frame: pd.DataFrame,
) -> None:
    assert set(frame["status"]) == {"ok", "skipped"}
    assert set(frame.loc[frame["status"] == "skipped", "reason"]) == {
        "ddp has no staleness",
        "ddp has no shards",
        "local_sgd has no staleness",
        "local_sgd has no shards",
    }
    # 2 worlds x 2 accumulations x (ddp + local_sgd + 3 staleness bounds x 2 shards)
    assert (frame["status"] == "ok").sum() == 2 * 2 * (1 + 1 + 3 * 2)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_exact_modes_train_like_one_worker_with_the_whole_batch(
    frame: pd.DataFrame, run: tuple[object, Path], accumulation: int
) -> None:
    folder = run[1]
    whole = losses(frame, folder, workers=1, sync="ddp", accumulation=accumulation)
    exact = {"sync": "parameter_server", "staleness": 0, "accumulation": accumulation}
    for shards, workers in product((1, 2), repeat=2):
        server = losses(frame, folder, workers=workers, shards=shards, **exact)
        count = min(len(whole), len(server))
        np.testing.assert_allclose(server[:count], whole[:count], rtol=1e-4)
    split = losses(frame, folder, workers=2, sync="ddp", accumulation=accumulation)
    np.testing.assert_allclose(split[:16], whole[:16], rtol=1e-4)
    assert whole[-1] < whole[0]


def test_staleness_is_measured_and_bounded(frame: pd.DataFrame) -> None:
    server = frame[(frame["sync"] == "parameter_server") & (frame["status"] == "ok")]
    exact = server[server["staleness"] == 0]
    assert (exact["staleness_max"] == 0).all()
    assert (server[server["workers"] == 1]["staleness_max"] == 0).all()
    bounded = server[(server["staleness"] == 2) & (server["workers"] == 2)]
    # Two clocks ahead or behind, and the step under way: at most five updates of the other worker.
    assert bounded["staleness_max"].between(0, 5).all()
    assert set(server["semantics"]) == {"exact", "stale"}


def test_all_worlds_are_one_session(frame: pd.DataFrame) -> None:
    measured = frame[frame["status"] == "ok"]
    assert set(measured["workers"]) == {1, 2}
    assert measured["session"].nunique() == 1
    # Its first canary waited for it, and nothing for the smaller world.
    assert measured[measured["sync"] == "ddp"]["startup_s"].isna().all()


def test_each_world_times_what_its_ranks_reach_together(
    frame: pd.DataFrame, run: tuple[object, Path]
) -> None:
    ranks = frame[["attempt_id", "workers"]].merge(pd.read_parquet(run[1] / "r" / "ranks"))
    first = ranks[(ranks["rank"] == 0) & ranks["matmul_flops_per_s"].notna()]
    assert first.groupby("workers")["matmul_flops_per_s"].nunique().to_dict() == {1: 1, 2: 1}
    assert first["matmul_flops_per_s"].nunique() == 2


def test_a_session_measures_the_canary_of_its_largest_world_at_both_ends(
    frame: pd.DataFrame, run: tuple[object, Path]
) -> None:
    rows = dtsweep.load(run[1] / "r", canaries=True)
    for _, session in rows[rows["status"] == "ok"].sort_values("started_at").groupby("session"):
        roles = session["role"].tolist()
        assert roles == ["canary", *["trial"] * (len(roles) - 2), "canary"]
        watches = session[session["role"] == "canary"]
        assert watches["point_id"].nunique() == 1
        assert set(watches["sync"]) == {"ddp"}
        assert set(watches["workers"]) == {session["workers"].max()}
    assert "canary" not in set(frame["role"])


def test_what_the_numbers_rest_on_is_stored(frame: pd.DataFrame, run: tuple[object, Path]) -> None:
    ok = frame[frame["status"] == "ok"]
    assert set(ok["backend"]) == {"gloo"}
    (environment,) = set(ok["environment"])
    assert re.fullmatch(
        r'\{"DTSWEEP_EXAMPLE": "set", "HF_TOKEN": "hidden:[0-9a-f]{4}"\}', environment
    )
    stored = [pd.read_parquet(run[1] / "r" / table).to_csv() for table in ("trials", "ranks")]
    assert "hunter2" not in "".join(
        [*stored, *(log.read_text() for log in (run[1] / "r/logs").rglob("*.log"))]
    )
    assert ok["env_id"].nunique() == 1
    # Two steps before the window of 16 or more; of workers that step apart the fewest steps may be
    # those of two.
    together = ok[ok["semantics"] != "stale"]
    assert (together["warmup_steps"] + together["measured_steps"] >= 18).all()
    ranks = pd.read_parquet(run[1] / "r" / "ranks")
    assert set(ranks["niceness"]) == {os.nice(0)}
    assert set(ranks["threads"]) == {1}
    assert ranks.groupby("attempt_id")["shards_hosted"].sum().max() == 2


def test_running_again_measures_what_is_new_and_nothing_else(
    run: tuple[object, Path], forked_command: Command, tmp_path: Path
) -> None:
    asked = [run[1] / "sweep.py", "--results", run[1] / "r"]
    again = forked_command("run", *asked, "--address", "local", folder=tmp_path)
    assert again.returncode == 0
    assert again.stderr.startswith("0 trials to run, 32 done")
    planned = forked_command("plan", *asked, "--set", "accumulation=1,4", "--json", folder=tmp_path)
    plan = json.loads(planned.stdout)
    assert (plan["to_run"], plan["done"]) == (16, 16)


def test_no_process_is_left_behind(run: tuple[object, Path]) -> None:
    assert processes_with(f"DTSWEEP_TEST_MARK={run[1]}") == []


def test_another_device_than_the_results_have_is_refused_and_no_trial_is_lost(
    run: tuple[object, Path], dtsweep_command: Command, tmp_path: Path, ray_address: str
) -> None:
    (row, *_) = [row for row in Results(run[1] / "r").attempts() if row["status"] == "ok"]
    (tmp_path / "sweep.py").write_text(SWEEP)
    (tmp_path / "my_model.py").write_text(MODEL)
    other = {**row, "attempt_id": "other", "trial_id": "other", "devices": "H100"}
    Results(tmp_path / "r").commit(other, workload_types=dict.fromkeys(FIELDS, int))
    few = ["workers=1", "sync=ddp", "staleness=none", "shards=none"]
    options = [option for setting in few for option in ("--set", setting)]
    options += ["--address", ray_address, "--results", str(tmp_path / "r")]
    done = dtsweep_command("run", "sweep.py", *options, folder=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "these results were measured on H100, this run is on" in done.stderr.splitlines()[-1]
    # Neither a row that was measured in vain nor one that says that a trial failed.
    assert [row["attempt_id"] for row in Results(tmp_path / "r").attempts()] == ["other"]
