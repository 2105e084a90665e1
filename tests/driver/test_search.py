"""A search on a private Ray: one session for the points of its world, and the certificate."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import dtsweep
from dtsweep.page import page_of
from tests.conftest import without_ray
from tests.pages import ROOT

pytestmark = pytest.mark.ray

SWEEP = '''
"""Searches among the points of one world."""
from dataclasses import dataclass

import torch
from torch import nn

from dtsweep import Measure, Resources, Search, Sweep

@dataclass(frozen=True)
class Line:
    def build(self):
        return nn.Linear(64, 64)

    def batch(self, samples, device):
        return torch.ones(len(samples), 64, device=device)

    def loss(self, model, batch):
        return model(batch).square().mean()

sweep = Sweep(
    workload=Line(),
    axes={"micro_batch": [1, 4, 16, 256], "accumulation": [1, 2]},
    measure=Measure(half_width=None, min_seconds=0, min_steps=5, max_steps=20, exchange="off"),
    resources=Resources(gpus_per_worker=0, cpus_per_worker=1),
    search=Search(max_points=7),
    max_launches=2,
)
'''


def test_a_search_stays_in_its_session_and_ends_with_a_certificate(tmp_path: Path) -> None:
    (tmp_path / "few.py").write_text(SWEEP)
    command = [sys.executable, "-m", "dtsweep", "run", "few.py", "--address", "local"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=without_ray(PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    frame = dtsweep.load(tmp_path / "results/few", canaries=True)
    first = frame[(frame["repeat"] == 1) & (frame["role"] == "trial")]
    assert 6 <= len(first) <= 7
    assert first["session"].nunique() == 1
    assert frame.loc[frame["session"].isin(first["session"]), "role"].eq("canary").sum() == 2
    assert "search: 6 points" in done.stderr
    assert f"{len(first)} of 8 points measured" in " ".join(done.stdout.split())
    (record,) = (tmp_path / "results/few/runs").glob("*.json")
    assert json.loads(record.read_text())["certificate"]["measured"] == len(first)
    assert f"{len(first)} of 8 points measured; " in page_of(str(tmp_path / "results/few"))
