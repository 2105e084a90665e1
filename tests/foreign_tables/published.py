"""Published tables, read by pandas alone."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest

JOBS = ("bert", "cifar10", "deepspeech2", "ncf")


def folder_of(name: str) -> Path:
    """Folder of published tables; the test is skipped without it."""
    folder = Path(os.environ.get("DTSWEEP_TEST_DATA", "")) / name
    if "DTSWEEP_TEST_DATA" not in os.environ or not folder.is_dir():
        pytest.skip(f"DTSWEEP_TEST_DATA names no folder with {name}")
    return folder


MAP = """
[columns]
workers = "workers"
hosts = "hosts"
micro_batch = "local_bsz"
step_mean_s = "step_time"
comm_share = "sync_time / step_time"
pass_s = "step_time - sync_time"
[settings]
gpus_by_node = "uneven"
[constants]
accumulation = 1
sync = "ddp"
devices = "Tesla T4"
backend = "nccl"
"""
"""Map of the rows of `rows_of`: nodes with unequal numbers of GPUs are a setting of their own."""

LADDER = """
[columns]
workers = "gpus"
samples_per_s = "images_per_s"
[constants]
workload = "ResNet-50"
devices = "V100-SXM2"
backend = "nccl"
sync = "horovod"
semantics = "exact"
"""
"""Map of a published ladder, horovod/horovod issue 779: ResNet-50, synthetic data."""


def rows_of(job: str) -> pd.DataFrame:
    """Both tables of a job: GPUs, nodes, the unequal numbers of GPUs, micro-batch, step time."""
    folder = folder_of("scaling") / job
    placed = pd.read_csv(folder / "placements.csv", dtype={"placement": str})
    digits = placed["placement"].map(lambda text: sorted(map(int, text)))
    placed = placed.assign(
        workers=digits.map(sum),
        hosts=digits.map(len),
        uneven=digits.map(lambda row: str(row) if len(set(row)) > 1 else ""),
    )
    large = pd.read_csv(folder / "scalability.csv")
    large = large.rename(columns={"num_nodes": "hosts", "num_replicas": "workers"})
    rows = pd.concat([placed, large.assign(uneven="")], ignore_index=True)
    return rows.assign(rate=rows["workers"] * rows["local_bsz"] / rows["step_time"])
