"""A user's script as it is, in a sweep on Ray: its rows, and what is said where it ends early."""

from __future__ import annotations

from pathlib import Path

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
    workload=workloads.Script({script!r}),
    axes={axes!r},
    measure=Measure(half_width=None, min_seconds=0.5, min_steps=16),
)
'''


def run(
    folder: Path, axes: dict[str, list[object]], address: str, command: Command
) -> tuple[int, str, pd.DataFrame]:
    (folder / "train.py").write_text(TRAIN)
    sweep = folder / "question.py"
    sweep.write_text(SWEEP.format(script=str(folder / "train.py"), axes=axes))
    results = folder / "results"
    done = command("run", sweep, "--address", address, "--results", results, folder=folder)
    return done.returncode, done.stdout, pd.read_parquet(results / "trials")


def test_workers_and_arguments_of_a_script_are_swept_in_one_session(
    ray_address: str, tmp_path: Path, dtsweep_command: Command
) -> None:
    axes: dict[str, list[object]] = {"workers": [1, 2], "args.batch-size": [4, 8]}
    code, said, rows = run(tmp_path, axes, ray_address, dtsweep_command)
    assert code == 0
    assert rows["status"].unique().tolist() == ["ok"]
    trials = rows[rows["role"] == "trial"]
    assert trials["session"].nunique() == 1
    batches = trials["workload_args.batch-size"] * trials["workers"]
    assert (trials["global_batch"] == batches).all()
    rates = (batches / trials["step_mean_s"]).tolist()
    assert trials["samples_per_s"].tolist() == pytest.approx(rates)
    assert trials["semantics"].unique().tolist() == ["exact"]
    of_two = trials[trials["workers"] == 2]
    assert of_two["loop_wrapper"].unique().tolist() == ["DistributedDataParallel"]
    assert of_two["loop_learning_rate"].unique().tolist() == [0.01]
    assert of_two["comm_method"].unique().tolist() == ["difference"]
    assert of_two["exchange_share"].notna().all()
    assert trials["loss_last"].isna().all()
    assert trials["micro_batch"].isna().all()
    assert "args.batch-size=8" in said


def test_a_script_whose_workers_exchange_nothing_says_so(
    ray_address: str, tmp_path: Path, dtsweep_command: Command
) -> None:
    axes: dict[str, list[object]] = {"workers": [2], "args.alone": [True]}
    code, _, rows = run(tmp_path, axes, ray_address, dtsweep_command)
    assert code == 0
    assert rows["semantics"].tolist() == ["not_exchanged"]


def test_a_script_that_ends_too_early_is_told_what_to_do(
    ray_address: str, tmp_path: Path, dtsweep_command: Command
) -> None:
    axes: dict[str, list[object]] = {"workers": [1], "args.epochs": [0], "args.batch-size": [256]}
    code, _, rows = run(tmp_path, axes, ray_address, dtsweep_command)
    assert code == 1
    (row,) = rows.to_dict("records")
    assert row["status"] == "user_error"
    assert "the training loop ended after 0 optimizer steps" in row["reason"]
    assert "give it more data or epochs" in row["reason"]
