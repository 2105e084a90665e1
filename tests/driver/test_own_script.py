"""A user's script as it is, in a sweep on Ray: its rows, and what is said where it ends early."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.conftest import Command

pytestmark = pytest.mark.ray

TRAIN = """
import argparse
import os
import time

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--epochs", type=int, default=1000)
# Forgotten below.
parser.add_argument("--grad-accum", type=int, default=1)
parser.add_argument("--alone", action="store_true")
options = parser.parse_args()
if int(os.environ.get("WORLD_SIZE", 1)) > 1:
    distributed.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(256, 4))
model = nn.Linear(4, 1)
sampler = None
if distributed.is_initialized():
    sampler = DistributedSampler(data)
    if not options.alone:
        model = DistributedDataParallel(model)
batches = DataLoader(data, batch_size=options.batch_size, sampler=sampler)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(options.epochs):
    for (inputs,) in batches:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        time.sleep(0.002)
"""

SWEEP = '''
"""How many workers, and which batch, for my script?"""
from dtsweep import Measure, Sweep, workloads

sweep = Sweep(
    workload=workloads.Script({script!r}, names={names!r}),
    axes={axes!r},
    measure=Measure(repeats=1, half_width=None, min_seconds=0.5, min_steps=16),
)
'''


def run(
    folder: Path,
    axes: dict[str, list[object]],
    address: str,
    command: Command,
    *,
    names: dict[str, str] | None = None,
) -> tuple[int, str, pd.DataFrame]:
    (folder / "train.py").write_text(TRAIN)
    sweep = folder / "question.py"
    sweep.write_text(SWEEP.format(script=str(folder / "train.py"), axes=axes, names=names or {}))
    results = folder / "results"
    done = command("run", sweep, "--address", address, "--results", results, folder=folder)
    assert (results / "trials").exists(), done.stdout + done.stderr
    return done.returncode, done.stdout, pd.read_parquet(results / "trials")


@pytest.fixture(scope="module")
def measured(
    ray_address: str, tmp_path_factory: pytest.TempPathFactory, dtsweep_command: Command
) -> tuple[str, pd.DataFrame]:
    """Output and rows of a sweep of the script, with and without an exchange."""
    axes: dict[str, list[object]] = {
        "workers": [1, 2],
        "args.batch-size": [4, 8],
        "args.alone": [False, True],
    }
    code, said, rows = run(tmp_path_factory.mktemp("own"), axes, ray_address, dtsweep_command)
    assert code == 0
    assert rows["status"].unique().tolist() == ["ok"]
    return said, rows[rows["role"] == "trial"]


def test_workers_and_arguments_of_a_script_are_swept_in_one_session(
    measured: tuple[str, pd.DataFrame],
) -> None:
    said, trials = measured
    assert trials["session"].nunique() == 1
    batches = trials["workload_args.batch-size"] * trials["workers"]
    assert (trials["global_batch"] == batches).all()
    rates = (batches / trials["step_mean_s"]).tolist()
    assert trials["samples_per_s"].tolist() == pytest.approx(rates)
    assert trials["loss_last"].isna().all()
    assert trials["micro_batch"].isna().all()
    exchanging = trials[~trials["workload_args.alone"]]
    assert len(exchanging) == 4
    assert exchanging["semantics"].unique().tolist() == ["exact"]
    of_two = exchanging[exchanging["workers"] == 2]
    assert of_two["loop_wrapper"].unique().tolist() == ["DistributedDataParallel"]
    assert of_two["loop_learning_rate"].unique().tolist() == [0.01]
    assert of_two["comm_method"].unique().tolist() == ["difference"]
    assert of_two["exchange_share"].notna().all()
    assert "args.batch-size=8" in said


def test_a_script_whose_workers_exchange_nothing_says_so(
    measured: tuple[str, pd.DataFrame],
) -> None:
    trials = measured[1]
    alone = trials[trials["workload_args.alone"] & (trials["workers"] == 2)]
    assert alone["semantics"].tolist() == ["not_exchanged"] * 2


def test_a_script_with_too_few_steps_or_other_samples_than_promised_is_told_apart(
    ray_address: str, tmp_path: Path, dtsweep_command: Command
) -> None:
    names = {"micro_batch": "batch-size", "accumulation": "grad-accum"}
    axes: dict[str, list[object]] = {"micro_batch": [4], "accumulation": [2]}
    (tmp_path / "short").mkdir()
    short = axes | {"micro_batch": [4, 8, 16], "args.epochs": [0]}
    code, said, rows = run(tmp_path / "short", short, ray_address, dtsweep_command, names=names)
    # The canary shows it, so no trial was run.
    assert code == 2
    assert rows["role"].tolist() == ["canary"]
    assert "the training loop ended after 0 optimizer steps" in rows["reason"][0]
    assert "give it more epochs or data" in rows["reason"][0]
    code, said, rows = run(tmp_path, axes, ray_address, dtsweep_command, names=names)
    assert code == 1
    trials = rows[rows["role"] == "trial"]
    assert trials["status"].tolist() == ["wrong_samples"]
    reason = "loads 4 samples per worker and step; micro_batch=4 and accumulation=2 promise 8"
    assert reason in " ".join(said.split())


FAILING = """
import argparse, os, time
import torch
from torch import distributed

parser = argparse.ArgumentParser()
parser.add_argument("--case")
case = parser.parse_args().case
print("case", case)
if os.environ["RANK"] == "1" and case == "early":
    raise ValueError("bad width")
distributed.init_process_group("gloo")
while case == "stuck" and os.environ["RANK"] == "1":
    time.sleep(0.1)
distributed.all_reduce(torch.ones(1))
"""


def failed(folder: Path, axes: dict[str, list[object]], address: str, command: Command) -> Any:
    (folder / "fail.py").write_text(FAILING)
    sweep = folder / "question.py"
    measure = "Measure(repeats=1, max_warmup_seconds=8, canary=False)"
    text = SWEEP.format(script=str(folder / "fail.py"), axes=axes, names={})
    sweep.write_text(text.replace(text[text.index("Measure(repeats=1") :], f"{measure},\n)\n"))
    results = folder / "results"
    done = command("run", sweep, "--address", address, "--results", results, folder=folder)
    assert done.returncode == 1
    return pd.read_parquet(results / "trials").to_dict("records"), results


def test_a_rank_that_fails_or_makes_no_step_is_named_while_others_wait_for_it(
    ray_address: str, tmp_path: Path, dtsweep_command: Command
) -> None:
    axes: dict[str, list[object]] = {"workers": [2], "args.case": ["early", "stuck"]}
    rows, results = failed(tmp_path, axes, ray_address, dtsweep_command)
    early, stuck = sorted(rows, key=lambda row: str(row["workload_args.case"]))
    assert early["status"] == "user_error"
    assert early["reason"] == "rank 1: ValueError: bad width (fail.py:11)"
    log = (results / early["log"]).read_text()
    assert "case early" in log
    assert 'raise ValueError("bad width")' in log
    assert stuck["status"] == "hang"
    assert stuck["reason"].startswith("no answer from rank 1 on ")
    words = "max_warmup_seconds=8, in which the training loop ended fewer than 3 optimizer steps"
    assert words in stuck["reason"]
    assert "it is at fail.py:14" in stuck["reason"]


def test_arguments_that_a_script_refuses_cost_no_new_processes(
    ray_address: str, tmp_path: Path, dtsweep_command: Command
) -> None:
    axes: dict[str, list[object]] = {"workers": [2], "args.cas-e": ["a", "b"]}
    rows, _ = failed(tmp_path, axes, ray_address, dtsweep_command)
    assert sorted(row["reason"] for row in rows) == [
        f"rank 0: fail.py: error: unrecognized arguments: --cas-e {value}" for value in "ab"
    ]
    assert len({row["session"] for row in rows}) == 1
