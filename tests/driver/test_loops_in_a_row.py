"""Training loops one after another on Ray: what reaches the next one, and what needs processes."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.conftest import Command

pytestmark = pytest.mark.ray

LOOP = """
import argparse
import os
import signal
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--register", action="store_true")
parser.add_argument("--leave", action="store_true")
options = parser.parse_args()
# As under torchrun, where it runs in the main thread.
signal.signal(signal.SIGTERM, lambda *_: None)
if options.register:
    if getattr(threading, "registered", False):
        raise ValueError("registered already")
    threading.registered = True
if options.leave:
    threading.Thread(target=time.sleep, args=(3600,), name="left", daemon=True).start()
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = DataLoader(TensorDataset(torch.randn(256, 4)), batch_size=options.batch_size)
for epoch in range(1000):
    for (inputs,) in batches:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        time.sleep(0.002)
"""

SWEEP = '''
"""Trials of a loop in a row."""
from dtsweep import Measure, Sweep, workloads
{before}
sweep = Sweep(
    workload={workload},
    axes={axes!r},
    measure=Measure(
        repeats=1, half_width=None, min_seconds=0.3, min_steps=8, canary=False{measure}
    ),
)
'''


def run(
    folder: Path,
    axes: dict[str, list[object]],
    command: Command,
    address: str,
    *,
    workload: str = "workloads.Script('train.py')",
    before: str = "",
    measure: str = "",
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Trials and ranks of a sweep, whose command has ended well."""
    (folder / "train.py").write_text(LOOP)
    sweep = folder / "question.py"
    sweep.write_text(SWEEP.format(workload=workload, axes=axes, measure=measure, before=before))
    results = folder / "results"
    done = command("run", sweep, "--address", address, "--results", results, folder=folder)
    assert done.returncode == 0, done.stderr
    return pd.read_parquet(results / "trials"), pd.read_parquet(results / "ranks")


def test_what_a_script_can_do_only_once_in_a_process_is_done_in_new_ones(
    ray_address: str, tmp_path: Path, dtsweep_command: Command
) -> None:
    axes: dict[str, list[object]] = {"args.batch-size": [4, 8], "args.register": [True]}
    rows, _ = run(tmp_path, axes, dtsweep_command, ray_address)
    rows = rows.sort_values("started_at")
    assert rows["status"].tolist() == ["ok", "reused_process", "ok"]
    assert "registered already" in rows["reason"].iloc[1]
    assert rows["session"].nunique() == 2


def test_a_thread_that_goes_on_costs_new_processes_and_is_named(
    ray_address: str, tmp_path: Path, dtsweep_command: Command
) -> None:
    axes: dict[str, list[object]] = {"args.leave": [True], "args.batch-size": [4, 8]}
    rows, ranks = run(tmp_path, axes, dtsweep_command, ray_address)
    assert rows["status"].unique().tolist() == ["ok"]
    assert rows["session"].nunique() == 2
    assert ranks["left_state"].tolist() == ["thread left"] * 2
    assert "that can't be undone" in (tmp_path / "results" / rows["log"].iloc[0]).read_text()


def test_fresh_gives_each_trial_of_a_loop_its_own_processes(
    ray_address: str, tmp_path: Path, dtsweep_command: Command
) -> None:
    axes: dict[str, list[object]] = {"args.register": [True], "args.batch-size": [4, 8]}
    rows, _ = run(tmp_path, axes, dtsweep_command, ray_address, measure=", fresh=True")
    assert rows["status"].tolist() == ["ok", "ok"]
    assert rows["session"].nunique() == 2


def test_a_trainer_of_transformers_is_swept_by_the_axes_of_a_point(
    ray_address: str, tmp_path: Path, dtsweep_command: Command
) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    source = Path(__file__).parents[1] / "worker" / "library_loops.py"
    (tmp_path / "library_loops.py").write_text(source.read_text())
    axes: dict[str, list[object]] = {
        "workers": [1, 2],
        "micro_batch": [4, 8],
        "accumulation": [1, 2],
    }
    rows, ranks = run(
        tmp_path,
        axes,
        dtsweep_command,
        ray_address,
        workload="workloads.HuggingFace(make_trainer)",
        before="from library_loops import make_trainer",
    )
    assert rows["status"].tolist() == ["ok"] * 8
    assert rows["session"].nunique() == 1
    samples = rows["workers"] * rows["micro_batch"] * rows["accumulation"]
    assert (rows["global_batch"] == samples).all()
    assert rows["samples_per_s"].tolist() == pytest.approx((samples / rows["step_mean_s"]).tolist())
    assert set(rows["semantics"]) == {"exact"}
    assert ranks["left_state"].isna().all()
