"""Every mode that needs no Ray trains with one rank on NCCL; with one GPU there is nobody to exchange with."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dtsweep.sweep.modes import MODES

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU, and this machine has none"),
]

SWEEP = '''
"""Does every mode train on a GPU?"""

from dtsweep import Measure, Sweep, workloads

sweep = Sweep(
    workload=workloads.Gpt(layers=2, width=64),
    axes={"precision": ["fp32", "bf16"]},
    measure=Measure(half_width=None, max_seconds=2, check=True),
)
'''


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("mode", [name for name, info in MODES.items() if not info.needs_ray])
def test_a_mode_trains_with_one_rank_on_nccl(tmp_path: Path, mode: str, precision: str) -> None:
    sweep = tmp_path / "modes.py"
    sweep.write_text(SWEEP)
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "1",
        "-m",
        "dtsweep.worker",
        str(sweep),
    ]
    done = subprocess.run(
        [*command, f"sync={mode}", f"precision={precision}"], capture_output=True, text=True, check=False
    )
    row = json.loads(done.stdout)
    assert (row["status"], row["backend"]) == ("ok", "nccl"), row["reason"]
    assert row["gradient_error"] is None or row["gradient_error"] < 1e-2
