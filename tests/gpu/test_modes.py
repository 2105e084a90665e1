"""Every mode without Ray trains with one rank on NCCL; with one GPU nothing is exchanged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from dtsweep.sweep.compressions import CODINGS, COMPRESSIONS
from dtsweep.sweep.modes import MODES

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="needs a CUDA GPU, and this machine has none"
    ),
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
    row = measured(tmp_path, f"sync={mode}", f"precision={precision}")
    assert row["gradient_error"] is None or row["gradient_error"] < 1e-2


@pytest.mark.parametrize("coding", ["none", *CODINGS])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_compression_works_with_one_rank_on_nccl(
    tmp_path: Path, compression: str, coding: str
) -> None:
    if coding != "none" and not COMPRESSIONS[compression].can_be_coded:
        pytest.skip("its payloads can't be coded")
    row = measured(
        tmp_path, f"compression={compression}", f"compression_coding={coding}", "precision=fp32"
    )
    assert row["compress_s"] > 0
    assert row["compression_error"] > 0


@pytest.mark.parametrize("mode", ["ddp", "ring", "local_sgd"])
def test_the_time_of_nccl_s_collectives_is_stored_where_torch_times_them(
    tmp_path: Path, mode: str
) -> None:
    row = measured(tmp_path, f"sync={mode}", "precision=fp32", "env.TORCH_NCCL_ENABLE_TIMING=1")
    assert 0 <= row["nccl_s"] < row["step_mean_s"]
    assert mode == "ring" or row["nccl_s"] > 0


def measured(folder: Path, *fields: str) -> dict[str, Any]:
    """The row of a point, measured by one rank."""
    sweep = folder / "modes.py"
    sweep.write_text(SWEEP)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1"]
    command = [*launcher, "-m", "dtsweep.worker", str(sweep), *fields]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    row: dict[str, Any] = json.loads(done.stdout)
    assert (row["status"], row["backend"]) == ("ok", "nccl"), row["reason"]
    return row
