"""Terminal renderer of GPUs: rates of a node's GPUs, their state, and their connections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.text import format_number, print_table, say

if TYPE_CHECKING:
    from rich.console import Console

Gpus = Sequence[Mapping[str, Any]]

LEGEND = (
    "NV4: 4 NVLinks. Else what two GPUs share: PIX, PXB: one or several PCIe switches; "
    "PHB: the host bridge; NODE: the NUMA node; SYS: the system. *: no peer access."
)


def print_gpu_rates(node: Mapping[str, Any], *, console: Console) -> None:
    """Print the rates of a node's GPUs side by side, if it has any."""
    if node["gpus"]:
        say(console, f"\nGPUs of {node['node']}: rates", style="bold")
        print_table(gpu_rate_columns(node["gpus"]), console=console)


def gpu_rate_columns(gpus: Gpus) -> dict[str, list[str]]:
    """Table columns of a node's GPUs: matrix products by precision, memory, and PCIe lanes."""
    # Older GPUs of a node may lack a precision.
    precisions = dict.fromkeys(precision for gpu in gpus for precision in gpu["rates"])
    rates = {
        f"{precision}\nTFLOP/s": [_rate_of(gpu, precision) for gpu in gpus]
        for precision in precisions
    }
    return {
        "GPU": [str(gpu["gpu"]) for gpu in gpus],
        "device": [gpu["device"] for gpu in gpus],
        **rates,
        "memory\nGB/s": [format_number(gpu["moved_bytes_per_s"] / 1e9, digits=3) for gpu in gpus],
        "PCIe\nlanes": [_shown(gpu["pcie_lanes"]) for gpu in gpus],
    }


def _rate_of(gpu: Mapping[str, Any], precision: str) -> str:
    if precision not in gpu["rates"]:
        return ""
    return format_number(gpu["rates"][precision]["measured_flops_per_s"] / 1e12, digits=3)


def print_gpu_state(host: Mapping[str, Any], *, console: Console) -> None:
    """Print the state of a host's GPUs, their connections, and GPUDirect RDMA, if it has any."""
    gpus = host["gpus"]
    if not gpus:
        return
    say(console, f"\nGPUs of {host['node']}: state", style="bold")
    print_table(gpu_state_columns(gpus), console=console)
    if host["connections"] is not None:
        say(console, f"\nGPUs of {host['node']}: connections", style="bold")
        print_table(connection_columns(host["connections"]), console=console)
        say(console, LEGEND)
    say(console, gpu_direct_line(host["gpu_direct"]))


def gpu_state_columns(gpus: Gpus) -> dict[str, list[str]]:
    """Table columns of a host's GPUs: place, links, and errors since the driver was loaded."""
    errors = [gpu["nvlink_errors"] for gpu in gpus]
    return {
        "GPU": [str(index) for index in range(len(gpus))],
        "bus id": [_shown(gpu["pci_bus_id"]) for gpu in gpus],
        "NUMA\nnode": [_shown(gpu["numa_node"]) for gpu in gpus],
        "NVLinks": [_shown(gpu["nvlinks"]) for gpu in gpus],
        "NVLink\nerrors": ["" if kinds is None else str(sum(kinds.values())) for kinds in errors],
        "PCIe\nreplays": [_shown(gpu["pcie_replays"]) for gpu in gpus],
        "remapped\nrows": [_shown(gpu["remapped_rows"]) for gpu in gpus],
        "MIG\nslices": [_shown(gpu["slices"]) for gpu in gpus],
    }


def connection_columns(connections: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    """Table columns of the paths between GPUs: a line and a column for each GPU."""
    peers = {str(j): [row[j] for row in connections] for j in range(len(connections))}
    return {"GPU": [str(i) for i in range(len(connections))], **peers}


def gpu_direct_line(direct: Mapping[str, Any]) -> str:
    """Say by what NICs reach the memory of GPUs.

    >>> gpu_direct_line({"nics": ["mlx5_0"], "peer_module": None, "open_driver": True})
    'GPUDirect RDMA: NICs mlx5_0; dmabuf (open kernel modules of the driver)'
    """
    ways = []
    if direct["peer_module"]:
        ways.append(direct["peer_module"])
    if direct["open_driver"]:
        ways.append("dmabuf (open kernel modules of the driver)")
    nics = ", ".join(direct["nics"]) or "none"
    return f"GPUDirect RDMA: NICs {nics}; {', '.join(ways) or 'neither peer module nor dmabuf'}"


def _shown(value: object) -> str:
    if value is None:
        return ""
    return str(value)
