"""A user's script or trainer as it is, in sweeps on Ray: its rows, and what ends it early."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest

from dtsweep.text import count_of
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

SWEEP = """
from dtsweep import Measure, Sweep, workloads
{more}
sweep = Sweep(workload=workloads.{workload}, axes={axes!r}, measure=Measure(repeats=1, {measure}))
"""
TIMED = "half_width=None, min_seconds=0.5, min_steps=16"

Axes = dict[str, list[Any]]


def run(
    folder: Path,
    axes: Axes,
    command: Command,
    *arguments: str,
    measure: str = TIMED,
    workload: str = "Script('train.py')",
    more: str = "",
) -> tuple[int, str, pd.DataFrame]:
    """Exit code, output and rows of a sweep of what lies in a folder."""
    text = SWEEP.format(more=more, workload=workload, axes=axes, measure=measure)
    (folder / "question.py").write_text(text)
    results = folder / "results"
    done = command("run", "question.py", "--results", results, *arguments, folder=folder)
    assert (results / "trials").exists(), done.stdout + done.stderr
    return done.returncode, done.stdout, pd.read_parquet(results / "trials")


@pytest.fixture(scope="module")
def measured(
    ray_address: str, tmp_path_factory: pytest.TempPathFactory, dtsweep_command: Command
) -> tuple[str, pd.DataFrame]:
    """Output and rows of a sweep of the script, with and without an exchange."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "train.py").write_text(TRAIN)
    axes: Axes = {"workers": [1, 2], "args.batch-size": [4, 8], "args.alone": [False, True]}
    code, said, rows = run(folder, axes, dtsweep_command, "--address", ray_address)
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
    assert trials["loss_last"].notna().all()
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


def test_a_canary_with_too_few_steps_ends_the_run_before_any_trial(
    ray_address: str, tmp_path: Path, dtsweep_command: Command
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    axes: Axes = {"args.batch-size": [4, 8, 16], "args.epochs": [0]}
    code, _, rows = run(tmp_path, axes, dtsweep_command, "--address", ray_address)
    assert (code, rows["role"].tolist()) == (2, ["canary"])
    assert "the training loop ended after 0 optimizer steps" in rows["reason"][0]
    assert "give it more epochs or data" in rows["reason"][0]


def test_other_samples_than_promised_are_named_with_both_numbers(
    tmp_path: Path, forked_command: Command
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    names = {"micro_batch": "batch-size", "accumulation": "grad-accum"}
    workload = f"Script('train.py', names={names})"
    axes: Axes = {"micro_batch": [4], "accumulation": [2]}
    code, said, rows = run(tmp_path, axes, forked_command, "--in-process", workload=workload)
    assert (code, rows["status"].tolist()) == (1, ["wrong_samples"])
    reason = "loads 4 samples per worker and step; micro_batch=4 and accumulation=2 promise 8"
    assert reason in " ".join(said.split())


FAILING = """
import argparse, os, time
import torch
from torch import distributed

parser = argparse.ArgumentParser()
parser.add_argument("--case", choices=["early", "stuck"])
case = parser.parse_args().case
print("case", case)
if os.environ["RANK"] == "1" and case == "early":
    raise ValueError("bad width")
distributed.init_process_group("gloo")
while case == "stuck" and os.environ["RANK"] == "1":
    time.sleep(0.1)
distributed.all_reduce(torch.ones(1))
"""


def test_a_rank_that_fails_or_makes_no_step_is_named_and_refused_arguments_cost_no_processes(
    ray_address: str, tmp_path: Path, dtsweep_command: Command
) -> None:
    (tmp_path / "train.py").write_text(FAILING)
    axes: Axes = {"workers": [2], "args.case": ["early", "stuck", "no", "neither"]}
    measure = "max_warmup_seconds=8, canary=False"
    arguments = ("--address", ray_address)
    code, _, rows = run(tmp_path, axes, dtsweep_command, *arguments, measure=measure)
    assert code == 1
    by_case = rows.set_index("workload_args.case")
    early, stuck = by_case.loc["early"], by_case.loc["stuck"]
    assert early["status"] == "user_error"
    assert early["reason"] == "rank 1: ValueError: bad width (train.py:11)"
    log = (tmp_path / "results" / early["log"]).read_text()
    assert "case early" in log
    assert 'raise ValueError("bad width")' in log
    assert stuck["status"] == "hang"
    assert stuck["reason"].startswith("no answer from rank 1 on ")
    words = "max_warmup_seconds=8, in which the training loop ended fewer than 3 optimizer steps"
    assert words in stuck["reason"]
    assert "it is at train.py:14" in stuck["reason"]
    for case in ("no", "neither"):
        refused = f"rank 0: train.py: error: argument --case: invalid choice: '{case}'"
        assert str(by_case.loc[case, "reason"]).startswith(refused)
    assert rows["session"].nunique() < 4


LOOP = """
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    model(torch.ones(8, 4)).square().mean().backward()
    optimizer.step()
    time.sleep(0.002)
"""

CHANGING = """
import argparse, atexit, multiprocessing, os, signal, subprocess, sys, threading, time
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--case", type=int)
parser.parse_args()
assert threading.current_thread() is threading.main_thread()
assert torch.nn.Linear.extra_repr.__module__ == "torch.nn.modules.linear"
assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
assert threading.active_count() < 4
torch.nn.Linear.extra_repr = lambda self: "mine"
signal.signal(signal.SIGTERM, lambda *_: None)
multiprocessing.set_start_method("spawn")
threading.Thread(target=time.sleep, args=(3600,)).start()
os.environ["LEFT"] = "1"
sys.stdout.close()
print("sleeps", subprocess.Popen(["sleep", "3600"]).pid, file=sys.stderr)
atexit.register(lambda: print("at the end of", os.getpid(), file=sys.stderr))
"""


def test_what_a_script_does_to_its_process_ends_with_its_trial(
    ray_address: str, tmp_path: Path, dtsweep_command: Command
) -> None:
    (tmp_path / "train.py").write_text(CHANGING + LOOP)
    axes: Axes = {"args.case": [1, 2, 3]}
    measure = f"{TIMED}, canary=False"
    arguments = ("--address", ray_address)
    code, _, rows = run(tmp_path, axes, dtsweep_command, *arguments, measure=measure)
    assert (code, rows["status"].tolist()) == (0, ["ok"] * 3), rows["reason"].tolist()
    ranks = pd.read_parquet(tmp_path / "results" / "ranks")
    assert ranks["left_state"].isna().all()
    assert rows["session"].nunique() == 1
    assert not [pid for pid in psutil.pids() if _is_sleeping(pid)]


def _is_sleeping(pid: int) -> bool:
    with suppress(psutil.Error):
        return psutil.Process(pid).cmdline() == ["sleep", "3600"]
    return False


ENDING = """
import argparse, os, signal, time
from pathlib import Path
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--case")
case = parser.parse_args().case
if case == "exits":
    os._exit(7)
marker = Path(MARKER)
if case == "killed" and not marker.exists():
    marker.touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_script_that_is_killed_is_tried_again_and_one_that_exits_is_not(
    ray_address: str, tmp_path: Path, dtsweep_command: Command
) -> None:
    source = ENDING.replace("MARKER", repr(str(tmp_path / "killed")))
    (tmp_path / "train.py").write_text(source + LOOP)
    axes: Axes = {"args.case": ["exits", "killed"]}
    measure = f"{TIMED}, canary=False"
    arguments = ("--address", ray_address)
    code, _, rows = run(tmp_path, axes, dtsweep_command, *arguments, measure=measure)
    assert code == 1
    of_exits = rows[rows["workload_args.case"] == "exits"]
    assert of_exits["status"].tolist() == ["user_error"]
    reason = "rank 0: the training loop's process ended with exit code 7, by os._exit perhaps"
    assert of_exits["reason"].tolist() == [reason]
    of_killed = rows[rows["workload_args.case"] == "killed"].sort_values("attempt")
    assert of_killed["status"].tolist() == ["rank_died", "ok"]
    assert of_killed["session"].nunique() == 2


def test_a_trainer_of_transformers_is_swept_by_the_axes_of_a_point(
    ray_address: str, tmp_path: Path, dtsweep_command: Command
) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    source = Path(__file__).parents[1] / "loops" / "library_loops.py"
    (tmp_path / "library_loops.py").write_text(source.read_text())
    axes: Axes = {"workers": [1, 2], "micro_batch": [4, 8], "accumulation": [1, 2]}
    code, _, rows = run(
        *(tmp_path, axes, dtsweep_command, "--address", ray_address),
        measure="half_width=None, min_seconds=0.3, min_steps=8, canary=False",
        workload="HuggingFace(make_trainer)",
        more="from library_loops import make_trainer",
    )
    assert (code, rows["status"].tolist()) == (0, ["ok"] * 8)
    assert rows["session"].nunique() == 1
    samples = rows["workers"] * rows["micro_batch"] * rows["accumulation"]
    assert (rows["global_batch"] == samples).all()
    assert rows["samples_per_s"].tolist() == pytest.approx((samples / rows["step_mean_s"]).tolist())
    assert set(rows["semantics"]) == {"exact"}
    ranks = pd.read_parquet(tmp_path / "results" / "ranks")
    assert ranks["left_state"].isna().all()


DIVIDED = """
import argparse

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--tp", type=int)
# Promised, and not read.
parser.add_argument("--claim", type=int)
options = parser.parse_args()
distributed.init_process_group("gloo")
groups = distributed.get_world_size() // options.tp
mesh = init_device_mesh("cpu", (groups, options.tp), mesh_dim_names=("data", "model"))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
parallelize_module(model, mesh["model"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
fully_shard(model, mesh=mesh["data"])
data = TensorDataset(torch.randn(256, 4))
sampler = DistributedSampler(data, groups, mesh["data"].get_local_rank())
batches = DataLoader(data, batch_size=4, sampler=sampler)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    for (inputs,) in batches:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
"""


def test_workers_that_share_a_model_are_compared_with_those_that_an_argument_promises(
    ray_address: str, tmp_path: Path, dtsweep_command: Command
) -> None:
    (tmp_path / "train.py").write_text(DIVIDED)
    axes: Axes = {"workers": [2], "args.tp": [1, 2], "args.claim": [1, 2]}
    code, _, rows = run(
        *(tmp_path, axes, dtsweep_command, "--address", ray_address),
        workload="Script('train.py', names={'tensor_parallel': 'claim'})",
        measure="half_width=None, min_seconds=0.2, min_steps=8, canary=False",
    )
    assert code == 1
    by_point = rows.set_index(["workload_args.tp", "workload_args.claim"])
    for (tp, claim), row in by_point.iterrows():
        if tp != claim:
            assert (row["status"], row["reason"]) == (
                "wrong_grid",
                f"rank 0: a model has {count_of(tp, 'worker')} by the batches that workers load, "
                f"and {claim} by args.claim={claim}",
            )
            continue
        assert row["status"] == "ok"
        assert (row["model_parallel"], row["data_parallel"]) == (tp, 2 / tp)
        assert row["global_batch"] == 8 / tp
        assert row["samples_per_s"] == pytest.approx(8 / tp / row["step_mean_s"])


LOADING = """
import argparse
import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--by-hand", action="store_true")
by_hand = parser.parse_args().by_hand
data = TensorDataset(torch.randn(64, 4))
batches = DataLoader(data, 8, num_workers=1, prefetch_factor=3, persistent_workers=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    for (inputs,) in [data.tensors] * 9 if by_hand else batches:
        model(inputs).square().mean().backward()
        optimizer.step()
    print("loads with", batches.num_workers, batches.prefetch_factor, batches.persistent_workers)
"""


def test_data_loaders_of_a_script_get_the_settings_of_axes_and_a_loop_without_them_says_so(
    ray_address: str, tmp_path: Path, dtsweep_command: Command
) -> None:
    (tmp_path / "train.py").write_text(LOADING)
    axes: Axes = {
        "loader.num_workers": [0, 2],
        "loader.prefetch_factor": [4],
        "args.by-hand": [False, True],
    }
    measure = "half_width=None, min_seconds=0.2, min_steps=8, canary=False"
    arguments = ("--address", ray_address)
    code, said, rows = run(tmp_path, axes, dtsweep_command, *arguments, measure=measure)
    assert (code, rows["status"].tolist()) == (0, ["ok"] * 4), rows["reason"].tolist()
    for row in rows.to_dict("records"):
        log = (tmp_path / "results" / row["log"]).read_text()
        processes = row["workload_loader.num_workers"]
        expected = f"loads with {processes} {4 if processes else None} {processes > 0}"
        is_by_hand = row["workload_args.by-hand"]
        assert expected in log
        assert ("loader_unchanged" in row["flags"]) == is_by_hand
        # Without processes there is nothing to prefetch.
        assert pd.isna(row["workload_loader.prefetch_factor"]) == (not processes)
    assert "loader.num_workers=2" in said
