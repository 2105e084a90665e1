"""Rounds of a question on a private Ray, each in sessions of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import dtsweep
from tests.conftest import without_ray
from tests.pages import ROOT

pytestmark = pytest.mark.ray

PROGRAM = '''
"""Measures two points, and the better one twice more."""
import sys
from dataclasses import dataclass

import torch
from torch import nn

from dtsweep import Measure, Resources, Sweep
from dtsweep.driver.on_ray import run_on_ray
from dtsweep.driver.planned import Options, PlannedRun
from dtsweep.driver.progress import Progress
from dtsweep.plan.batches import Batches
from dtsweep.results.outbox import Outbox
from dtsweep.results.store import Results
from dtsweep.sweep.axes import candidates
from tests.rounds import BestAgain

@dataclass(frozen=True)
class Line:
    def build(self):
        return nn.Linear(2, 1)

    def batch(self, samples, device):
        return torch.ones(len(samples), 2, device=device)

    def loss(self, model, batch):
        return model(batch).square().mean()

sweep = Sweep(
    workload=Line(),
    axes={"micro_batch": [1, 4096]},
    measure=Measure(half_width=None, min_seconds=0, min_steps=5, max_steps=20, canary=False),
    resources=Resources(gpus_per_worker=0, cpus_per_worker=1, concurrent=2, share_nodes=True),
)

if __name__ == "__main__":
    results = Results(sys.argv[1])
    progress = Progress(axes=sweep.axes)
    batches = Batches(
        sweep,
        candidates(sweep),
        results.attempts(),
        policy=BestAgain(sweep=sweep, launches=3),
    )
    plan = batches.next()
    progress.total = len(plan.to_run)
    planned = PlannedRun(
        sweep=sweep,
        plan=plan,
        batches=batches,
        outbox=Outbox(results, progress.say),
        progress=progress,
        options=Options(results=sys.argv[1], address="local"),
    )
    tally = run_on_ray(planned)
    planned.outbox.close()
    sys.exit(tally.exit_code)
'''


def test_each_round_has_sessions_of_its_own_and_the_run_ends_after_the_last(
    tmp_path: Path,
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py", "r"],
        cwd=tmp_path,
        env=without_ray(PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    frame = dtsweep.load(tmp_path / "r")
    assert (frame["status"] == "ok").all()
    launches = sorted(zip(frame["micro_batch"], frame["repeat"], strict=True))
    assert launches == [(1, 1), (4096, 1), (4096, 2), (4096, 3)]
    best = frame[frame["micro_batch"] == 4096]
    assert best["session"].nunique() == 3
    assert "round 3: 1 contender" in done.stderr
    assert "[4/4] micro_batch=4096 repeat 3" in done.stderr
