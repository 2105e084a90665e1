"""Hardware, software and settings of a rank, which make two results comparable or not."""

from __future__ import annotations

import os
import platform
import re
import socket
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pynvml
import torch

from dtsweep.hardware.device import compute_capability
from dtsweep.hardware.gpu_place import pci_bus_id
from dtsweep.hardware.host import ROOT, kernel_text
from dtsweep.hardware.nvml import driver, find_gpu, topology
from dtsweep.hardware.variables import ambient
from dtsweep.provenance.versions import package_versions, versions

_IMAGE_DIGESTS = ("CONTAINER_IMAGE_DIGEST", "IMAGE_DIGEST")
"""Variables that may name the image of a container, which does not know its own."""


def fingerprint(
    device: torch.device,
    *,
    own_variables: Collection[str] = (),
    packages: Collection[str] = (),
    nvml: Any = pynvml,
) -> dict[str, Any]:
    """Describe this rank: columns of `ranks` that are equal in all trials, and `machine`.

    Args:
        device: of this rank.
        own_variables: names of the environment variables that the sweep sets. They are no part of
            the machine.
        packages: that the workload imports.
        nvml: the library; not touched on a CPU.

    Returns:
        `machine` is equal for two ranks on equal machines and from one session to the next; what is
        unknown is absent.
    """
    hardware = {**host(), **cpu()}
    name = hardware["cpu"]
    uuid = None
    bus = None
    gpu_machine = {}
    if device.type == "cuda":
        gpu = torch.cuda.get_device_properties(device)
        name = gpu.name
        uuid = str(gpu.uuid)
        bus = pci_bus_id(gpu)
        gpu_machine = _gpu_machine(gpu.uuid, nvml)
        if capability := compute_capability(device):
            gpu_machine["compute_capability"] = "{}.{}".format(*capability)
    return {
        "node": socket.gethostname(),
        "partition": os.environ.get("SLURM_JOB_PARTITION"),
        "switch": _slurm_switch(os.environ),
        "pid": os.getpid(),
        "device": name,
        "device_uuid": uuid,
        "pci_bus_id": bus,
        "threads": torch.get_num_threads(),
        "niceness": os.nice(0),
        "machine": _without_empty(
            {
                **versions(),
                "numpy_version": np.__version__,
                "packages": package_versions(packages),
                **hardware,
                **_torch_build(),
                **gpu_machine,
                "environment": ambient(os.environ, own_variables=own_variables),
            }
        ),
    }


def cpu(root: Path = ROOT) -> dict[str, Any]:
    """Describe the processors; None where the kernel doesn't say."""
    lines = re.findall(
        r"^([^\t:]+)\s*: (.*)$", kernel_text(root / "proc/cpuinfo") or "", re.MULTILINE
    )
    models, sockets, cores = (
        [value for name, value in lines if name == wanted]
        for wanted in ("model name", "physical id", "core id")
    )
    system = root / "sys/devices/system"
    return {
        "cpu": models[0] if models else platform.machine(),
        "cpus": os.cpu_count(),
        "sockets": len(set(sockets)) or None,
        "cores": len(set(zip(sockets, cores, strict=False))) or None,
        "smt": {"0": False, "1": True}.get(kernel_text(system / "cpu/smt/active") or ""),
        "governor": kernel_text(system / "cpu/cpu0/cpufreq/scaling_governor"),
        "numa_nodes": len(list((system / "node").glob("node[0-9]*"))) or None,
        "cpus_allowed": len(os.sched_getaffinity(0)),
    }


def host(root: Path = ROOT) -> dict[str, Any]:
    """Describe the machine around the processors; None where the kernel doesn't say."""
    memory = re.search(
        r"^MemTotal:\s*(\d+) kB", kernel_text(root / "proc/meminfo") or "", re.MULTILINE
    )
    return {
        "system": f"{platform.system()} {platform.release()}",
        "clock_source": kernel_text(
            root / "sys/devices/system/clocksource/clocksource0/current_clocksource"
        ),
        # Whole GiB: what the firmware keeps for itself differs by some MiB between equal machines.
        "memory_gib": round(int(memory[1]) / 2**20) if memory else None,
        "network": _network(root),
        "container": _container(root),
        "image_digest": next(
            (os.environ[name] for name in _IMAGE_DIGESTS if name in os.environ), None
        ),
    }


def _slurm_switch(environment: Mapping[str, str]) -> str | None:
    """Name the switches above this node, the top one first; None without Slurm's topology.

    >>> topology = {"SLURM_TOPOLOGY_ADDR_PATTERN": "switch.switch.node"}
    >>> _slurm_switch({"SLURM_TOPOLOGY_ADDR": "spine.leaf1.node7", **topology})
    'spine.leaf1'
    """
    kinds = environment.get("SLURM_TOPOLOGY_ADDR_PATTERN", "node").split(".")
    names = environment.get("SLURM_TOPOLOGY_ADDR", "").split(".")
    return ".".join(names[: len(kinds) - 1]) or None


def _network(root: Path) -> list[str]:
    """Name the network devices with their speeds: `eth0 10000 Mb/s`, `mlx5_0 400 Gb/sec (4X NDR)`.

    Bridges and the ends of containers are no devices; their names change from day to day.
    """
    devices = []
    for interface in sorted((root / "sys/class/net").glob("*")):
        if (interface / "device").exists():
            speed = int(kernel_text(interface / "speed") or -1)
            devices.append(f"{interface.name} {speed} Mb/s" if speed > 0 else interface.name)
    ports = sorted((root / "sys/class/infiniband").glob("*/ports/*"))
    return devices + [
        f"{port.parts[-3]} {kernel_text(port / 'rate') or ''}".strip() for port in ports
    ]


def _container(root: Path) -> str | None:
    """Name the kind of container that this process seems to be in."""
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "kubernetes"
    marks = {".dockerenv": "docker", "run/.containerenv": "podman"}
    kinds = [kind for mark, kind in marks.items() if (root / mark).exists()]
    kinds += re.findall(
        r"kubepods|docker|containerd|lxc", kernel_text(root / "proc/self/cgroup") or ""
    )
    if not kinds:
        return None
    return kinds[0]


def _torch_build() -> dict[str, Any]:
    shown = torch.__config__.show()
    mkl = re.search(r"Math Kernel Library Version (\S+)", shown)
    blas = re.search(r"BLAS_INFO=(\w+)", shown)
    onednn = re.search(r"MKL-DNN v(\S+)", shown)
    parallel = re.search(r"ATen parallel backend: (.+)", torch.__config__.parallel_info())
    return {
        "torch_commit": (torch.version.git_version or "")[:12],
        "blas": " ".join(match[1] for match in (blas, mkl) if match),
        "onednn": onednn[1] if onednn else None,
        "parallel": parallel[1] if parallel else None,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cuda": torch.version.cuda,
    }


def _gpu_machine(uuid: object, nvml: Any) -> dict[str, Any]:
    """Describe the GPUs and their libraries; only where there is one, since this starts CUDA's."""
    gpu = find_gpu(uuid, nvml=nvml)
    nccl: tuple[int, ...] = ()
    if torch.distributed.is_nccl_available():
        nccl = torch.cuda.nccl.version()
    return {
        "driver": driver(nvml=nvml),
        "cudnn": torch.backends.cudnn.version(),
        "nccl": ".".join(str(part) for part in nccl),
        "gpu": gpu and _without_empty(gpu.settings()),
        "mps": (gpu is not None and gpu.has_mps()) or None,
        "topology": topology(nvml=nvml),
    }


def _without_empty(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, "", [], {})}
