"""Facts of this machine's GPUs for a checklist, in a process of its own: it leaves no context."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pynvml
import torch

from dtsweep import Resources, SweepError
from dtsweep.hardware.bandwidth import operation_rates
from dtsweep.hardware.fingerprint import fingerprint
from dtsweep.hardware.nvml import driver
from dtsweep.hardware.peaks import matmul_flops, peak_flops
from dtsweep.worker.rank import gets_gpu, torch_build

DATA_SHEET_BYTES_PER_S = {
    "H100 80GB HBM3": 3.35e12,
    "H200": 4.8e12,
    "A100-SXM4-80GB": 2.039e12,
    "A100-SXM4-40GB": 1.555e12,
}
"""Bandwidth of device memory, by a part of the GPU's name; NVIDIA's data sheets."""


def why_no_gpu() -> str | None:
    """Reason why torch can use no GPU of this machine, with the next step; None where it can."""
    if torch.cuda.is_available():
        return None
    try:
        gets_gpu(Resources())
    except SweepError as error:
        return str(error)
    return (
        f"{torch_build()}, sees no GPU here; use a machine with an NVIDIA GPU, or a Python with "
        "another torch: PYTHON_GPU=…"
    )


def versions() -> dict[str, Any]:
    """Versions, the GPUs that torch can use, and why it can use none."""
    gpus = torch.cuda.device_count()
    device = torch.device("cuda", 0)
    if not gpus:
        device = torch.device("cpu")
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "driver": driver(),
        "pynvml": pynvml.__file__,
        "gpus": gpus,
        "devices": [torch.cuda.get_device_name(index) for index in range(gpus)],
        "problem": why_no_gpu(),
        "facts": fingerprint(device)["machine"],
    }


def rates() -> dict[str, Any]:
    """Measured rates of the first GPU, as shares of its data sheet where there is one."""
    device = torch.device("cuda", 0)
    name = torch.cuda.get_device_name(device)
    operations = operation_rates(device)
    product = matmul_flops(device, "bf16")
    peak = peak_flops(name, "bf16")
    sheets = [rate for part, rate in DATA_SHEET_BYTES_PER_S.items() if part in name]
    return {
        "device": name,
        "bf16_flops_per_s": product,
        "bf16_share": product / peak if peak else None,
        "moved_bytes_per_s": operations.peak_bytes_per_s,
        "moved_share": operations.peak_bytes_per_s / sheets[0] if sheets else None,
        "launch_s": operations.launch_s,
    }


def main(file: str, *, with_rates: bool) -> None:
    """Write the facts, or the rates, as JSON."""
    facts = rates() if with_rates else versions()
    Path(file).write_text(json.dumps(facts, default=str), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1], with_rates="rates" in sys.argv[2:])
