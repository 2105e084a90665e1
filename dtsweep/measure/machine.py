"""What a rank runs on: names and versions that make two results comparable or not."""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path
from typing import Any

import torch

from dtsweep.versions import versions


def facts(device: torch.device) -> dict[str, Any]:
    """Describe this rank: the columns of `ranks` that do not change from trial to trial."""
    gpu = torch.cuda.get_device_properties(device) if device.type == "cuda" else None
    return {
        "node": socket.gethostname(),
        "pid": os.getpid(),
        "device": gpu.name if gpu else cpu_name(),
        "device_uuid": str(gpu.uuid) if gpu else None,
        "threads": torch.get_num_threads(),
        "niceness": os.nice(0),
        "machine": {
            **versions(),
            "cpu": cpu_name(),
            "cpus": os.cpu_count(),
            "system": f"{platform.system()} {platform.release()}",
            "cuda": torch.version.cuda,
        },
    }


def cpu_name() -> str:
    """The CPU's model, as the kernel names it."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
